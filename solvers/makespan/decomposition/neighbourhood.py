r"""A window of a schedule as a problem of its own, for the constraint program.

The schedule before and after the window stays fixed, and gives heads and tails by device
(:func:`~placekit.solvers.makespan.decomposition.stretch.borders_of`). Inside the window free ops may move anywhere. All
other ops keep their devices and their order among themselves.

The new schedule ends with the window's makespan (heads and tails included), or with a path that does not touch the
window, whichever is later. Devices are not interchangeable here, and an op whose class has members outside is not free.
Each device has the bytes that the ops outside leave. Building the problem takes O(ops + edges * devices).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.model.graph import number_by_first
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solvers.makespan.bounds.windows import HeadsTails
from placekit.solvers.makespan.decomposition.stretch import borders_of, time_to_ends
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, by_start, placement_of

__all__ = ["Neighbourhood", "critical_ops", "cut_out", "put_back"]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A window of a schedule.

    Parameters
    ----------
    low, high
        First op of the window by start, and one past the last.
    ops
        ``[W]`` positions of the ops (in the order of the tasks), in topological order.
    tasks
        Tasks of the window, every device a group of its own.
    heads_tails
        Heads and tails from the ops outside.
    orders
        Pairs of ops of the window that keep their order.
    is_everything
        True if all ops are inside and free.
    """

    low: int
    high: int
    ops: NDArray[np.int64]
    tasks: Tasks
    heads_tails: HeadsTails
    orders: list[tuple[int, int]]
    is_everything: bool


def critical_ops(flat: SequenceProblem, tasks: Tasks, timetable: Timetable) -> NDArray[np.int64]:
    """Return the critical ops: delaying one of them delays the end."""
    to_end_s = time_to_ends(flat, *_in_graph(tasks, timetable)[:2])[tasks.op]
    return np.flatnonzero(timetable.start + to_end_s >= float(np.max(timetable.finish)) * (1 - 1e-9))


def _in_graph(tasks: Tasks, timetable: Timetable) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return device, sequence and finish of a timetable, ops as in the graph."""
    device, finish_s = np.empty(tasks.num_ops, dtype=np.int64), np.empty(tasks.num_ops)
    device[tasks.op], finish_s[tasks.op] = timetable.device, timetable.finish
    return device, tasks.op[by_start(timetable)], finish_s


def cut_out(
    flat: SequenceProblem, tasks: Tasks, timetable: Timetable, low: int, high: int, is_free: NDArray[np.bool_]
) -> Neighbourhood:
    """Return the window of the ops number ``low .. high - 1`` by start.

    Parameters
    ----------
    flat, tasks, timetable
        The problem in both of its forms, and a schedule in seconds.
    low, high
        The window.
    is_free
        ``[V]`` True for the ops that may move, if they are in the window.
    """
    order = by_start(timetable)
    num_ops, devices = tasks.num_ops, np.arange(tasks.num_devices)
    ops = np.sort(order[low:high])
    inside = np.zeros(num_ops, dtype=np.bool_)
    inside[ops] = True
    # a class is free or not as a whole
    movable = ~np.isin(tasks.class_of_op, tasks.class_of_op[~(inside & is_free)])
    index = np.full(num_ops, -1)
    index[ops] = np.arange(len(ops))
    borders = borders_of(flat, *_in_graph(tasks, timetable), low, high)
    by_op = np.argsort(order[low:high])
    head_s, tail_s = np.maximum(borders.release_s, borders.free_s), np.maximum(borders.after_s, borders.then_s)

    within = inside[tasks.senders] & inside[tasks.receivers]
    used = np.bincount(timetable.device[~inside], weights=tasks.memory_bytes[~inside], minlength=tasks.num_devices)
    stays = ~movable[ops, None] & (devices != timetable.device[ops, None])
    part = replace(
        tasks,
        op=tasks.op[ops],
        time_s=np.where(stays, np.inf, tasks.time_s[ops]),
        class_of_op=number_by_first(tasks.class_of_op[ops]),
        memory_bytes=tasks.memory_bytes[ops],
        limit_bytes=np.maximum(tasks.limit_bytes - used, 0.0),
        senders=index[tasks.senders[within]],
        receivers=index[tasks.receivers[within]],
        delay_s=tasks.delay_s[within],
        group=devices,
        group_size=np.ones(tasks.num_devices, dtype=np.int64),
    )
    fixed = [v for v in order[low:high].tolist() if not movable[v]]
    orders = [
        (int(index[u]), int(index[v]))
        for d in devices.tolist()
        for u, v in pairwise([v for v in fixed if timetable.device[v] == d])
    ]
    return Neighbourhood(low, high, ops, part, HeadsTails(head_s[by_op], tail_s[by_op]), orders, bool(movable.all()))


def put_back(
    problem: Problem, tasks: Tasks, timetable: Timetable, window: Neighbourhood, answer: Timetable
) -> Placement:
    """Return the schedule with the window replaced by `answer`."""
    order, device = by_start(timetable), timetable.device.copy()
    order[window.low : window.high] = window.ops[by_start(answer)]
    device[window.ops] = answer.device
    return placement_of(problem, tasks, device, order)

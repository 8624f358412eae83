r"""A part of a schedule as a problem of its own.

The ops of a schedule, sorted by start, are cut into what is before a window, the window, and what is after it.

- *Before* stays as it is. An op v of the window cannot start on d before the last op before the window ends there, nor
  before the tensors that come from there have arrived: a head by device.
- *After* keeps its devices and orders. Let :math:`\ell_w` be the longest chain of ops, transfers and device turns from
  the start of w to the end of the schedule. An op v of the window on d is followed by at least
  :math:`c_{vw} + \ell_w` for its readers w, and by :math:`\ell_w` for the first w after the window on d: a tail by
  device.
- *Inside*, the ops that are not free keep their devices and their order among themselves; the free ones go anywhere.

The schedule put together ends at the larger of the window's makespan (heads and tails included) and what does not
touch the window. Devices are not interchangeable here, and an op whose class has members elsewhere is not free. Each
device has the bytes that the ops outside leave. Building it takes O(ops + edges * devices).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.graph import number_by_first
from placekit.solvers.makespan.bounds.windows import Floors
from placekit.solvers.makespan.exact.cp_model import Plan
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["Neighbourhood", "critical_ops", "cut_out", "put_back"]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A window of a schedule.

    Parameters
    ----------
    ops
        ``[W]`` positions (in the order of the tasks) of the ops of the window, in topological order.
    tasks
        Its tasks, every device a group of its own.
    floors
        Heads and tails from outside.
    orders
        Pairs of ops of the window that keep their order.
    is_everything
        True if all ops are inside and free.
    """

    ops: NDArray[np.int64]
    tasks: Tasks
    floors: Floors
    orders: list[tuple[int, int]]
    is_everything: bool


def by_start(plan: Plan) -> NDArray[np.int64]:
    """``[V]`` ops by start, then finish, then topologically: an order that the schedule obeys."""
    return np.lexsort((np.arange(len(plan.start)), plan.finish, plan.start))


def remaining_s(tasks: Tasks, plan: Plan, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """``[V]`` longest chain from the start of each op to the end, if devices and orders stay. O(edges)."""
    num_ops = tasks.num_ops
    time_s = tasks.time_s[np.arange(num_ops), plan.device].tolist()
    device = plan.device.tolist()
    delay = _delays(tasks, plan.device).tolist()
    offsets = np.searchsorted(tasks.senders, np.arange(num_ops + 1)).tolist()
    receivers = tasks.receivers.tolist()
    chain = [0.0] * num_ops
    next_on = [0.0] * tasks.num_devices
    for v in order[::-1].tolist():
        rest = next_on[device[v]]
        for e in range(offsets[v], offsets[v + 1]):
            rest = max(rest, delay[e] + chain[receivers[e]])
        chain[v] = next_on[device[v]] = time_s[v] + rest
    return np.array(chain)


def critical_ops(tasks: Tasks, plan: Plan) -> NDArray[np.int64]:
    """Return the ops that cannot be delayed without delaying the end."""
    chain = remaining_s(tasks, plan, by_start(plan))
    end = float(np.max(plan.finish))
    return np.flatnonzero(plan.start + chain >= end * (1 - 1e-9))


def _delays(tasks: Tasks, device: NDArray[np.int64]) -> NDArray[np.float64]:
    ends = device[tasks.senders], device[tasks.receivers]
    delay = tasks.delay_s[np.arange(len(tasks.senders)), tasks.kind[ends[0]], tasks.kind[ends[1]]]
    return np.where(ends[0] == ends[1], 0.0, delay)


def cut_out(tasks: Tasks, plan: Plan, low: int, high: int, is_free: NDArray[np.bool_]) -> Neighbourhood:
    """Return the window of the ops number ``low .. high - 1`` by start.

    Parameters
    ----------
    tasks, plan
        The problem and a schedule in seconds.
    low, high
        The window.
    is_free
        ``[V]`` True for the ops that may move, if they are in the window.
    """
    order = by_start(plan)
    num_ops, devices = tasks.num_ops, np.arange(tasks.num_devices)
    place = np.empty(num_ops, dtype=np.int64)
    place[order] = np.arange(num_ops)
    inside = (place >= low) & (place < high)
    split = np.bincount(tasks.class_of_op[~inside], minlength=tasks.num_classes) > 0
    movable = inside & is_free & ~split[tasks.class_of_op]
    # a class is free or not as a whole
    bound = np.bincount(tasks.class_of_op[~movable], minlength=tasks.num_classes) > 0
    movable = ~bound[tasks.class_of_op]
    ops = np.flatnonzero(inside)
    index = np.full(num_ops, -1)
    index[ops] = np.arange(len(ops))

    finish = np.asarray(plan.finish, dtype=np.float64)
    head, tail = np.zeros((num_ops, tasks.num_devices)), np.zeros((num_ops, tasks.num_devices))
    is_before, is_after = place < low, place >= high
    free_s = np.zeros(tasks.num_devices)
    np.maximum.at(free_s, plan.device[is_before], finish[is_before])
    chain = remaining_s(tasks, plan, order)
    turn_s = np.zeros(tasks.num_devices)
    np.maximum.at(turn_s, plan.device[is_after], chain[is_after])
    head[:], tail[:] = free_s, turn_s
    for e in np.flatnonzero(is_before[tasks.senders] & inside[tasks.receivers]).tolist():
        u, v = tasks.senders[e], tasks.receivers[e]
        arrival = finish[u] + np.where(
            devices == plan.device[u], 0.0, tasks.delay_s[e, tasks.kind[plan.device[u]], tasks.kind]
        )
        head[v] = np.maximum(head[v], arrival)
    for e in np.flatnonzero(inside[tasks.senders] & is_after[tasks.receivers]).tolist():
        u, v = tasks.senders[e], tasks.receivers[e]
        rest = chain[v] + np.where(
            devices == plan.device[v], 0.0, tasks.delay_s[e, tasks.kind, tasks.kind[plan.device[v]]]
        )
        tail[u] = np.maximum(tail[u], rest)

    within = inside[tasks.senders] & inside[tasks.receivers]
    used = np.bincount(plan.device[~inside], weights=tasks.memory_bytes[~inside], minlength=tasks.num_devices)
    stays = ~movable[ops, None] & (devices != plan.device[ops, None])
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
        for u, v in pairwise([v for v in fixed if plan.device[v] == d])
    ]
    return Neighbourhood(ops, part, Floors(head[ops], tail[ops]), orders, bool(movable.all()))


def put_back(
    plan: Plan, neighbourhood: Neighbourhood, answer: Plan, low: int, high: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``[V]`` devices and ``[V]`` steps of the schedule with the window replaced by `answer`."""
    order = by_start(plan)
    order[low:high] = neighbourhood.ops[by_start(answer)]
    device = plan.device.copy()
    device[neighbourhood.ops] = answer.device
    step = np.empty_like(order)
    step[order] = np.arange(len(order))
    return device, step

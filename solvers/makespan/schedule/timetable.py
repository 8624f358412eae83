"""Timetables: device, start and finish of every op, in exchange with the judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation
from placekit.solve.method import Run
from placekit.solvers.makespan.schedule.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Timetable:
    """Device, start and finish of every op."""

    device: NDArray[np.int64]  # ``[V]`` devices, in the order of the tasks
    # start, finish: ``[V]`` in seconds, or in whole units
    start: NDArray[np.float64] | NDArray[np.int64]
    finish: NDArray[np.float64] | NDArray[np.int64]


def by_start(timetable: Timetable) -> NDArray[np.int64]:
    """Return the ops by start, then by finish, then topologically ``[V]``: an order of the schedule.

    With times rounded down an op may take zero units. In this order it comes before its successors, and before longer
    ops that start at the same time.
    """
    return np.lexsort((np.arange(len(timetable.start)), timetable.finish, timetable.start))


def run_times(evaluation: Evaluation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``[V]`` start and end of every op in seconds, as the judge executes a placement; ops as in the graph."""
    assert evaluation.score is not None  # callers have its objective
    schedule = evaluation.score.schedule
    assert schedule is not None  # the makespan has a clock
    ops = ~schedule.is_transfer
    start, finish = np.zeros((2, int(ops.sum())))
    start[schedule.op[ops]] = schedule.start_s[ops]
    finish[schedule.op[ops]] = schedule.finish_s[ops]
    return start, finish


def timetable_of(placement: Placement, evaluation: Evaluation, tasks: Tasks) -> Timetable:
    """Return the timetable of a placement, as the judge executes it, in seconds."""
    start, finish = run_times(evaluation)
    return Timetable(placement.device_of_op[tasks.op], start[tasks.op], finish[tasks.op])


def placement_of(problem: Problem, tasks: Tasks, device: NDArray[np.int64], order: NDArray[np.int64]) -> Placement:
    """Return the placement of ``[V]`` devices and a ``[V]`` topological order, both of tasks."""
    device_of_op, step_of_op = np.empty_like(device), np.empty_like(order)
    device_of_op[tasks.op], step_of_op[tasks.op[order]] = device, np.arange(tasks.num_ops)
    return Placement.of(problem, device_of_op, step_of_op)


def offer_timetable(run: Run, tasks: Tasks, timetable: Timetable, at_most: float | None = None) -> None:
    """Offer the devices and the order of a timetable; the judge starts every op as early as this order allows."""
    run.offer(placement_of(run.problem, tasks, timetable.device, by_start(timetable)), at_most=at_most)

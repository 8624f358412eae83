"""Schedules on their way between the judge and what needs to know when every op runs."""

from __future__ import annotations

import numpy as np

from placekit.evaluate import Evaluation
from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.makespan.exact.cp_model import Plan
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["offer_plan", "plan_of"]


def plan_of(placement: Placement, evaluation: Evaluation, tasks: Tasks) -> Plan:
    """Return the schedule of a placement, as the judge executes it, in seconds."""
    assert evaluation.score is not None  # callers have its objective
    schedule = evaluation.score.schedule
    assert schedule is not None  # the makespan has a clock
    start, finish = np.zeros((2, tasks.num_ops))
    ops = ~schedule.is_transfer
    start[schedule.op[ops]] = schedule.start_s[ops]
    finish[schedule.op[ops]] = schedule.finish_s[ops]
    return Plan(placement.device_of_op[tasks.op], start[tasks.op], finish[tasks.op])


def offer_plan(run: Run, tasks: Tasks, plan: Plan, at_most: float | None = None) -> None:
    """Offer the devices and the order of a plan; the judge starts every op as early as this order allows.

    Ops are ordered by start, then by finish, then topologically: with times rounded down an op can take no unit, and
    this way it comes before what it feeds and before the longer ops that start when it does.
    """
    by_time = np.lexsort((np.arange(tasks.num_ops), plan.finish, plan.start))
    device = np.empty(tasks.num_ops, dtype=np.int64)
    step = np.empty(tasks.num_ops, dtype=np.int64)
    device[tasks.op] = plan.device
    step[tasks.op[by_time]] = np.arange(tasks.num_ops)
    run.offer(Placement.of(run.problem, device, step), at_most=at_most)

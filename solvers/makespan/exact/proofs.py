"""Bounds of the makespan that need no constraint program, each in its share of the time that a run has left."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placekit.method import Run
from placekit.solvers.makespan.bounds.assignment_programs import MAX_OPS_ASSIGNED, assigned_work
from placekit.solvers.makespan.bounds.both_ends import MAX_OPS_ENDINGS, lost_at_ends
from placekit.solvers.makespan.bounds.quick import MAX_OPS_REFUTE, look, makespan_bounds
from placekit.solvers.makespan.bounds.windows import Floors, Windows
from placekit.solvers.makespan.decomposition.case_split import refute_by_cases
from placekit.solvers.makespan.exact.a_star import MAX_OPS_CHRONOLOGICAL, search_chronologically
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, offer_timetable

__all__ = [
    "CHRONOLOGICAL_SHARE",
    "QUICK_SHARE",
    "prove",
    "prove_by_assignment",
    "prove_by_cases",
    "prove_by_ends",
    "prove_chronologically",
]

ASSIGNMENT_SHARE = 0.5
"""Share of the rest of the time for the programs of who runs where, and when."""
DEFAULT_ASSIGNMENT_S = 60.0
"""The same without a time limit."""
CHRONOLOGICAL_SHARE = 0.1
"""Share of the rest of the time for the search of all schedules in the order of time, where ops are few. A segment has
`SEGMENT_SHARE`: what the program closes there, it closes in milliseconds."""
DEFAULT_CHRONOLOGICAL_S = 10.0
"""The same without a time limit."""
ENDINGS_SHARE = 0.9
"""Share of the rest of the time for what is lost at both ends."""
QUICK_SHARE = 0.05
"""Share of the rest of the time for each round of bounds."""


def prove(
    run: Run,
    tasks: Tasks,
    floors: Floors,
    keep: Callable[[float, str], None] | None = None,
    share: float = QUICK_SHARE,
) -> None:
    """Raise the bound by what takes no search, in a share of the time that is left."""
    if run.should_stop() is not None:
        return
    keep = keep or run.raise_bound
    limit_s = math.inf if run.remaining_s is None else share * run.remaining_s
    for bound_s, name in makespan_bounds(run.problem, tasks, floors, upper_bound_s=run.objective, time_limit_s=limit_s):
        # what is proven of limits below a makespan that is known says no more than that this one is optimal
        keep(bound_s if run.objective is None else min(bound_s, run.objective), name)
        if run.should_stop() is not None:
            return


def prove_chronologically(
    run: Run, tasks: Tasks, floors: Floors, keep: Callable[[float, str], None], share: float = CHRONOLOGICAL_SHARE
) -> None:
    """Search all schedules of a few ops in the order of time, in a share of the time that is left."""
    found = _between_limits(run, tasks, floors, MAX_OPS_CHRONOLOGICAL)
    if found is None:
        return
    windows, (_, limit_s) = found
    time_s = DEFAULT_CHRONOLOGICAL_S if run.remaining_s is None else share * run.remaining_s
    searches = search_chronologically(windows, limit_s, time_s, lambda: run.should_stop() is not None)
    for bound_s, device, end_s in searches:
        keep(min(bound_s, limit_s), "all schedules in the order of time")
        if device is not None:
            start_s = end_s - tasks.time_s[np.arange(tasks.num_ops), device]
            offer_timetable(run, tasks, Timetable(device, start_s, end_s))


def prove_by_assignment(run: Run, tasks: Tasks, floors: Floors, keep: Callable[[float, str], None]) -> None:
    """Solve the programs of who runs where, in a share of the time that is left."""
    found = _between_limits(run, tasks, floors, MAX_OPS_ASSIGNED)
    if found is None:
        return
    windows, limits = found
    limit_s = DEFAULT_ASSIGNMENT_S if run.remaining_s is None else ASSIGNMENT_SHARE * run.remaining_s
    programs = assigned_work(windows, floors.between_s, *limits, limit_s, lambda: run.should_stop() is not None)
    for bound_s in programs:
        # of schedules up to the best known
        keep(min(bound_s, limits[1]), "assignment with starts")


def prove_by_ends(run: Run, tasks: Tasks, floors: Floors, keep: Callable[[float, str], None]) -> None:
    """Search for what is lost at both ends, in a share of the time that is left."""
    found = _between_limits(run, tasks, floors, MAX_OPS_ENDINGS)
    if found is None:
        return
    windows, limits = found
    limit_s = math.inf if run.remaining_s is None else ENDINGS_SHARE * run.remaining_s
    searches = lost_at_ends(tasks, windows, *limits, limit_s, lambda: run.should_stop() is not None)
    for bound_s in searches:
        keep(min(bound_s, limits[1]), "losses at both ends")


def _between_limits(
    run: Run, tasks: Tasks, floors: Floors, most_ops: int
) -> tuple[Windows, tuple[float, float]] | None:
    """Return the windows of schedules up to the best known, with its bound and its makespan, read once.

    None if there is nothing to prove, no time, or if there are more ops than `most_ops`. What the windows say of the
    makespan is no bound on shorter schedules, so it is left out.
    """
    if not run.objective or tasks.num_ops > most_ops or run.should_stop() is not None:
        return None
    limits = (run.bound or 0.0, run.objective)
    found = look(tasks, limits[1], floors)
    return None if found is None else (found.windows, limits)


def prove_by_cases(run: Run, tasks: Tasks, floors: Floors, keep: Callable[[float, str], None]) -> None:
    """Refute limits case by case, until the time is up; without a time limit as long as it is easy."""
    if run.objective is None or not run.bound or tasks.num_ops > MAX_OPS_REFUTE:
        return
    limits, rng = (run.bound, run.objective), np.random.default_rng(run.seed)
    rounds = 1 if run.remaining_s is None else None
    for refuted_s in refute_by_cases(tasks, floors, *limits, rng, lambda: run.should_stop() is not None, rounds):
        keep(min(refuted_s, run.objective), "cases refuted")

"""Bounds of the makespan that need no constraint program, each in its share of the time that a run has left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placekit.method import Run
from placekit.solvers.makespan.bounds.assignment_programs import MAX_OPS_ASSIGNED, assigned_work
from placekit.solvers.makespan.bounds.both_ends import MAX_OPS_ENDINGS, lost_at_ends
from placekit.solvers.makespan.bounds.quick import MAX_OPS_REFUTE, look, makespan_bounds
from placekit.solvers.makespan.bounds.windows import Floors, Windows
from placekit.solvers.makespan.decomposition.case_split import refute_by_cases
from placekit.solvers.makespan.exact.a_star import MAX_OPS_A_STAR, ROUNDING, search_all_schedules
from placekit.solvers.makespan.mechanisms import ALL, Mechanisms
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, offer_timetable

__all__ = ["A_STAR_SHARE", "QUICK_SHARE", "Proof"]

ASSIGNMENT_SHARE = 0.5
"""Share of the rest of the time for the programs of who runs where, and when."""
DEFAULT_ASSIGNMENT_S = 60.0
"""The same without a time limit."""
A_STAR_SHARE = 0.1
"""Share of the rest of the time for A*, where ops are few. A segment has `SEGMENT_SHARE`: what the program closes
there, it closes in milliseconds."""
DEFAULT_A_STAR_S = 10.0
"""The same without a time limit."""
ENDINGS_SHARE = 0.9
"""Share of the rest of the time for what is lost at both ends."""
QUICK_SHARE = 0.05
"""Share of the rest of the time for each round of bounds."""


@dataclass
class Proof:
    """What all bounds of a run share.

    Parameters
    ----------
    run, tasks
        The run, and the tasks of its problem.
    floors
        Heads and tails, and what is between ops; replaced as more becomes known.
    mechanisms
        The bounds that are used; the others do nothing.
    keep
        Takes bounds in seconds, and their names; `Run.raise_bound` if None.
    """

    run: Run
    tasks: Tasks
    floors: Floors
    mechanisms: Mechanisms = ALL
    keep: Callable[[float, str], None] | None = None

    def quickly(self, share: float = QUICK_SHARE) -> None:
        """Raise the bound by what takes no search, in a share of the time that is left."""
        run = self.run
        if run.should_stop() is not None:
            return
        limit_s = math.inf if run.remaining_s is None else share * run.remaining_s
        bounds = makespan_bounds(
            run.problem,
            self.tasks,
            self.floors,
            upper_bound_s=run.objective,
            time_limit_s=limit_s,
            mechanisms=self.mechanisms,
        )
        for bound_s, name in bounds:
            # what is proven of limits below a makespan that is known says no more than that this one is optimal
            self._keep(bound_s if run.objective is None else min(bound_s, run.objective), name)
            if run.should_stop() is not None:
                return

    def by_a_star(self, share: float = A_STAR_SHARE) -> None:
        """Search all schedules of a few ops, in a share of the time that is left."""
        found = self._between_limits(MAX_OPS_A_STAR) if self.mechanisms.a_star else None
        if found is None:
            return
        windows, (_, limit_s) = found
        time_s = DEFAULT_A_STAR_S if self.run.remaining_s is None else share * self.run.remaining_s
        for bound_s, device, end_s in search_all_schedules(self.tasks, windows, limit_s, time_s, self._should_stop):
            self._keep(min(bound_s, limit_s), "all schedules, by A*")
            if device is not None:
                start_s = end_s - self.tasks.time_s[np.arange(self.tasks.num_ops), device]
                # in whole units of what the search may be wrong by: ops that start at once must not change places
                start, finish = (np.rint(at_s / (ROUNDING * limit_s)) for at_s in (start_s, end_s))
                offer_timetable(self.run, self.tasks, Timetable(device, start, finish))

    def by_assignment(self) -> None:
        """Solve the programs of who runs where, in a share of the time that is left."""
        found = self._between_limits(MAX_OPS_ASSIGNED) if self.mechanisms.assignment else None
        if found is None:
            return
        windows, limits = found
        left_s = self.run.remaining_s
        limit_s = DEFAULT_ASSIGNMENT_S if left_s is None else ASSIGNMENT_SHARE * left_s
        for bound_s in assigned_work(windows, self.floors.between_s, *limits, limit_s, self._should_stop):
            # of schedules up to the best known
            self._keep(min(bound_s, limits[1]), "assignment with starts")

    def by_ends(self) -> None:
        """Search for what is lost at both ends, in a share of the time that is left."""
        found = self._between_limits(MAX_OPS_ENDINGS) if self.mechanisms.both_ends else None
        if found is None:
            return
        windows, limits = found
        limit_s = math.inf if self.run.remaining_s is None else ENDINGS_SHARE * self.run.remaining_s
        for bound_s in lost_at_ends(self.tasks, windows, *limits, limit_s, self._should_stop):
            self._keep(min(bound_s, limits[1]), "losses at both ends")

    def by_cases(self) -> None:
        """Refute limits case by case, until the time is up; without a time limit as long as it is easy."""
        run = self.run
        if run.objective is None or not run.bound or self.tasks.num_ops > MAX_OPS_REFUTE:
            return
        if not self.mechanisms.case_split:
            return
        limits, rng = (run.bound, run.objective), np.random.default_rng(run.seed)
        rounds = 1 if run.remaining_s is None else None
        for refuted_s in refute_by_cases(
            self.tasks, self.floors, *limits, rng, self._should_stop, rounds, self.mechanisms
        ):
            self._keep(min(refuted_s, run.objective), "cases refuted")

    def _keep(self, bound_s: float, name: str) -> None:
        (self.keep or self.run.raise_bound)(bound_s, name)

    def _should_stop(self) -> bool:
        return self.run.should_stop() is not None

    def _between_limits(self, most_ops: int) -> tuple[Windows, tuple[float, float]] | None:
        """Return the windows of schedules up to the best known, with its bound and its makespan, read once.

        None if there is nothing to prove, no time, or if there are more ops than `most_ops`. What the windows say of
        the makespan is no bound on shorter schedules, so it is left out.
        """
        run = self.run
        if not run.objective or self.tasks.num_ops > most_ops or run.should_stop() is not None:
            return None
        limits = (run.bound or 0.0, run.objective)
        found = look(self.tasks, limits[1], self.floors, self.mechanisms)
        return None if found is None else (found.windows, limits)

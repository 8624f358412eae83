"""Lower bounds on the makespan without a constraint program, each in its share of the remaining time."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np

from placekit.solve.certificates import CertificateSource
from placekit.solve.method import Run
from placekit.solvers.backends.thread import run_beside
from placekit.solvers.generic.bounds.bound import KeepBound
from placekit.solvers.makespan.bounds.quick import MAX_OPS_REFUTE, quick_bounds
from placekit.solvers.makespan.decomposition.case_split import refute_by_cases
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.solvers.makespan.search.local_search import search_makespan
from placekit.solvers.params import LocalSearchParams

ANNEALING = 0.15
"""Share of the rest of the time."""
DEFAULT_S = 60.0
"""Seconds that are divided where there is no time limit."""


class Proof:
    """Shared state of the bounds of a run.

    Parameters
    ----------
    run
        The run; its problem's objective is the makespan.
    keep
        Takes bounds in seconds, their names and certificates; `Run.raise_bound` if None.

    Attributes
    ----------
    tasks
        The tasks of the problem.
    """

    def __init__(self, run: Run, keep: KeepBound | None = None) -> None:
        self.run, self.keep = run, keep or run.raise_bound
        self.tasks = make_tasks(run.problem)

    def seconds(self, share: float) -> float:
        """Return a share of the time that is left."""
        return share * (DEFAULT_S if self.run.remaining_s is None else self.run.remaining_s)

    def anneal(self, share: float = ANNEALING, patience: int = 5, steps: int = 1_000) -> None:
        """Anneal for a moment, since a better schedule narrows the windows."""
        if self._should_stop():
            return
        with self.run.limited_to(None if self.run.remaining_s is None else self.seconds(share)):
            search_makespan(self.run, LocalSearchParams(patience=patience, steps=steps))

    def quickly(self) -> None:
        """Raise the bound without search; for large graphs in a thread, so that a signal need not wait."""
        if self._should_stop():
            return
        found = Future[list[tuple[float, str, CertificateSource]]]()
        objective_s = self.run.objective

        def look() -> None:
            try:
                found.set_result(list(quick_bounds(self.tasks, objective_s)))
            except BaseException as error:  # for whoever asked
                found.set_exception(error)

        if self.tasks.num_ops <= MAX_OPS_REFUTE:
            look()
        elif not run_beside(look, self._should_stop, "quick bounds"):
            return
        for bound in found.result():
            self.keep(*bound)

    def by_cases(self) -> None:
        """Refute limits case by case until the time is up; without a time limit, as long as it is easy."""
        run = self.run
        if not (run.objective and run.bound and self.tasks.num_ops <= MAX_OPS_REFUTE):
            return
        limits, rng = (run.bound, run.objective), np.random.default_rng(run.seed)
        rounds = 1 if run.remaining_s is None else None
        for bound_s in refute_by_cases(self.tasks, *limits, rng, self._should_stop, rounds):
            self.keep(min(bound_s, limits[1]), "cases refuted")

    def _should_stop(self) -> bool:
        return self.run.should_stop() is not None

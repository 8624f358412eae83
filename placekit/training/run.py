"""A planning in progress: the clock, the best plan and the best bound, safe whatever happens to the method."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from placekit.compile_clock import compiling_s
from placekit.errors import JudgeDisagreementError
from placekit.patience import compiles_inline
from placekit.placement import Violation
from placekit.result import SOLVER_TOLERANCE, Incumbent
from placekit.stop import Progress, Stop, StopReason, relative_gap
from placekit.training.evaluate import PlanEvaluation, evaluate_plan
from placekit.training.plan import TrainingPlan
from placekit.training.problem import TrainingProblem

__all__ = ["PlanRun"]


class PlanRun:
    """One planning in progress; the twin of :class:`placekit.method.Run` for plans.

    Parameters
    ----------
    problem
        The problem.
    stop
        When to stop; None for the method's own end.
    seed
        Seed of every random choice.
    on_progress
        Called with the new line whenever the trace grows.
    """

    def __init__(
        self,
        problem: TrainingProblem,
        stop: Stop | None = None,
        seed: int = 0,
        on_progress: Callable[[Incumbent], None] | None = None,
    ) -> None:
        self.problem, self.stop, self.seed = problem, stop, seed
        self.interrupted = threading.Event()
        self.plan: TrainingPlan | None = None
        self.evaluation: PlanEvaluation | None = None
        self.nearest: PlanEvaluation | None = None
        self.bound: float | None = None
        self.bound_name: str | None = None
        self.infeasible_because: tuple[Violation, ...] | None = None
        self.evaluations = 0
        self.trace: list[Incumbent] = []
        self.info: dict[str, Any] = {}
        self._on_progress = on_progress
        self._stale = 0
        self._start, self._compiling_s = perf_counter(), compiling_s()
        self._stands_still = compiles_inline()

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the planning began, which is what limits count; see :mod:`placekit.patience`."""
        return perf_counter() - self._start - (self.compile_s if self._stands_still else 0.0)

    @property
    def compile_s(self) -> float:
        """Wall seconds since then during which kernels were compiled, or waited for."""
        return compiling_s() - self._compiling_s

    @property
    def objective(self) -> float | None:
        """Best objective so far; None while there is no feasible plan."""
        return None if self.evaluation is None else self.evaluation.objective

    @property
    def gap(self) -> float | None:
        """Relative gap so far; None while not known."""
        return relative_gap(self.objective, self.bound)

    def offer(self, plan: TrainingPlan) -> PlanEvaluation:
        """Let the judge score a plan, and keep it if it is feasible and better than the best so far."""
        evaluation = evaluate_plan(self.problem, plan)
        self.evaluations += 1
        self._stale += 1
        if not evaluation.is_feasible or evaluation.objective is None:
            if self.nearest is None or len(evaluation.violations) < len(self.nearest.violations):
                self.nearest = evaluation
        elif self.objective is None or evaluation.objective < self.objective:
            self.plan, self.evaluation, self._stale = plan, evaluation, 0
            self._check_bound()
            self._record()
        return evaluation

    def settle_on(self, plan: TrainingPlan) -> None:
        """Make a feasible plan that is as good as the best the answer, for what the objective does not see."""
        evaluation = self.offer(plan)
        assert evaluation.is_feasible
        self.plan, self.evaluation = plan, evaluation
        self._check_bound()

    def raise_bound(self, bound: float, name: str) -> None:
        """Keep a proven lower bound (seconds) if it is better than the best so far.

        Raises
        ------
        JudgeDisagreementError
            The bound is above an objective that the judge confirmed.
        """
        if self.bound is not None and bound <= self.bound:
            return
        self.bound, self.bound_name = float(bound), name
        self._check_bound()
        self._record()

    def prove_infeasible(self, *violations: Violation) -> StopReason:
        """Record that no plan satisfies the constraints, and why."""
        self.infeasible_because = violations
        return StopReason.PROVED

    def should_stop(self) -> StopReason | None:
        """Return why to stop now, or None to go on. Methods ask between two steps."""
        if self.interrupted.is_set():
            return StopReason.USER
        if self.gap is not None and self.gap <= SOLVER_TOLERANCE:
            return StopReason.PROVED
        if self.stop is None:
            return None
        return self.stop(Progress(self.elapsed_s, self.evaluations, self._stale, self.objective, self.bound))

    def _check_bound(self) -> None:
        if self.bound is None or self.objective is None or self.bound <= self.objective:
            return
        if self.bound - self.objective > SOLVER_TOLERANCE * abs(self.objective):
            raise JudgeDisagreementError(
                f"bound {self.bound!r} s ({self.bound_name}) lies above the achieved objective {self.objective!r} s"
            )
        self.bound = self.objective

    def _record(self) -> None:
        line = Incumbent(self.elapsed_s, self.objective, self.bound)
        self.trace.append(line)
        if self._on_progress is not None:
            self._on_progress(line)

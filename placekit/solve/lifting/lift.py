"""Solving another problem in place of this one: its placements are translated, and its bounds are kept if they hold.

The other problem has no direct links, smaller devices, fixed teams, or a narrower contiguity. A `Lift` says how
placements are translated and whether the other problem is a relaxation; `LiftedRun` does the rest. The method sees only
the other problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from placekit.model.placement import Placement, Violation
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation
from placekit.solve.certificates import Certificate, CertificateSource
from placekit.solve.method import Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import MaxRuntime, Progress, StopReason


def as_it_is(placement: Placement) -> Placement:
    """Return a placement that is the same in both problems."""
    return placement


@dataclass(frozen=True, eq=False)
class Lift:
    """Another problem, with the translation of its placements."""

    problem: Problem
    # translates a placement of the other problem to this one; a violation if that is impossible
    up: Callable[[Placement], Placement | Violation] = as_it_is
    # translates a placement of this problem to the other one; None if that is impossible
    down: Callable[[Placement], Placement | None] = as_it_is
    is_bound: bool = False  # True if the other problem is a relaxation, so that its bounds hold for this one
    names_bound: str = ""  # what is added to the names of such bounds
    certifies: bool = True  # True if a certificate of such a bound is also a certificate for this problem
    is_exact: bool = False  # True if both problems have the same optimum, so that both stop at the same gap


@dataclass(frozen=True)
class Within:
    """Stop criterion of an inner run: its own time limit, or the end of the outer run."""

    run: Run  # the outer run
    seconds: float = math.inf  # time limit of the inner run; infinity for none

    @property
    def time_limit_s(self) -> float | None:
        """Time limit of the inner run; None for none."""
        return None if math.isinf(self.seconds) else self.seconds

    @property
    def gap(self) -> float | None:
        """None, since the gap of the outer run means nothing for the inner one."""
        return None

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return why to stop, or None."""
        if self.time_limit_s is not None and (reason := MaxRuntime(self.seconds)(progress)):
            return reason
        return self.run.should_stop()


class LiftedRun(Run):
    """Run of another problem that passes its placements, and its bounds if they hold, to the run of this problem.

    The other problem is that of `lift`. Without `seconds` all that is left to `outer`, the run of this problem, is the
    time limit; without a `seed` the one of `outer` counts.
    """

    def __init__(self, outer: Run, lift: Lift, seconds: float | None = None, seed: int | None = None) -> None:
        warm_start = None if outer.warm_start is None else lift.down(outer.warm_start)
        within = Within(outer, left_s(outer) if seconds is None else seconds)
        super().__init__(lift.problem, within, outer.seed if seed is None else seed, warm_start)
        self.outer, self.lift = outer, lift
        self.interrupted, self.info = outer.interrupted, outer.info
        start = None if outer.placement is None else lift.down(outer.placement)
        if start is not None:
            self.offer(start)

    @property
    def asked_gap(self) -> float:
        """Gap at which the outer run stops, if both problems have the same optimum; else 0."""
        return self.outer.asked_gap if self.lift.is_exact else 0.0

    def judge(self, answer: Placement) -> Evaluation:
        """Score a placement; one that cannot be translated to the outer problem is infeasible."""
        evaluation, lifted = super().judge(answer), self.lift.up(answer)
        if isinstance(lifted, Placement):
            return evaluation
        return Evaluation(None, evaluation.device_loads, (*evaluation.violations, lifted))

    def keep(self, answer: Placement, at_most: float | None = None) -> Evaluation:
        """Judge a placement here, and offer it to the outer run if it may be the best."""
        evaluation = super().keep(answer, at_most)
        outer, objective = self.outer, evaluation.objective
        may_be_best = objective is not None and (outer.objective is None or objective < outer.objective)
        if outer.evaluation is None or (evaluation.is_feasible and may_be_best):
            lifted = self.lift.up(answer)
            if isinstance(lifted, Placement):
                outer.offer(lifted)
        return evaluation

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Let no limit on evaluations stop what is inside the ``with`` block, neither here nor in the outer run."""
        with super().uncounted(), self.outer.uncounted():
            yield

    def count_evaluations(self, count: int) -> None:
        """Count answers here and in the outer run, whose limits hold."""
        super().count_evaluations(count)
        self.outer.count_evaluations(count)

    def raise_bound(
        self, bound: float, name: str, certificate: CertificateSource = None, *, tolerance: float = SOLVER_TOLERANCE
    ) -> None:
        """Raise the bound here, and in the outer run if the bound holds there."""
        super().raise_bound(bound, name, certificate, tolerance=tolerance)
        if self.lift.is_bound:
            proof = certificate if self.lift.certifies else None
            self.outer.raise_bound(bound, name + self.lift.names_bound, proof, tolerance=tolerance)

    def prove_infeasible(self, *violations: Violation, certificate: Certificate | None = None) -> StopReason:
        """Record that nothing is feasible here, and in the outer run if that follows."""
        if self.lift.is_bound:
            self.outer.prove_infeasible(*violations, certificate=certificate if self.lift.certifies else None)
        return super().prove_infeasible(*violations, certificate=certificate)


def resumed(run: Run, key: str, make: Callable[[], LiftedRun]) -> LiftedRun:
    """Make a run, and give it the placement and the bound of the last run under `key` in ``run.parts``."""
    inner, before = make(), run.parts.get(key)
    if before is not None:
        inner.parts, inner.done = before.parts, before.done
        if before.placement is not None:
            inner.offer(before.placement)
        if before.bound is not None:
            inner.raise_bound(before.bound, before.bound_name or "", before.certificate)
    run.parts[key] = inner
    return inner


def reason_of(run: Run, inner: StopReason) -> StopReason:
    """Translate the reason for which an inner run ended: a proof of the inner problem is no proof of this one."""
    return run.should_stop() or (StopReason.FINISHED if inner is StopReason.PROVED else inner)


def left_s(run: Run) -> float:
    """Return the seconds left to `run`; infinity without a limit."""
    return math.inf if run.remaining_s is None else run.remaining_s

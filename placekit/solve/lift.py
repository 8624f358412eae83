"""Another problem in place of this one: its placements are lifted, and what is proven of it counts where it holds here.

A problem without its direct links, with smaller devices, with teams that are fixed, under a narrower contiguity: a
method solves it as it is, and knows of no other. Whoever makes such a problem says how its placements read here, and
whether it is a relaxation; `LiftedRun` does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from placekit.model.placement import Placement, Violation
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation
from placekit.solve.certificates import Certificate, CertificateSource
from placekit.solve.method import Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import MaxRuntime, Progress, StopReason

__all__ = ["Lift", "LiftedRun", "Within", "as_it_is", "left_s", "reason_of", "resumed"]


def as_it_is(placement: Placement) -> Placement:
    """Return a placement that is the same in both problems."""
    return placement


@dataclass(frozen=True, eq=False)
class Lift:
    """Another problem, and what its answers mean here.

    Parameters
    ----------
    problem
        The other one.
    up
        Returns a placement of it as one of this problem, or what keeps it from being one.
    down
        Returns a placement of this problem as one of it, or None if it is none.
    is_bound
        True if it is a relaxation, so that what is proven of it holds here.
    certifies
        True if a certificate of its bound is one of this problem's, too.
    is_exact
        True if both have the same optimum, so that the gap asked for here is asked for there.
    """

    problem: Problem
    up: Callable[[Placement], Placement | Violation] = as_it_is
    down: Callable[[Placement], Placement | None] = as_it_is
    is_bound: bool = False
    certifies: bool = True
    is_exact: bool = False


@dataclass(frozen=True)
class Within:
    """Stops an inner run after its own seconds, or when the outer run is to stop.

    Parameters
    ----------
    run
        The outer run.
    seconds
        Of the inner run; infinity for no limit of its own.
    """

    run: Run
    seconds: float = math.inf

    @property
    def time_limit_s(self) -> float | None:
        """Seconds of its own; None for no limit."""
        return None if math.isinf(self.seconds) else self.seconds

    @property
    def gap(self) -> float | None:
        """None: the gap of the inner run is not that of the outer one."""
        return None

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return why to stop, or None."""
        if self.time_limit_s is not None and (reason := MaxRuntime(self.seconds)(progress)):
            return reason
        return self.run.should_stop()


class LiftedRun(Run):
    """A run of another problem, which passes on to the run of this one what it finds and, if it holds, proves.

    Parameters
    ----------
    outer
        The run of this problem.
    lift
        The other one.
    seconds
        Of this run; None for all that is left.
    seed
        None for that of `outer`.
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
        """Gap that the outer run asks for, if it means the same here."""
        return self.outer.asked_gap if self.lift.is_exact else 0.0

    def judge(self, answer: Placement) -> Evaluation:
        """Score a placement here; what is none of the outer problem is infeasible."""
        evaluation, lifted = super().judge(answer), self.lift.up(answer)
        if isinstance(lifted, Placement):
            return evaluation
        return Evaluation(None, evaluation.device_loads, (*evaluation.violations, lifted))

    def keep(self, answer: Placement, at_most: float | None = None) -> Evaluation:
        """Judge a placement here, and, if it may be the best, there."""
        evaluation = super().keep(answer, at_most)
        outer, objective = self.outer, evaluation.objective
        may_be_best = objective is not None and (outer.objective is None or objective < outer.objective)
        if outer.evaluation is None or (evaluation.is_feasible and may_be_best):
            lifted = self.lift.up(answer)
            if isinstance(lifted, Placement):
                outer.offer(lifted)
        return evaluation

    def raise_bound(
        self, bound: float, name: str, certificate: CertificateSource = None, *, tolerance: float = SOLVER_TOLERANCE
    ) -> None:
        """Raise the bound here, and there if it holds there."""
        super().raise_bound(bound, name, certificate, tolerance=tolerance)
        if self.lift.is_bound:
            self.outer.raise_bound(bound, name, certificate if self.lift.certifies else None, tolerance=tolerance)

    def prove_infeasible(self, *violations: Violation, certificate: Certificate | None = None) -> StopReason:
        """Record that nothing is feasible here, and there if it holds there."""
        if self.lift.is_bound:
            self.outer.prove_infeasible(*violations, certificate=certificate if self.lift.certifies else None)
        return super().prove_infeasible(*violations, certificate=certificate)


def resumed(run: Run, key: str, make: Callable[[], LiftedRun]) -> LiftedRun:
    """Return the run that `make` makes, with what the last one under this key of ``run.parts`` found and proved."""
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
    """Return why work on `run` ended, from why that on another problem did: its optimum proves a bound at most."""
    return run.should_stop() or (StopReason.FINISHED if inner is StopReason.PROVED else inner)


def left_s(run: Run) -> float:
    """Return the seconds left to `run`; infinity without a limit."""
    return math.inf if run.remaining_s is None else run.remaining_s

"""Method ``bound`` for any objective: the bound that the objective offers."""

from __future__ import annotations

from typing import Protocol

from placekit.model.problem import Problem
from placekit.solve.certificates import CertificateSource
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.greedy import Greedy
from placekit.solvers.generic.pipedream import PipeDream, PipeDreamParams

DEFAULT_TIME_LIMIT_S = 60.0
"""Without a time limit of the caller's."""
MANY_CLASSES = 10_000
"""Classes up to which ``pipedream``, whose time grows with their square, and the first programs take a few seconds."""


def raise_bounds_of_many(run: Run) -> None:
    """Raise the bounds in linear time where the programs, which know more, may not end in time."""
    if run.problem.num_classes > MANY_CLASSES:
        raise_bounds_at_once(run)


class KeepBound(Protocol):
    """Takes bounds in seconds, with their names and, where they have one, their certificates."""

    def __call__(self, bound_s: float, name: str, certificate: CertificateSource = None, /) -> None:
        """Keep a bound."""


def recorded(run: Run) -> KeepBound:
    """Return a function that raises the bound of `run` and lists all bounds in its `info`."""
    proven: dict[str, float] = {}
    run.info["lower_bounds_s"] = proven

    def keep(bound_s: float, name: str, certificate: CertificateSource = None) -> None:
        run.raise_bound(bound_s, name, certificate)
        kept_s = run.bound if run.bound_name == name else None  # the run may round a bound up
        proven[name] = bound_s if kept_s is None else max(bound_s, kept_s)

    return keep


class BoundMethod(Method):
    """Method ``bound``: proves lower bounds, and offers only the placements that it needs to scale them.

    The placements are those of the quick heuristics (every single device, ``greedy``, ``pipedream``). A better
    placement as warm start makes the bounds better, too. All bounds are listed in the result's `info`.
    """

    name = "bound"

    def offer_quickly(self, run: Run) -> None:
        """Offer the placements of the heuristics that are quick; of many ops also the bounds in linear time."""
        offer_single_devices(run)
        raise_bounds_of_many(run)
        Greedy().run(run)
        if run.problem.num_classes <= MANY_CLASSES:
            PipeDream(PipeDreamParams(branches="cut")).run(run)


class QuickBound(BoundMethod):
    """The objective's own quick bound."""

    def supports(self, problem: Problem) -> str | None:
        """Return None if the objective has a bound."""
        if not problem.objective.quick_bound(problem):
            return f"{problem.objective.name} offers no bound"
        return super().supports(problem)

    def run(self, run: Run) -> StopReason:
        """Offer the quick placements, and raise the bound."""
        self.offer_quickly(run)
        recorded(run)(*largest_op(run.problem))
        return run.should_stop() or StopReason.FINISHED

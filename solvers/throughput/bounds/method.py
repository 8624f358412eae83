"""Method ``bound``: proves lower bounds, and offers only the placements that it needs to scale them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from placekit.errors import InvalidProblemError
from placekit.method import Run
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.problem import Problem
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.makespan.mechanisms import Mechanisms
from placekit.solvers.params import read_params
from placekit.solvers.throughput.bounds.portfolio import lower_bounds
from placekit.stop import StopReason

__all__ = ["Bound", "BoundParams"]

DEFAULT_TIME_LIMIT_S = 60.0
"""Without a time limit of the caller's."""


@dataclass(frozen=True, slots=True)
class BoundParams:
    """Parameters of `Bound`.

    Parameters
    ----------
    without
        Mechanisms of the makespan that are switched off, by name and with commas: see
        :class:`placekit.solvers.makespan.mechanisms.Mechanisms`.
    """

    without: str = ""

    def __post_init__(self) -> None:
        Mechanisms.without(self.without)


class Bound:
    """Lower bounds by every means of :mod:`placekit.solvers.throughput.bounds`; the best is the result's.

    The placements are those of the quick heuristics (every single device, ``greedy``, ``pipedream``); give a better
    one as warm start, and the bounds become better, too. All bounds are listed in the result's `info`.
    """

    name: ClassVar[str] = "bound"

    def __init__(self, params: BoundParams | None = None) -> None:
        self.params = params or BoundParams()

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; it takes no argument."""
        if argument:
            raise InvalidProblemError(f"method 'bound' takes no argument; {argument!r} was given")
        return cls(read_params(BoundParams, cls.name, params))

    def supports(self, problem: Problem) -> str | None:
        """Return None for the objectives that have bounds."""
        if isinstance(problem.objective, Throughput | SerialLatency | OffloadLatency | Makespan):
            return None
        return (
            "there are bounds for throughput, serial-latency, offload-latency and makespan, "
            f"not for {problem.objective.name}"
        )

    def run(self, run: Run) -> StopReason:
        """Offer the quick placements, then raise the bound until the time is up or nothing is left to try."""
        from placekit.solvers.generic.greedy import Greedy
        from placekit.solvers.throughput.pipedream import PipeDream, PipeDreamParams

        proven: dict[str, float] = {}
        run.info["lower_bounds_s"] = proven

        def keep(bound_s: float, name: str) -> None:
            proven[name] = bound_s
            run.raise_bound(bound_s, name)

        if isinstance(run.problem.objective, OffloadLatency):
            from placekit.solvers.offload_latency.method import bound_offload

            return bound_offload(run, keep)
        if isinstance(run.problem.objective, Makespan):
            from placekit.solvers.makespan.exact.cp_method import bound_makespan

            return bound_makespan(run, keep, Mechanisms.without(self.params.without))
        offer_single_devices(run)
        Greedy().run(run)
        PipeDream(PipeDreamParams(branches="cut")).run(run)
        limit_s = run.remaining_s
        lower_bounds(
            run.problem,
            time_limit_s=DEFAULT_TIME_LIMIT_S if limit_s is None or math.isinf(limit_s) else limit_s,
            upper_bound_s=run.objective,
            should_stop=lambda: run.should_stop() is not None,
            on_bound=keep,
        )
        return run.should_stop() or StopReason.FINISHED

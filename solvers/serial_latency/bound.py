"""What no placement's serial latency is below: a minimum cut, and the subgraphs that it does not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from placekit.coarsen import Contraction, contract
from placekit.method import Run
from placekit.objectives import SerialLatency
from placekit.problem import Problem
from placekit.solvers.generic.bound import DEFAULT_TIME_LIMIT_S, BoundMethod, recorded
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.serial_latency.decomposition import decomposition_bounds
from placekit.solvers.serial_latency.expansion import best_labels
from placekit.solvers.serial_latency.flow import FLOAT_SLACK
from placekit.solvers.serial_latency.labels import Labels, labels_of
from placekit.solvers.serial_latency.paths import price_paths
from placekit.solvers.serial_latency.subgraphs import fewest_subgraphs
from placekit.stop import StopReason

__all__ = ["SerialLatencyBound", "lower_bounds", "serial_latency_bound", "with_subgraphs"]


def with_subgraphs(contraction: Contraction[SerialLatency], bound_s: float) -> float:
    """Return a lower bound on the serial latency from one on work and transfers, in seconds.

    Either one device runs everything, as one subgraph and for a time that is known; or at least two devices run
    something, and then there are at least two subgraphs, and one for each device that must be used. The smaller of the
    two cases is the bound.
    """
    objective = contraction.problem.objective
    cost_s = objective.subgraph_cost_s
    if not cost_s:
        return bound_s
    fewest = fewest_subgraphs(contraction)
    several = bound_s + max(fewest, 2) * cost_s
    if fewest > 1:
        return several * (1 - FLOAT_SLACK)
    kind = contraction.problem.platform.kind_of_device
    alone = contraction.time_s.sum(axis=(0, 2))[kind][contraction.allowed.all(axis=0)]
    return min(several, float(alone.min(initial=np.inf)) + cost_s) * (1 - FLOAT_SLACK)


def serial_latency_bound(
    problem: Problem[SerialLatency], *, max_rounds: int = 100, should_stop: Callable[[], bool] | None = None
) -> tuple[float, str]:
    """Prove a lower bound on the serial latency of every feasible placement, with its name.

    Memory limits and contiguity are left out, and subgraphs are counted from below (`with_subgraphs`, and along paths:
    :mod:`placekit.solvers.serial_latency.paths`). Without any of the three the bound is the optimum for two kinds; for
    more kinds it is that of :mod:`placekit.solvers.serial_latency.decomposition`.

    Parameters
    ----------
    problem
        A problem with the serial-latency objective. Of one without any feasible placement the bound is meaningless.
    max_rounds
        Rounds of the decomposition at most.
    should_stop
        Asked between two flows; True ends the search with the bound so far.

    Notes
    -----
    One flow for two kinds, more with a cost per subgraph; one per kind and round for more kinds.
    """

    def is_told_to_stop() -> bool:
        return should_stop is not None and should_stop()

    objective = problem.objective
    contraction = contract(problem)
    if not contraction.allowed.any(axis=1).all():
        return 0.0, "minimum cut"
    labels = labels_of(contraction)

    def proven_s(of: Labels) -> float:
        label, cut = best_labels(of, should_stop)
        if cut is not None:
            return cut.bound
        best_s = 0.0
        for bound_s in decomposition_bounds(of, of.value_s(label), max_rounds):
            best_s = max(best_s, bound_s)
            if is_told_to_stop():
                break
        return best_s

    bound_s = with_subgraphs(contraction, proven_s(labels))
    name = "minimum cut" if labels.num_labels <= 2 else "minimum cut per device"
    if objective.subgraph_cost_s and labels.num_labels > 1 and not is_told_to_stop():
        along_s, last = 0.0, None
        for last in price_paths(contraction, labels):
            along_s = max(along_s, last.bound_s)
            if is_told_to_stop():
                break
        if last is not None and last.cut is None:
            along_s = last.bound_of(proven_s(last.labels))
        if along_s > bound_s:
            return along_s, f"{name} and changes along paths"
    return bound_s, name


def lower_bounds(
    problem: Problem[SerialLatency], *, should_stop: Callable[[], bool] | None = None
) -> Iterator[tuple[float, str]]:
    """Yield lower bounds in seconds and their names, the quick one first, until it is time to stop."""
    yield largest_op(problem)
    if should_stop is None or not should_stop():
        yield serial_latency_bound(problem, should_stop=should_stop)


class SerialLatencyBound(BoundMethod):
    """Lower bounds by the fastest device of every op, and by minimum cuts."""

    def run(self, run: Run[SerialLatency]) -> StopReason:
        """Offer the quick placements, then raise the bound."""
        keep = recorded(run)
        self.offer_quickly(run)
        with run.limited_to(DEFAULT_TIME_LIMIT_S if run.remaining_s is None else None):
            for bound_s, name in lower_bounds(run.problem, should_stop=lambda: run.should_stop() is not None):
                keep(bound_s, name)
            return run.should_stop() or StopReason.FINISHED

"""Lower bound of the serial latency: a minimum cut, plus the cost of the fewest subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.objectives import SerialLatency
from placekit.solve.certificates import CertificateSource
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.backends.flow import FLOAT_SLACK
from placekit.solvers.generic.bounds.bound import DEFAULT_TIME_LIMIT_S, BoundMethod, recorded
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.serial_latency.certificates import cut_prices, flow_prices
from placekit.solvers.serial_latency.decomposition import Decomposed, decomposition_bounds
from placekit.solvers.serial_latency.expansion import best_labels
from placekit.solvers.serial_latency.labels import Labels, labels_of
from placekit.solvers.serial_latency.paths import price_paths


def fewest_subgraphs(contraction: Contraction) -> int:
    """Return a number of subgraphs that every feasible placement has: one per device that must be used.

    Classes with one device only use that device; and so many devices are used that their memory suffices.
    """
    platform = contraction.problem.platform
    is_only = contraction.allowed.sum(axis=1) == 1
    forced = int(contraction.allowed[is_only].any(axis=0).sum())
    limits = np.sort(platform.memory_limits_bytes)[::-1]
    # a little less than all bytes: sums are rounded
    need = float(contraction.memory_bytes.sum()) * (1 - 1e-11)
    holding = int(np.searchsorted(np.cumsum(limits), need)) + 1
    return max(forced, min(holding, platform.num_devices), 1)


def with_subgraphs(contraction: Contraction[SerialLatency], bound_s: float) -> float:
    """Turn a lower bound on work and transfers into one on the serial latency, in seconds.

    The bound is the smaller of two cases:

    1. One device runs everything, as one subgraph. Its time is known.
    2. Several devices run ops. Then there are at least two subgraphs, and one for each device that must be used.
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
    # a problem with the serial-latency objective and a feasible placement; otherwise the bound means nothing
    problem: Problem[SerialLatency],
    *,
    max_rounds: int = 100,  # largest number of rounds of the decomposition
    # called between two flows; True ends the search with the bound so far
    should_stop: Callable[[], bool] | None = None,
) -> tuple[float, str, CertificateSource]:
    """Prove a lower bound on the serial latency of every feasible placement; return it with its name and certificate.

    Memory limits and contiguity are ignored. Subgraphs are counted from below, by `with_subgraphs` and along paths
    (:mod:`placekit.solvers.serial_latency.paths`). For two kinds, and without these three, the bound is the optimum.
    For more kinds it is the bound of :mod:`placekit.solvers.serial_latency.decomposition`.

    Notes
    -----
    One flow for two kinds, more with a cost per subgraph; one per kind and round for more kinds.
    """

    def is_told_to_stop() -> bool:
        return should_stop is not None and should_stop()

    objective = problem.objective
    contraction = contract(problem)
    if not contraction.allowed.any(axis=1).all():
        return 0.0, "minimum cut", None
    labels = labels_of(contraction)

    def decomposed(of: Labels, label: NDArray[np.int64]) -> Decomposed | None:
        best = None
        for found in decomposition_bounds(of, of.value_s(label), max_rounds):
            best = found
            if is_told_to_stop():
                break
        return best

    label, cut = best_labels(labels, should_stop)
    floor_s = 0.0
    proof: CertificateSource = None
    if cut is not None:
        floor_s, proof = cut.bound, partial(cut_prices, contraction, labels, cut)
    elif (best := decomposed(labels, label)) is not None:
        floor_s, proof = best.bound_s, partial(flow_prices, contraction, labels, best.flow_s)
    bound_s = with_subgraphs(contraction, floor_s)
    name = "minimum cut" if labels.num_labels <= 2 else "minimum cut per device"
    if not objective.subgraph_cost_s or labels.num_labels == 1 or is_told_to_stop():
        return bound_s, name, proof
    along: tuple[float, CertificateSource] = (0.0, None)
    last = None
    for last in price_paths(contraction, labels):
        if last.bound_s > along[0]:
            along = last.bound_s, partial(last.certificate, contraction)
        if is_told_to_stop():
            break
    if last is not None and last.cut is None and (best := decomposed(last.labels, last.label)) is not None:
        along = last.bound_of(best.bound_s), partial(last.certificate, contraction, best.flow_s)
    if along[0] > bound_s:
        return along[0], f"{name} and changes along paths", along[1]
    return bound_s, name, proof


def lower_bounds(
    problem: Problem[SerialLatency], *, should_stop: Callable[[], bool] | None = None
) -> Iterator[tuple[float, str, CertificateSource]]:
    """Yield lower bounds in seconds with names and certificates, the quick one first."""
    yield (*largest_op(problem), None)
    if should_stop is None or not should_stop():
        yield serial_latency_bound(problem, should_stop=should_stop)


class SerialLatencyBound(BoundMethod):
    """Method that only bounds: by the fastest device of every op, and by minimum cuts."""

    def run(self, run: Run[SerialLatency]) -> StopReason:
        """Offer the quick placements, then raise the bound."""
        keep = recorded(run)
        self.offer_quickly(run)
        with run.limited_to(DEFAULT_TIME_LIMIT_S if run.remaining_s is None else None):
            for found in lower_bounds(run.problem, should_stop=lambda: run.should_stop() is not None):
                keep(*found)
            return run.should_stop() or StopReason.FINISHED

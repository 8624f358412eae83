"""What no placement's serial latency is below: a minimum cut, and the subgraphs that it does not count."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placekit.coarsen import Contraction, contract
from placekit.objectives import SerialLatency
from placekit.problem import Problem
from placekit.solvers.mincut.decomposition import decomposition_bounds
from placekit.solvers.mincut.expansion import expansions
from placekit.solvers.mincut.flow import FLOAT_SLACK, Cut, CutCost
from placekit.solvers.mincut.labels import Labels, labels_of
from placekit.solvers.mincut.subgraphs import fewest_subgraphs

__all__ = ["best_labels", "serial_latency_bound", "with_subgraphs"]


def best_labels(labels: Labels, should_stop: Callable[[], bool] | None = None) -> tuple[np.ndarray, Cut | None]:
    """Return ``[num_classes]`` labels, and the cut that proves them the best if there are at most two labels.

    With more labels they are what alpha-expansion makes of the fastest label of every class.
    """
    if labels.num_labels <= 2:
        second = labels.time_s[:, 1] if labels.num_labels == 2 else np.full(len(labels.time_s), np.inf)
        split = labels.nets(labels.net_time_s.sum(axis=1)) if labels.num_labels == 2 else None
        cut = CutCost(labels.time_s[:, 0], second, split=split).minimise()
        return np.where(cut.is_first, 0, 1), cut
    return expansions(labels, np.argmin(labels.time_s, axis=1), should_stop), None


def with_subgraphs(contraction: Contraction, bound_s: float) -> float:
    """Return a lower bound on the serial latency from one on work and transfers, in seconds.

    Either one device runs everything, as one subgraph and for a time that is known; or at least two devices run
    something, and then there are at least two subgraphs, and one for each device that must be used. The smaller of the
    two cases is the bound.
    """
    objective = contraction.problem.objective
    assert isinstance(objective, SerialLatency)  # callers look first
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
    problem: Problem, *, max_rounds: int = 100, should_stop: Callable[[], bool] | None = None
) -> tuple[float, str]:
    """Prove a lower bound on the serial latency of every feasible placement, with its name.

    Memory limits and contiguity are left out, subgraphs counted as `with_subgraphs` says. Without them the bound is
    the optimum for two kinds; for more it is that of :mod:`placekit.solvers.mincut.decomposition`.

    Parameters
    ----------
    problem
        A problem with the serial-latency objective. Of one without any feasible placement the bound is meaningless.
    max_rounds
        Rounds of the decomposition at most.
    should_stop
        Asked between two rounds; True ends them with the bound so far.

    Notes
    -----
    One flow for two kinds; one per kind and round for more.
    """
    contraction = contract(problem)
    if not contraction.allowed.any(axis=1).all():
        return 0.0, "minimum cut"
    labels = labels_of(contraction)
    label, cut = best_labels(labels, should_stop)
    if cut is not None:
        return with_subgraphs(contraction, cut.bound), "minimum cut"
    bound_s = 0.0
    for found_s in decomposition_bounds(labels, labels.value_s(label), max_rounds):
        bound_s = max(bound_s, found_s)
        if should_stop is not None and should_stop():
            break
    return with_subgraphs(contraction, bound_s), "minimum cut per device"

"""Lower bound of the serial latency from one on work and transfers: the cost of the fewest subgraphs comes on top."""

from __future__ import annotations

import numpy as np

from placekit.objectives import SerialLatency
from placekit.solvers.backends.flow import FLOAT_SLACK
from placekit.solvers.generic.coarsen import Contraction


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

r"""Memory limits of two kinds, by a price on bytes: a proven bound, and placements on the way.

With two labels of different kinds (:mod:`placekit.solvers.serial_latency.labels`) at most one kind can be overfull,
unless the problem is infeasible. Let :math:`M` be the memory of all devices of that kind, and :math:`m(x)` the bytes
that a placement puts there. For every price :math:`\mu \ge 0`,

.. math:: L(\mu) = \min_x \; cost(x) + \mu \, (m(x) - M)

is at most the cost of any placement that fits, because then the second term is not positive. Each value is one minimum
cut, with :math:`\mu m_v` added to the op times of the kind.

Every cut is a line in :math:`\mu` that lies on or above L. The search keeps a rising and a falling line, cuts at the
price where they meet, and replaces one of them by the new line. It ends when the new line is not below that point. L is
piecewise linear, so the search is finite; a few cuts are usual.

References
----------
Fisher, "The Lagrangian relaxation method for solving integer programming problems", Management Science 27(1), 1981;
Gallo, Grigoriadis and Tarjan, "A fast parametric maximum flow algorithm", SIAM J. Computing 18(1), 1989.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.solvers.backends.flow import FLOAT_SLACK, Cut, CutCost
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.serial_latency.labels import Labels

MAX_CUTS = 60
"""Largest number of cuts: a safeguard against rounding."""


class PricedCut(NamedTuple):
    """Labels of classes and a lower bound in seconds, with its proof: a cut, and seconds per byte of each label."""

    label: NDArray[np.int64]
    bound_s: float
    cut: Cut
    memory_price_s: tuple[float, float]


def priced_cuts(
    contraction: Contraction,
    labels: Labels,  # two labels, compared within their kinds only
) -> Iterator[PricedCut]:
    """Yield cuts at a few prices, up to the best price.

    Notes
    -----
    Nothing is yielded if the minimum cut itself fits, or if both labels are of one kind.
    """
    platform = contraction.problem.platform
    kind = platform.kind_of_device[labels.devices]
    if kind[0] == kind[1]:
        return
    size = contraction.memory_bytes
    limit = [float(platform.memory_limits_bytes[platform.kind_of_device == k].sum()) for k in kind]
    split = labels.nets(labels.net_time_s.sum(axis=1))
    free = CutCost(labels.time_s[:, 0], labels.time_s[:, 1], split=split)
    cut = free.minimise()
    held = [float(size[cut.is_first].sum()), float(size[~cut.is_first].sum())]
    overfull = [k for k in (0, 1) if held[k] > limit[k]]
    if not overfull:
        return
    tight = overfull[0]
    most = limit[tight] * (1 + MEMORY_TOLERANCE)  # the judge's sum is rounded, too
    least_held = np.isinf(labels.time_s[:, 1 - tight])
    is_first = least_held if tight == 0 else ~least_held
    rising = cut.value, held[tight] - most
    falling = free.value(is_first), float(size[least_held].sum()) - most
    yield PricedCut(np.where(is_first, 0, 1), cut.bound, cut, (0.0, 0.0))
    for _ in range(MAX_CUTS):
        if rising[1] <= 0 or falling[1] >= 0:
            return  # a cut fits but for rounding, or the ops that must be here do not fit
        price = (falling[0] - rising[0]) / (rising[1] - falling[1])
        height = rising[0] + price * rising[1]
        if price <= 0:
            return
        time_s = labels.time_s.copy()
        time_s[:, tight] += price * size
        cut = CutCost(time_s[:, 0], time_s[:, 1], split=split).minimise()
        on_tight = cut.is_first if tight == 0 else ~cut.is_first
        bound = cut.bound - price * most - 2 * FLOAT_SLACK * price * most
        prices = (float(price), 0.0) if tight == 0 else (0.0, float(price))
        yield PricedCut(np.where(cut.is_first, 0, 1), bound, cut, prices)
        line = free.value(cut.is_first), float(size[on_tight].sum()) - most
        if line[0] + price * line[1] >= height - 1e-9 * abs(height):
            return
        if line[1] > 0:
            rising = line
        else:
            falling = line

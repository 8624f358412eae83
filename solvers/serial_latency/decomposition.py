r"""Lower bound for more than two labels by Lagrangian decomposition: one minimum cut per device.

Work and transfers are a sum over devices. The term of device d depends on the set :math:`S_d` of its classes only:

.. math:: f_d(S) = \sum_{v \in S} t_{vd} + \sum_n c_{nd} \, [S \text{ splits } n]

In a placement every class is in exactly one of the sets. With a price :math:`\lambda_v` of any sign on that rule,

.. math:: L(\lambda) = \sum_v \lambda_v + \sum_d \min_S \Big( f_d(S) - \sum_{v \in S} \lambda_v \Big)

is at most the cost of every placement, because there the prices cancel. Each minimum is one minimum cut. The largest
:math:`L` equals the bound of the linear relaxation with one split variable per net and device. Subgradient steps
approach it: the price of a class rises if no device took the class, and falls if several did (Polyak's rule, with the
objective of a placement as target). Prices start at the fastest time of every class.

References
----------
Zhao, Nagamochi and Ibaraki, "Greedy splitting algorithms for approximating multiway partition problems", Mathematical
Programming 102, 2005 (submodular multiway partition); Polyak, "Minimization of unsmooth functionals", 1969.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.backends.flow import FLOAT_SLACK, CutCost
from placekit.solvers.serial_latency.labels import Labels

PATIENCE = 3
"""Rounds without a better bound after which the steps are halved."""
SMALLEST_STEP = 0.02
"""Share of Polyak's step at which the search ends."""


class Decomposed(NamedTuple):
    """Lower bound on work and transfers in seconds, with its proof: ``[pins, labels]`` flows into the nets."""

    bound_s: float
    flow_s: NDArray[np.float64]


def decomposition_bounds(
    labels: Labels,
    target_s: float,  # work and transfers of a placement
    max_rounds: int = 200,  # largest number of rounds
) -> Iterator[Decomposed]:
    """Yield increasing lower bounds on work and transfers.

    Notes
    -----
    One flow per label and round.
    """
    price = labels.time_s.min(axis=1)
    is_only = np.isfinite(labels.time_s).sum(axis=1) == 1
    splits = [labels.nets(labels.net_time_s[:, k]) for k in range(labels.num_labels)]
    best, share, idle = -np.inf, 1.0, 0
    for _ in range(max_rounds):
        taken, flows = np.zeros(len(price)), []
        bound = float(price.sum()) - FLOAT_SLACK * float(np.abs(price).sum())
        for k, split in enumerate(splits):
            able = np.isfinite(labels.time_s[:, k])
            second = np.where(is_only & able, np.inf, 0.0)
            cut = CutCost(labels.time_s[:, k] - price, second, split=split).minimise()
            bound += cut.bound
            flows.append(cut.pin_flow)
            taken += cut.is_first
        if bound > best:
            best, idle = bound, 0
            yield Decomposed(bound, np.stack(flows, axis=1))
        else:
            idle += 1
        missing = 1.0 - taken
        distance = float((missing**2).sum())
        if idle >= PATIENCE:
            share, idle = share / 2, 0
        if distance == 0 or share < SMALLEST_STEP or best >= target_s:
            return  # distance 0: every class is in one set, so the sets are an optimal placement
        price = price + share * max(target_s - bound, 0.0) / distance * missing

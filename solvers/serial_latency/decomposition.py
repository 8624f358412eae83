r"""More than two labels: a lower bound that takes the devices apart, one minimum cut each.

Work and transfers are a sum over the devices, each a function of the set :math:`S_d` of its classes only:

.. math:: f_d(S) = \sum_{v \in S} t_{vd} + \sum_n c_{nd} \, [S \text{ splits } n]

and a placement is sets that hold every class exactly once. With a price :math:`\lambda_v` of any sign for that,

.. math:: L(\lambda) = \sum_v \lambda_v + \sum_d \min_S \Big( f_d(S) - \sum_{v \in S} \lambda_v \Big)

is at most the cost of every placement, for which the prices cancel. Each minimum is one minimum cut. The largest
:math:`L` equals the bound of the linear relaxation with one split variable per net and device; it is approached by
subgradient steps: the price of a class rises if no device took it and falls if several did (Polyak's rule with the
objective of a placement as target). It starts at the fastest time of every class, where L is their sum.

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

from placekit.solvers.serial_latency.flow import FLOAT_SLACK, CutCost
from placekit.solvers.serial_latency.labels import Labels

__all__ = ["Decomposed", "decomposition_bounds"]

PATIENCE = 3
"""Rounds without a better bound after which the steps are halved."""
SMALLEST_STEP = 0.02
"""Share of Polyak's step below which no more comes of it."""


class Decomposed(NamedTuple):
    """A lower bound on work and transfers in seconds, and its proof: ``[pins, labels]`` flows into the nets."""

    bound_s: float
    flow_s: NDArray[np.float64]


def decomposition_bounds(labels: Labels, target_s: float, max_rounds: int = 200) -> Iterator[Decomposed]:
    """Yield lower bounds on work and transfers, each better than those before.

    Parameters
    ----------
    labels
        The costs.
    target_s
        Work and transfers of a placement.
    max_rounds
        Rounds at most.

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
            return  # every class is held once: the sets are an optimal placement
        price = price + share * max(target_s - bound, 0.0) / distance * missing

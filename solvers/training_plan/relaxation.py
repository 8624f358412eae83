r"""Lagrange multipliers for the choices of a stage, summed over ideals.

A stage fits into S seconds and M bytes only if for every price :math:`\lambda \ge 0` of a second

.. math:: \sum_v \min_c \bigl( a_c y + b_c + \lambda p_c \bigr) \le M + \lambda S .

The left side is a difference of sums over two ideals. So a few prices refute most stages in constant time, without a
knapsack. Sums exist for a grid of numbers y of microbatches in flight; a smaller y gives a bound for a larger one.

Devices are bounded in the same way. A stage with degrees d and t before D replicas holds at least :math:`(D + d) / d`
microbatches. Multiply its memory and time constraints by d, and use :math:`d \ge 1` in the terms without D:

.. math:: \sum_v \bigl( a_v (D + 1) + b_v + \lambda p_v \bigr) \le d \, (M + \lambda T),

So all layers before D replicas need at least :math:`\sum_v \min_{t, c} t \, (a_c (D + 1) + b_c + \lambda p_c) /
(M + \lambda T)` devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.training_plan.tables import Ideals, Tables

NUM_PRICES, FEWER_PRICES, MANY_IDEALS = 8, 4, 30_000
"""Prices per degree and row, the first is 0; the sums of eight prices fill one cache line."""
EVERY_ROW, STEP = 16, 1.2
"""Largest number of microbatches in flight up to which every number has a row, and the ratio of later rows."""


class Relaxation(NamedTuple):
    """Sums over ideals at prices of a second. T tensor degrees, R rows, Q prices, I ideals."""

    row_of: NDArray[np.int64]  # row by number in flight
    prices: NDArray[np.float64]  # ``[T, R, Q]``
    totals: NDArray[np.float64]  # ``[T, R, I, Q]``
    rounding: NDArray[np.float64]  # ``[T, R, Q]`` what a difference of two totals loses
    # ``[R, I, Q]`` sums of the least of any degree, times the degree, at the prices of the first degree
    shared: NDArray[np.float64]
    lightest: NDArray[np.float64]  # ``[T, R, I]`` least bytes: the totals of price 0, close together


def relax(tables: Tables, ideals: Ideals, most_in_flight: int) -> Relaxation:
    """Return the sums for up to `most_in_flight` microbatches. O(degrees * rows * ideals * layers) once."""
    grid = list(range(1, min(EVERY_ROW, most_in_flight) + 1))
    while grid[-1] < most_in_flight:
        grid.append(min(most_in_flight, int(grid[-1] * STEP) + 1))
    row_of = np.searchsorted(grid, np.arange(most_in_flight + 1), side="right") - 1
    num_prices = NUM_PRICES if len(ideals.size) <= MANY_IDEALS else FEWER_PRICES
    num_degrees, num_layers = len(tables.tensor_degrees), tables.num_layers
    prices = np.zeros((num_degrees, len(grid), num_prices))
    totals = np.zeros((num_degrees, len(grid), len(ideals.size), num_prices))
    members = ideals.members(num_layers)
    shared = np.full((len(grid), num_layers, num_prices), np.inf)
    for ti in range(num_degrees):
        starts = tables.choice_offsets[ti * num_layers : (ti + 1) * num_layers + 1]
        rows = slice(int(starts[0]), int(starts[-1]))
        first, counts = starts[:-1] - starts[0], np.diff(starts)
        time_s, a, b = tables.time_s[rows], tables.memory_a[rows], tables.memory_b[rows]
        for r, in_flight in enumerate(grid):
            held = a * in_flight + b
            prices[ti, r] = _prices(time_s, held, first, counts, num_prices)
            least = np.minimum.reduceat(held[:, None] + prices[ti, r] * time_s[:, None], first, axis=0)
            totals[ti, r] = members @ least
            least = np.minimum.reduceat(held[:, None] + prices[0, r] * time_s[:, None], first, axis=0)
            shared[r] = np.minimum(shared[r], int(tables.tensor_degrees[ti]) * least)
    rounding, lightest = 1e-13 * totals[:, :, -1], np.ascontiguousarray(totals[..., 0])
    row_of = np.maximum(row_of, 0).astype(np.int64)
    return Relaxation(row_of, prices, totals, rounding, members @ shared, lightest)


def _prices(
    time_s: NDArray[np.float64],
    held: NDArray[np.float64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    num_prices: int,
) -> NDArray[np.float64]:
    """Return ``[Q]`` 0 and quantiles of the bytes that choices save per second beyond the fastest choice."""
    fastest = np.repeat(first, counts)
    slower = time_s - time_s[fastest]
    saved = held[fastest] - held
    trades = (slower > 0) & (saved > 0)
    found = np.zeros(num_prices)
    if trades.any():
        ratio, weight = saved[trades] / slower[trades], slower[trades]
        by_ratio = np.argsort(ratio)
        passed = np.cumsum(weight[by_ratio])
        wanted = (np.arange(num_prices - 1) + 0.5) / (num_prices - 1) * passed[-1]
        found[1:] = ratio[by_ratio][np.searchsorted(passed, wanted)]
    return found

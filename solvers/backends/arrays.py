"""A linear or integer program in flat arrays, and what multipliers prove of it without any solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

EPSILON = float(np.finfo(np.float64).eps)
MOST_COEFFICIENT = 1e7
"""Largest coefficient that HiGHS's tolerances bear: with 1e-7 of a row, and 1e-6 of a whole number, it can hide 10."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A program ``min cost . x + offset`` with ``row_low <= A x <= row_high`` and ``low <= x <= high``."""

    # cost, low, high: ``[num_columns]``
    cost: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    is_integer: NDArray[np.bool_]  # ``[num_columns]``
    matrix: csr_array  # ``[num_rows, num_columns]``
    # row_low, row_high: ``[num_rows]``
    row_low: NDArray[np.float64]
    row_high: NDArray[np.float64]
    offset: float = 0.0  # constant of the objective

    @cached_property
    def columns(self) -> tuple[csr_array, csr_array, int]:
        """The transposed matrix, its absolute values, and the most entries of a column."""
        transposed = self.matrix.T.tocsr()
        return transposed, abs(transposed), int(np.diff(transposed.indptr).max(initial=0))

    def without_small(self, share: float) -> Arrays:
        """Return a relaxation without the coefficients that are smaller than this share of their row's largest.

        What they add to a row is replaced by the least, on the other side by the most, that it can be in the boxes.
        """
        matrix = self.matrix
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        size = np.abs(matrix.data)
        largest = np.zeros(matrix.shape[0])
        np.maximum.at(largest, row, size)
        ends = np.stack([self.low[matrix.indices], self.high[matrix.indices]]) * matrix.data
        is_small = (size < share * largest[row]) & np.isfinite(ends).all(axis=0)
        if not is_small.any():
            return self
        row_low, row_high = self.row_low.copy(), self.row_high.copy()
        np.subtract.at(row_high, row[is_small], ends[:, is_small].min(axis=0))
        np.subtract.at(row_low, row[is_small], ends[:, is_small].max(axis=0))
        entries = matrix.data[~is_small], matrix.indices[~is_small]
        kept = np.concatenate([[0], np.cumsum(np.bincount(row[~is_small], minlength=matrix.shape[0]))])
        fewer = csr_array((*entries, kept), shape=matrix.shape)
        return replace(self, matrix=fewer, row_low=row_low, row_high=row_high)


def weak_bound(
    arrays: Arrays,
    row_dual: NDArray[np.float64],  # ``[num_rows]`` multipliers; positive ones are of lower sides
    # low, high: ``[num_columns]`` boxes, at least as narrow as the program's
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    *,
    # True to prove that there is no solution: costs count as 0, and a result above 0 is the proof
    is_ray: bool = False,
) -> float:
    r"""Return the bound that multipliers prove in floating point; minus infinity if they prove nothing.

    .. math:: \sum_i y_i b_i + \sum_j \min_{l_j \le x_j \le u_j} (c - A^T y)_j x_j

    where :math:`b_i` is the side of row i that the sign of :math:`y_i` asks for (weak duality), and what the floating
    point sum may be off by is taken off. A multiplier of a side that a row does not have is left out. The offset does
    not count.
    """
    y = np.where(np.isfinite(row_dual), row_dual, 0.0)
    side = np.where(y > 0, arrays.row_low, arrays.row_high)
    y = np.where(np.isfinite(side), y, 0.0)
    side = np.where(y != 0, side, 0.0)
    cost = np.zeros_like(arrays.cost) if is_ray else arrays.cost
    transposed, sizes, most_terms = arrays.columns
    reduced = cost - transposed @ y
    # every sum of n terms is off by n roundings of its largest partial sum, at most
    off = (4 + most_terms) * EPSILON * (np.abs(cost) + sizes @ np.abs(y))
    # with an infinite box only a reduced cost of the right sign for sure proves anything
    least = np.where(reduced - off >= 0, low, np.where(reduced + off <= 0, high, np.nan))
    unsure = np.isnan(least)
    widest = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):
        parts = np.where(unsure, -np.maximum(np.abs(reduced), off) * widest, reduced * least)
        parts = np.where(unsure & (np.minimum(low, high) >= 0), np.minimum((reduced - off) * high, 0.0), parts)
        error = off * np.where(unsure, 0.0, np.abs(least))
    zero = (reduced == 0) & (off == 0)
    parts, error = np.where(zero, 0.0, parts), np.where(zero, 0.0, error)
    parts = np.concatenate([y * side, parts])
    if not (np.isfinite(parts).all() and np.isfinite(error).all()):
        return -math.inf
    slack = float(error.sum()) * (1 + 1e-6) + 4 * EPSILON * float(np.abs(parts).sum())
    return math.nextafter(math.fsum(parts.tolist()) - slack, -math.inf)


def too_wide(coefficients: NDArray[np.float64]) -> str | None:
    """Return why HiGHS's tolerances do not bear a program's coefficients, so that its word is none; None if they do."""
    most = float(np.abs(coefficients).max(initial=0.0))
    if most <= MOST_COEFFICIENT:
        return None
    return f"a coefficient of {most:.0e}: the solver's tolerances bear {MOST_COEFFICIENT:.0e}"

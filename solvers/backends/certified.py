r"""Branch and bound whose bounds hold in floating point: no integer solver is trusted, and no linear one either.

Integer solvers lose optima now and then: HiGHS 1.13 calls optimal what is not in about one of two thousand programs of
a few columns, with its presolve and without, at coefficients between 1 and 100. So a program that is small enough is
proven here instead:

1. The linear relaxation of a node is solved by HiGHS's simplex method. Its multipliers y, whatever they are, prove

   .. math:: \sum_i y_i b_i + \sum_j \min_{l_j \le x_j \le u_j} (c - A^T y)_j x_j

   where :math:`b_i` is the side of row i that the sign of :math:`y_i` asks for (weak duality), and what the floating
   point sum may be off by is taken off. A multiplier of a side that a row does not have is left out.
2. A node without solutions is closed if the ray that HiGHS gives proves it in the same way, with costs of 0.
3. Otherwise the node is divided by its most fractional integer variable. What proves nothing keeps its parent's bound.

The least bound of the open nodes is the program's at any time.

References
----------
Neumaier, Shcherbina, "Safe bounds in linear and mixed-integer linear programming", Mathematical Programming 99, 2004.
Cook, Koch, Steffy, Wolter, "A hybrid branch-and-bound approach for exact rational mixed-integer programming",
Mathematical Programming Computation 5, 2013.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["MAX_INTEGERS", "Arrays", "Certified", "branch_and_bound", "weak_bound"]

MAX_INTEGERS = 64
"""Integer variables up to which a program is proven here, and nowhere else."""
MAX_NODES = 20_000
"""Nodes of a tree: tens of seconds."""
INTEGRAL = 1e-9
"""Distance from a whole number that is none: there is nothing to divide by."""
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Arrays:
    """A program ``min cost . x`` with ``row_low <= A x <= row_high`` and ``low <= x <= high``.

    Parameters
    ----------
    cost, low, high
        ``[num_columns]``.
    is_integer
        ``[num_columns]``.
    matrix
        ``[num_rows, num_columns]``.
    row_low, row_high
        ``[num_rows]``.
    """

    cost: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    is_integer: NDArray[np.bool_]
    matrix: csr_array
    row_low: NDArray[np.float64]
    row_high: NDArray[np.float64]

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

    @classmethod
    def of_highs(cls, lp: Any) -> Arrays:
        """Return the arrays of a model that HiGHS holds (``Highs.getLp()``)."""
        matrix = lp.a_matrix_
        entries = np.array(matrix.value_), np.array(matrix.index_), np.array(matrix.start_)
        shape = (lp.num_row_, lp.num_col_)
        is_rowwise = "Row" in str(matrix.format_)
        rows = csr_array(entries, shape=shape) if is_rowwise else csr_array(entries, shape=shape[::-1]).T.tocsr()
        kinds = [str(kind).endswith("kInteger") for kind in lp.integrality_] or [False] * lp.num_col_
        return cls(
            np.array(lp.col_cost_),
            np.array(lp.col_lower_),
            np.array(lp.col_upper_),
            np.array(kinds, dtype=bool),
            rows,
            np.array(lp.row_lower_),
            np.array(lp.row_upper_),
        )


def weak_bound(
    arrays: Arrays,
    row_dual: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    *,
    is_ray: bool = False,
) -> float:
    """Return the bound that multipliers prove in floating point; minus infinity if they prove nothing.

    Parameters
    ----------
    arrays
        The program.
    row_dual
        ``[num_rows]`` multipliers; positive ones are of lower sides.
    low, high
        ``[num_columns]`` boxes, at least as narrow as the program's.
    is_ray
        True to prove that there is no solution: costs count as 0, and a result above 0 is the proof.
    """
    y = np.where(np.isfinite(row_dual), row_dual, 0.0)
    side = np.where(y > 0, arrays.row_low, arrays.row_high)
    y = np.where(np.isfinite(side), y, 0.0)
    side = np.where(y != 0, side, 0.0)
    cost = np.zeros_like(arrays.cost) if is_ray else arrays.cost
    transposed = arrays.matrix.T
    reduced = cost - transposed @ y
    # every sum of n terms is off by n roundings of its largest partial sum, at most
    num_terms = 4 + int(np.diff(transposed.tocsr().indptr).max(initial=0))
    off = num_terms * EPSILON * (np.abs(cost) + abs(transposed) @ np.abs(y))
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


@dataclass(frozen=True, slots=True)
class Certified:
    """What a tree proves.

    Parameters
    ----------
    bound
        No solution has an objective below; infinity if there is no solution.
    is_done
        True if the tree was searched to its end: the bound is the target or more, or the optimum.
    column
        ``[num_columns]`` the best solution of a relaxation that was integral; None if there was none. It keeps the
        rows within HiGHS's tolerances only.
    objective
        Its objective.
    """

    bound: float
    is_done: bool
    column: NDArray[np.float64] | None = None
    objective: float = math.inf


def branch_and_bound(
    arrays: Arrays,
    target: float = math.inf,
    time_limit_s: float = math.inf,
    should_stop: Callable[[], bool] = lambda: False,
    max_nodes: int = MAX_NODES,
) -> Certified:
    """Return a bound that holds.

    Parameters
    ----------
    arrays
        The program; its variables with a cost should have finite boxes.
    target
        A bound above which nothing need be known; infinity to prove that there is no solution.
    time_limit_s
        Seconds.
    should_stop
        Asked at every node.
    max_nodes
        Nodes at most.

    Notes
    -----
    Exponential in the number of integer variables, a fraction of a millisecond a node.
    """
    tree = _Tree(arrays)
    low, high = arrays.low.copy(), arrays.high.copy()
    low[arrays.is_integer] = np.ceil(low[arrays.is_integer])
    high[arrays.is_integer] = np.floor(high[arrays.is_integer])
    ends_s = perf_counter() + time_limit_s
    number, settled = 0, math.inf
    heap: list[tuple[float, int, NDArray[np.float64], NDArray[np.float64]]] = [(-math.inf, 0, low, high)]
    while heap:
        bound, _, low, high = heap[0]
        if bound >= min(target, settled):
            return Certified(min(bound, settled), True, tree.column, tree.objective)
        if number >= max_nodes or perf_counter() >= ends_s or should_stop():
            return Certified(min(bound, settled), False, tree.column, tree.objective)
        heapq.heappop(heap)
        number += 1
        found, branch, at = tree.solve(low, high)
        bound = max(bound, found)
        if bound == math.inf:
            continue
        if branch < 0:
            settled = min(settled, bound)
            continue
        for side in (0, 1):
            child_low, child_high = low.copy(), high.copy()
            (child_high if side == 0 else child_low)[branch] = at if side == 0 else at + 1
            heapq.heappush(heap, (bound, 2 * number + side, child_low, child_high))
    return Certified(settled, True, tree.column, tree.objective)


class _Tree:
    """The linear relaxation, kept in HiGHS from node to node."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.highspy = highspy = import_module("highspy")
        self.highs = highs = highspy.Highs()
        # without presolve the simplex method starts from the basis of the node before
        for option, value in (("output_flag", False), ("presolve", "off"), ("dual_feasibility_tolerance", 1e-9)):
            highs.setOptionValue(option, value)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(arrays.cost), len(arrays.row_low)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = arrays.cost, arrays.low, arrays.high
        lp.row_lower_, lp.row_upper_ = arrays.row_low, arrays.row_high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
        lp.a_matrix_.start_ = arrays.matrix.indptr.astype(np.int32)
        lp.a_matrix_.index_ = arrays.matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = arrays.matrix.data
        highs.passModel(lp)
        self.column: NDArray[np.float64] | None = None
        self.objective = math.inf
        self.integers = np.flatnonzero(arrays.is_integer)
        self.columns = np.arange(len(arrays.cost), dtype=np.int32)

    def solve(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[float, int, float]:
        """Return a node's bound, the integer variable to divide by (-1: none), and its largest value below."""
        arrays, highs = self.arrays, self.highs
        if (low > high).any():
            return math.inf, -1, 0.0
        highs.changeColsBounds(len(self.columns), self.columns, low, high)
        highs.run()
        states, status = self.highspy.HighsModelStatus, highs.getModelStatus()
        if status == states.kOptimal:
            solution = highs.getSolution()
            bound = weak_bound(arrays, np.array(solution.row_dual), low, high)
            value = np.clip(np.array(solution.col_value)[self.integers], low[self.integers], high[self.integers])
            distance = np.abs(value - np.round(value))
            if len(distance) and distance.max() > INTEGRAL:
                at = int(np.argmax(distance))
                return bound, int(self.integers[at]), math.floor(value[at])
            if highs.getObjectiveValue() < self.objective:
                self.objective, self.column = highs.getObjectiveValue(), np.array(solution.col_value)
            return bound, -1, 0.0
        if status == states.kInfeasible:
            _, has_ray, ray = highs.getDualRay()
            if has_ray:
                for sign in (1.0, -1.0):
                    if weak_bound(arrays, sign * np.array(ray), low, high, is_ray=True) > 0:
                        return math.inf, -1, 0.0
        free = self.integers[low[self.integers] < high[self.integers]]
        if not len(free):
            return -math.inf, -1, 0.0
        return -math.inf, int(free[0]), math.floor((low[free[0]] + high[free[0]]) / 2)

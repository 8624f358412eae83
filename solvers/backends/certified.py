r"""Branch and bound whose bounds hold in floating point: no integer solver is trusted, and no linear one either.

Integer solvers lose optima now and then: HiGHS 1.13 calls optimal what is not in about one of two thousand programs of
a few columns, with its presolve and without, at coefficients between 1 and 100. So a program that is small enough is
proven here instead:

1. The linear relaxation of a node is solved by HiGHS's simplex method. Its multipliers, whatever they are, prove a
   bound (:func:`~placekit.solvers.backends.arrays.weak_bound`).
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
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.backends.arrays import Arrays, weak_bound
from placekit.solvers.backends.highs import Highs

MAX_INTEGERS = 64
"""Integer variables up to which a program is proven here, and nowhere else."""
MAX_NODES = 20_000
"""Nodes of a tree: tens of seconds."""
INTEGRAL = 1e-9
"""Distance from a whole number that is none: there is nothing to divide by."""


@dataclass(frozen=True, slots=True)
class Certified:
    """Proof of a branch-and-bound tree."""

    bound: float  # no solution has an objective below; infinity if there is no solution
    is_done: bool  # True if the tree was searched to its end: the bound is the target or more, or the optimum
    # ``[num_columns]`` the best solution of a relaxation that was integral; None if there was none. It keeps the rows
    # within HiGHS's tolerances only.
    column: NDArray[np.float64] | None = None
    objective: float = math.inf  # its objective


def branch_and_bound(
    arrays: Arrays,  # the program; its variables with a cost should have finite boxes. Its offset does not count.
    target: float = math.inf,  # a bound above which nothing need be known; infinity to prove that there is no solution
    time_limit_s: float = math.inf,  # seconds
    should_stop: Callable[[], bool] = lambda: False,  # asked at every node
    max_nodes: int = MAX_NODES,  # nodes at most
) -> Certified:
    """Return a bound that holds.

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
        relaxed = replace(arrays, is_integer=np.zeros_like(arrays.is_integer), offset=0.0)
        # without presolve the simplex method starts from the basis of the node before
        self.highs = Highs(relaxed, presolve="off", dual_feasibility_tolerance=1e-9)
        self.column: NDArray[np.float64] | None = None
        self.objective = math.inf
        self.integers = np.flatnonzero(arrays.is_integer)

    def solve(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[float, int, float]:
        """Return a node's bound, the integer variable to divide by (-1: none), and its largest value below."""
        arrays, highs = self.arrays, self.highs
        if (low > high).any():
            return math.inf, -1, 0.0
        highs.change_boxes(low, high)
        highs.run_here()
        if highs.status == "kOptimal":
            bound = weak_bound(arrays, highs.row_dual, low, high)
            column = highs.column
            value = np.clip(column[self.integers], low[self.integers], high[self.integers])
            distance = np.abs(value - np.round(value))
            if len(distance) and distance.max() > INTEGRAL:
                at = int(np.argmax(distance))
                return bound, int(self.integers[at]), math.floor(value[at])
            if highs.objective < self.objective:
                self.objective, self.column = highs.objective, column
            return bound, -1, 0.0
        if highs.status == "kInfeasible" and (ray := highs.dual_ray) is not None:
            for sign in (1.0, -1.0):
                if weak_bound(arrays, sign * ray, low, high, is_ray=True) > 0:
                    return math.inf, -1, 0.0
        free = self.integers[low[self.integers] < high[self.integers]]
        if not len(free):
            return -math.inf, -1, 0.0
        return -math.inf, int(free[0]), math.floor((low[free[0]] + high[free[0]]) / 2)

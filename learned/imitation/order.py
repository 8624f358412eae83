"""Makespans in one order more than those that cost no search: that of the starts that the policy expects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.makespan.orders import BestOrder
from placekit.placement import Placement
from placekit.problem import Problem

__all__ = ["ExpectedOrder"]


class ExpectedOrder:
    """Scores placements in the best of three orders.

    Parameters
    ----------
    problem
        The problem.
    others
        Scores in the two orders that cost no search.
    start
        ``[num_ops]`` priority of every op, smaller first.
    """

    def __init__(self, problem: Problem, others: BestOrder, start: NDArray[np.float64]) -> None:
        self.start = np.ascontiguousarray(start)
        self._problem, self._others = problem, others

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices."""
        expected = [self._others.timeline(row, self.start).makespan_s for row in placements]
        return np.minimum(self._others(placements), expected)

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement with the order that it was scored in."""
        expected = self._others.timeline(device_of_op, self.start)
        if float(self._others(device_of_op[None])[0]) <= expected.makespan_s:
            return self._others.placement(device_of_op)
        return Placement.of(self._problem, device_of_op, expected.step_of_op)

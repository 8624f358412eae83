"""Makespans in more orders than those that cost no search: that of the expected starts, and those that were planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.learned.planned_order import PlannedOrder
from placekit.objectives.makespan.orders import BestOrder
from placekit.objectives.makespan.simulate import Timeline

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.objectives import Makespan

__all__ = ["ExpectedOrder"]


class ExpectedOrder(PlannedOrder):
    """Scores placements in the best of three orders, and in those that somebody planned for them.

    Parameters
    ----------
    problem
        The problem.
    others
        Scores in the two orders that cost no search.
    start
        ``[num_ops]`` priority of every op, smaller first.
    """

    def __init__(self, problem: Problem[Makespan], others: BestOrder, start: NDArray[np.float64]) -> None:
        super().__init__(problem, others)
        self.start = np.ascontiguousarray(start)

    def _run(self, device_of_op: NDArray[np.int64]) -> Timeline:
        expected = self._others.timeline(device_of_op, self.start)
        planned = super()._run(device_of_op)
        return expected if planned is None or expected.makespan_s <= planned.makespan_s else planned

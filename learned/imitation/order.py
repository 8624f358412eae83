"""Makespans in more orders than those that cost no search: that of the expected starts, and those that were planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.makespan.instance import instance_of
from placekit.makespan.orders import BestOrder
from placekit.makespan.simulate import Timeline, simulate_steps
from placekit.placement import Placement

if TYPE_CHECKING:
    from placekit.objectives import Makespan
    from placekit.problem import Problem

__all__ = ["ExpectedOrder"]


class ExpectedOrder:
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
        self.start = np.ascontiguousarray(start)
        self._problem, self._others = problem, others
        self._planned: dict[bytes, Timeline] = {}

    def plan(self, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64]) -> None:
        """Score a placement ``[num_ops]`` in an order ``[num_ops]`` of its own as well, from now on."""
        contention = self._problem.objective.contention
        run = simulate_steps(instance_of(self._problem), device_of_op, step_of_op, has_contention=contention)
        if isinstance(run, int):  # its devices wait for each other
            return
        before = self._planned.get(device_of_op.tobytes())
        if before is None or run.makespan_s < before.makespan_s:
            self._planned[device_of_op.tobytes()] = run

    def _best_run(self, device_of_op: NDArray[np.int64]) -> Timeline:
        expected = self._others.timeline(device_of_op, self.start)
        planned = self._planned.get(device_of_op.tobytes())
        return expected if planned is None or expected.makespan_s <= planned.makespan_s else planned

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices."""
        runs = [self._best_run(row).makespan_s for row in placements]
        return np.minimum(self._others(placements), runs)

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement with the order that it was scored in."""
        run = self._best_run(device_of_op)
        if float(self._others(device_of_op[None])[0]) <= run.makespan_s:
            return self._others.placement(device_of_op)
        return Placement.of(self._problem, device_of_op, run.step_of_op)

"""Rewards of learners: the objective of many placements at once, for every execution model.

It is what `evaluate` computes, up to the rounding of sums; the judge itself is its twin in the tests. Makespans are
those of the better of two orders (:mod:`placekit.objectives.makespan.orders`), and of an order that a learner planned.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.orders import BestOrder
from placekit.objectives.makespan.simulate import Timeline, simulate_steps
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from placekit.objectives import Makespan


class RewardStopped(Exception):  # noqa: N818  # it says that a training is over, not that something is wrong
    """A reward that takes long was told to stop in the middle of a batch.

    Parameters
    ----------
    reason
        Why.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(f"stopped: {reason}")
        self.reason = reason


class Reward(Protocol):
    """Reward of placements: a simulated or a measured time.

    The learners minimise it; measured times come in through the same door as the judge's.
    """

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds ``[batch]`` of `placements`, infinity for one that cannot be executed.

        Parameters
        ----------
        placements
            ``[batch, num_ops]`` device indices; support, pins, colocation, memory and contiguity all hold.

        Raises
        ------
        RewardStopped
            It takes long, and was told to stop before the batch was done.
        """
        ...


class PlannedOrder:
    """Scores placements in the better of two orders that cost no search, and in those that were planned for them.

    Parameters
    ----------
    problem
        The problem.
    others
        Scores in the two orders.
    """

    def __init__(self, problem: Problem[Makespan], others: BestOrder) -> None:
        self._problem, self._others = problem, others
        self._planned: dict[bytes, Timeline] = {}

    def plan(self, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64]) -> float:
        """Score a placement ``[num_ops]`` in an order ``[num_ops]`` of its own as well, from now on.

        Returns
        -------
        float
            The makespan in that order, seconds; infinity if devices wait for each other.
        """
        contention = self._problem.objective.contention
        run = simulate_steps(instance_of(self._problem), device_of_op, step_of_op, has_contention=contention)
        if isinstance(run, int):  # its devices wait for each other
            return math.inf
        before = self._planned.get(device_of_op.tobytes())
        if before is None or run.makespan_s < before.makespan_s:
            self._planned[device_of_op.tobytes()] = run
        return run.makespan_s

    def steps(self, device_of_op: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the order ``[num_ops]`` that was planned for a placement; None if there is none."""
        run = self._planned.get(device_of_op.tobytes())
        return None if run is None else run.step_of_op

    def forget_all_but(self, device_of_op: NDArray[np.int64] | None) -> None:
        """Forget every order but that of a placement: a training plans one for each of a million samples."""
        key = None if device_of_op is None else device_of_op.tobytes()
        self._planned = {row: run for row, run in self._planned.items() if row == key}

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices."""
        runs = [self._run(row) for row in np.asarray(placements)]
        planned_s = np.array([np.inf if run is None else run.makespan_s for run in runs])
        best_s: NDArray[np.float64] = np.minimum(self._others(placements), planned_s)
        return best_s

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement with the order that it was scored in."""
        run = self._run(device_of_op)
        if run is None or float(self._others(device_of_op[None])[0]) <= run.makespan_s:
            return self._others.placement(device_of_op)
        return Placement.of(self._problem, device_of_op, run.step_of_op)

    def _run(self, device_of_op: NDArray[np.int64]) -> Timeline | None:
        """Return the best run in an order beside the two."""
        return self._planned.get(device_of_op.tobytes())


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

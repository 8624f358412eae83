"""Rewards of learners: the objective of many placements at once, for every execution model.

It is what `evaluate` computes, up to the rounding of sums; the judge itself is its twin in the tests. Makespans are
those of the better of two orders (:mod:`placekit.objectives.makespan.orders`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import BatchScore
from placekit.solve.stop import StopReason

__all__ = ["Reward", "RewardStopped", "judge_reward"]


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


def judge_reward(problem: Problem) -> BatchScore:
    """Return the judge of `problem` for batches: the objective's own, if it has one, or one placement at a time.

    Serial latency, throughput and makespan run compiled, thousands of placements a second on graphs of a thousand ops.
    """
    return problem.objective.batch_score(problem) or _OneByOne(problem)


@dataclass(frozen=True)
class _OneByOne:
    problem: Problem

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._seconds(row) for row in placements])

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        return Placement.of(self.problem, device_of_op)

    def _seconds(self, device_of_op: NDArray[np.int64]) -> float:
        score = self.problem.objective.score(self.problem, device_of_op)
        return math.inf if score.violations else score.objective_s

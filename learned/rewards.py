"""Batched judges: the objective of many placements at once, for every execution model.

Each of them computes what `evaluate` computes, up to the rounding of sums; the judge itself is their twin in the tests.
Makespans are those of the better of two orders (:mod:`placekit.makespan.orders`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.learned.kernels import batch_loads, batch_subgraphs
from placekit.makespan.instance import instance_of
from placekit.makespan.orders import BestOrder
from placekit.objectives import Makespan, SerialLatency, Throughput
from placekit.problem import Problem
from placekit.stop import StopReason

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
    """What placements are worth: a simulated or a measured time.

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


def judge_reward(problem: Problem) -> Reward:
    """Return the judge of `problem` for batches.

    Serial latency, throughput and makespan run compiled, thousands of placements a second on graphs of a thousand ops.
    Any other objective is scored one placement at a time.
    """
    objective = problem.objective
    if isinstance(objective, SerialLatency):
        return _serial_latency(problem, objective)
    if isinstance(objective, Throughput):
        return _throughput(problem, objective)
    if isinstance(objective, Makespan):
        return BestOrder(problem)
    return _one_by_one(problem)


def _loads(problem: Problem, is_split: bool) -> Callable[[NDArray[np.int64]], list[NDArray[np.float64]]]:
    """Return a function from placements to work and transfers ``[batch, passes, num_devices]``."""
    instance = instance_of(problem)
    backward = problem.graph.is_backward & is_split
    pass_of_op, num_passes = backward.astype(np.int64), 1 + int(backward.any())

    def loads(placements: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        work, moved = np.zeros((2, len(placements), num_passes, problem.platform.num_devices))
        batch_loads(instance, pass_of_op, placements, work, moved)
        return [work, moved]

    return loads


def _serial_latency(problem: Problem, objective: SerialLatency) -> Reward:
    loads, instance = _loads(problem, is_split=False), instance_of(problem)

    def reward(placements: NDArray[np.int64]) -> NDArray[np.float64]:
        work, moved = loads(placements)
        total: NDArray[np.float64] = (work + moved).sum(axis=(1, 2))
        if objective.subgraph_cost_s:
            count = np.empty(len(placements), dtype=np.int64)
            batch_subgraphs(instance, placements, count)
            total += objective.subgraph_cost_s * count
        return total

    return reward


def _throughput(problem: Problem, objective: Throughput) -> Reward:
    loads = _loads(problem, is_split=objective.schedule == "gpipe")

    def reward(placements: NDArray[np.int64]) -> NDArray[np.float64]:
        work, moved = loads(placements)
        load = np.maximum(work, moved) if objective.overlap else work + moved
        slowest: NDArray[np.float64] = load.max(axis=2).sum(axis=1)
        return slowest

    return reward


def _one_by_one(problem: Problem) -> Reward:
    def one(device_of_op: NDArray[np.int64]) -> float:
        score = problem.objective.score(problem, device_of_op)
        return math.inf if score.violations else score.objective_s

    def reward(placements: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([one(row) for row in placements])

    return reward

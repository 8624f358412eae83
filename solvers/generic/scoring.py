"""Scores of many placements of a contracted problem, whatever its objective."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import BatchScore
from placekit.solvers.generic.coarsen import Contraction


def batch_score_of(problem: Problem) -> BatchScore:
    """Return what scores many placements of `problem`: the objective's own batches, or one placement at a time.

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


class Scorer:
    """Scores placements of classes by the objective's batches if it has them, else one by one.

    Support, pins, memory and the execution model count; contiguity does not.
    """

    def __init__(self, contraction: Contraction) -> None:
        problem = contraction.problem
        self._contraction = contraction
        self._limit_bytes = problem.platform.memory_limits_bytes
        self._batch = batch_score_of(problem)

    def __call__(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_classes]`` devices, infinity for what is not feasible."""
        contraction = self._contraction
        fits = contraction.allowed[np.arange(contraction.num_classes), devices].all(axis=1)
        for d in np.flatnonzero(np.isfinite(self._limit_bytes)).tolist():
            fits &= (devices == d) @ contraction.memory_bytes <= self._limit_bytes[d]
        problem = contraction.problem
        pools = [(problem.platform.members_of(pool), pool.most_bytes) for pool in problem.tight_pools]
        for members, most in pools:
            fits &= np.isin(devices, members) @ contraction.memory_bytes <= most
        if pools or problem.has_tight_blocks:
            fits = np.array(fits)
            for row in np.flatnonzero(fits).tolist():
                use = problem.stage_memory.use(contraction.expand(devices[row]), len(self._limit_bytes))
                fits[row] = (use.total <= self._limit_bytes).all()
                fits[row] &= all(use.total[members].sum() <= most for members, most in pools)
        values = np.full(len(devices), np.inf)
        rows = contraction.expand(devices[fits].T).T
        if len(rows):
            values[fits] = self._batch(np.ascontiguousarray(rows))
        return values

    def placement(self, device_of_class: NDArray[np.int64]) -> Placement:
        """Return the placement that was scored."""
        contraction = self._contraction
        device_of_op = contraction.expand(device_of_class)
        if contraction.allowed[np.arange(len(device_of_class)), device_of_class].all():
            return self._batch.placement(device_of_op)
        return Placement.of(contraction.problem, device_of_op)

"""Scores of many placements of a contracted problem, whatever its objective."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.objectives import BatchScore
from placekit.solvers.generic.coarsen import Contraction


class Scorer:
    """Scores placements of classes by the objective's batches if it has them, else one by one.

    Support, pins, memory and the execution model count; contiguity does not.

    Parameters
    ----------
    contraction
        The contracted problem.
    """

    def __init__(self, contraction: Contraction) -> None:
        problem = contraction.problem
        self._contraction = contraction
        self._limit_bytes = problem.platform.memory_limits_bytes
        self._batch: BatchScore | None = problem.objective.batch_score(problem)

    def __call__(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_classes]`` devices, infinity for what is not feasible."""
        contraction = self._contraction
        fits = contraction.allowed[np.arange(contraction.num_classes), devices].all(axis=1)
        for d in np.flatnonzero(np.isfinite(self._limit_bytes)).tolist():
            fits &= (devices == d) @ contraction.memory_bytes <= self._limit_bytes[d]
        problem = contraction.problem
        if problem.has_tight_blocks:
            fits = np.array(fits)
            for row in np.flatnonzero(fits).tolist():
                use = problem.stage_memory.use(contraction.expand(devices[row]), len(self._limit_bytes))
                fits[row] = (use.total <= self._limit_bytes).all()
        values = np.full(len(devices), np.inf)
        rows = contraction.expand(devices[fits].T).T
        if self._batch is None:
            values[fits] = [self._one(row) for row in rows]
        elif len(rows):
            values[fits] = self._batch(np.ascontiguousarray(rows))
        return values

    def _one(self, device_of_op: NDArray[np.int64]) -> float:
        score = self._contraction.problem.objective.score(self._contraction.problem, device_of_op)
        return math.inf if score.violations else score.objective_s

    def placement(self, device_of_class: NDArray[np.int64]) -> Placement:
        """Return the placement that was scored."""
        device_of_op = self._contraction.expand(device_of_class)
        if self._batch is not None and bool(
            self._contraction.allowed[np.arange(len(device_of_class)), device_of_class].all()
        ):
            return self._batch.placement(device_of_op)
        return Placement.of(self._contraction.problem, device_of_op)

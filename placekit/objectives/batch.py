"""Batched scores of the objectives whose loads are sums: serial latency and throughput."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.batch_kernels import batch_loads, batch_subgraphs
from placekit.objectives.makespan.instance import instance_of


def _loads(
    problem: Problem, placements: NDArray[np.int64], *, is_split: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return work and transfers ``[batch, passes, num_devices]``."""
    backward = problem.graph.is_backward & is_split
    work, moved = np.zeros((2, len(placements), 1 + int(backward.any()), problem.platform.num_devices))
    sender_pays = problem.objective.direct_ends == 2
    batch_loads(instance_of(problem), backward.astype(np.int64), placements, sender_pays, work, moved)
    return work, moved


@dataclass(frozen=True)
class SerialLatencyBatch:
    """Sums of loads and subgraphs."""

    problem: Problem
    subgraph_cost_s: float

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices."""
        work, moved = _loads(self.problem, placements, is_split=False)
        total: NDArray[np.float64] = (work + moved).sum(axis=(1, 2))
        if self.subgraph_cost_s:
            count = np.empty(len(placements), dtype=np.int64)
            batch_subgraphs(instance_of(self.problem), placements, count)
            total += self.subgraph_cost_s * count
        return total

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement: the model has no order to choose."""
        return Placement.of(self.problem, device_of_op)


@dataclass(frozen=True)
class ThroughputBatch:
    """Largest loads, of every pass."""

    problem: Problem
    is_split: bool
    """True if forward and backward pass have loads of their own."""
    overlap: bool
    """True if a load is the larger of work and transfers."""

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices."""
        work, moved = _loads(self.problem, placements, is_split=self.is_split)
        load = np.maximum(work, moved) if self.overlap else work + moved
        slowest: NDArray[np.float64] = load.max(axis=2).sum(axis=1)
        return slowest

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement: the model has no order to choose."""
        return Placement.of(self.problem, device_of_op)

r"""Steady-state pipeline throughput: the largest device load.

Samples stream through the devices; in the steady state a new one finishes every :math:`\max_d load(d)` seconds.
For a device :math:`d` of kind :math:`k` that holds the ops :math:`S`,

.. math:: load(d) = \sum_{v \in S} t_{v,k} + \sum_{u \in \partial S} c_{u,k}

where :math:`\partial S` are the tensors with one end in :math:`S` and one outside, each counted once however many
edges carry it. With `overlap` the sum of the two terms becomes their maximum. In a training graph the forward and the
backward pass have loads of their own: under the 1F1B schedule of PipeDream a device does both for every sample,
:math:`\max_d (fw(d) + bw(d))`; under GPipe all forward passes come first,
:math:`\max_d fw(d) + \max_d bw(d)`. A tensor belongs to the pass of the op that produces it.

References
----------
Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device Placement of DNN Graph
Operators", NeurIPS 2020, arXiv 2006.16423, sections 3 and 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.contiguity import Contiguity
from placekit.errors import InvalidProblemError
from placekit.graph import sum_by
from placekit.objectives.base import BatchScore, Loads, Objective, Score, device_transfers, fastest_class_s

if TYPE_CHECKING:
    from placekit.problem import Problem

__all__ = ["Throughput"]

_SCHEDULES = ("1f1b", "gpipe")


@dataclass(frozen=True, slots=True)
class Throughput(Objective):
    """Minimise the largest device load, the time per sample of a steady pipeline.

    Parameters
    ----------
    overlap
        True if a device computes and transfers at the same time: its load is the larger of the two, not their sum.
    schedule
        Training schedule: ``"1f1b"`` (PipeDream, max of forward + backward) or ``"gpipe"`` (max forward + max
        backward). Without backward ops the two agree.
    """

    name: ClassVar[str] = "throughput"
    summary: ClassVar[str] = "time per sample of a steady pipeline: the largest device load"

    merges_free_leaves: ClassVar[bool] = True
    has_pipeline: ClassVar[bool] = True

    overlap: bool = False
    schedule: Literal["1f1b", "gpipe"] = "1f1b"

    def __post_init__(self) -> None:
        if self.schedule not in _SCHEDULES:
            raise InvalidProblemError(f"throughput: schedule is {self.schedule!r}; it must be one of {_SCHEDULES}")

    @property
    def default_contiguity(self) -> Contiguity:
        """`Contiguity.ACYCLIC`: what a runnable pipeline needs."""
        return Contiguity.ACYCLIC

    def score(
        self,
        problem: Problem,
        device_of_op: NDArray[np.int64],
        step_of_op: NDArray[np.int64] | None = None,  # noqa: ARG002  # the model has no clock
    ) -> Score:
        """Score a placement; see the module docstring for the formula. O(ops + edges log edges)."""
        graph, platform = problem.graph, problem.platform
        times = problem.costs.op_time_s[np.arange(graph.num_ops), platform.kind_of_device[device_of_op]]
        passes = [np.zeros(graph.num_ops, dtype=bool)]
        if self.schedule == "gpipe" and graph.is_backward.any():
            passes = [graph.is_backward, ~graph.is_backward]
        compute = np.zeros(platform.num_devices)
        transfer, load = compute.copy(), compute.copy()
        objective = 0.0
        for excluded in passes:
            work = sum_by(device_of_op, times * ~excluded, platform.num_devices)
            moved = device_transfers(problem, device_of_op, ~excluded[graph.tensor_producer])
            of_pass = np.maximum(work, moved) if self.overlap else work + moved
            compute, transfer, load = compute + work, transfer + moved, load + of_pass
            objective += float(of_pass.max())
        return Score(objective, compute, transfer, load)

    def constants_s(self) -> tuple[float, ...]:
        """Return nothing: only times are added up."""
        return ()

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:
        """Bound by the largest class: the load of its device contains it, under GPipe and with overlap too."""
        return float(fastest_class_s(problem).max(initial=0.0)) * (1 - 1e-12), "largest op"  # one rounding per addition

    def batch_score(self, problem: Problem) -> BatchScore:
        """Return the compiled form for batches."""
        from placekit.objectives.batch import ThroughputBatch

        return ThroughputBatch(problem, self)

    def loads(self, problem: Problem) -> Loads:
        """Return that the largest load counts, under GPipe that of every pass."""
        has_passes = self.schedule == "gpipe" and bool(problem.graph.is_backward.any())
        return Loads(has_passes=has_passes, has_overlap=self.overlap)

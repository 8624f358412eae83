r"""Serial latency: one sample through a runtime that executes subgraphs one after another.

This is what OpenVINO HETERO does for one request. The time of a sample is

.. math:: \sum_v t_{v,k(v)} + \sum_d \sum_{u \in \partial S_d} c_{u,k(d)} + a \cdot \#subgraphs

with the transfer terms of :mod:`placekit.objectives.throughput` (a tensor leaves its device at most once and enters
every other device at most once; over a direct link it goes once to every receiver, whose load that is part of) and a
fixed cost :math:`a` per subgraph. The subgraphs are the distinct pairs (level, device), where the level of an op is the
largest number of device changes on a path that leads to it: this split is acyclic for every placement, so it can always
be executed.

For two kinds and :math:`a = 0` the optimum is a minimum s-t cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.model.errors import InvalidProblemError
from placekit.objectives.base import BatchScore, Loads, Objective, Score, device_transfers, fastest_class_s

if TYPE_CHECKING:
    from placekit.model.graph import OpGraph
    from placekit.model.problem import Problem


def subgraph_levels(graph: OpGraph, device_of_op: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[num_ops]`` largest number of device changes on a path that ends in each op. O(ops + edges)."""
    level = [0] * graph.num_ops
    device = device_of_op.tolist()
    for u, v in graph.ordered_edges:
        level[v] = max(level[v], level[u] + (device[u] != device[v]))
    return np.array(level, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SerialLatency(Objective):
    """Minimise the time of one sample when subgraphs run one after another.

    Parameters
    ----------
    subgraph_cost_s
        Fixed cost of every subgraph, in seconds.
    """

    name: ClassVar[str] = "serial-latency"
    summary: ClassVar[str] = "time of one sample when subgraphs run one after another (OpenVINO HETERO)"

    direct_ends: ClassVar[int] = 1

    subgraph_cost_s: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.subgraph_cost_s) and self.subgraph_cost_s >= 0):
            raise InvalidProblemError(
                f"serial-latency: subgraph_cost_s is {self.subgraph_cost_s}; it must be finite and >= 0"
            )

    def score(
        self,
        problem: Problem,
        device_of_op: NDArray[np.int64],
        step_of_op: NDArray[np.int64] | None = None,  # noqa: ARG002  # the model has no clock
    ) -> Score:
        """Score a placement; see the module docstring for the formula. O(ops + edges log edges)."""
        graph, platform = problem.graph, problem.platform
        times = problem.costs.op_time_s[np.arange(graph.num_ops), platform.kind_of_device[device_of_op]]
        compute = sum_by(device_of_op, times, platform.num_devices)
        transfer = device_transfers(problem, device_of_op)
        load = compute + transfer
        if self.subgraph_cost_s:
            levels = subgraph_levels(graph, device_of_op)
            subgraphs = np.unique(levels * platform.num_devices + device_of_op)
            load = load + self.subgraph_cost_s * np.bincount(
                subgraphs % platform.num_devices, minlength=platform.num_devices
            )
        return Score(float(load.sum()), compute, transfer, load)

    def constants_s(self) -> tuple[float, ...]:
        """Return the cost of a subgraph."""
        return (self.subgraph_cost_s,)

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:
        """Bound by the work that cannot be divided: every class on its fastest kind, one after the other."""
        return float(fastest_class_s(problem).sum()) * (
            1 - 1e-12
        ), "fastest device for every op"  # one rounding per addition

    def batch_score(self, problem: Problem) -> BatchScore:
        """Return the compiled form for batches."""
        from placekit.objectives.batch import SerialLatencyBatch

        return SerialLatencyBatch(problem, self.subgraph_cost_s)

    def loads(self, problem: Problem) -> Loads:  # noqa: ARG002  # the same for every problem
        """Return that all loads and subgraphs are added up."""
        return Loads(is_total=True, subgraph_cost_s=self.subgraph_cost_s)

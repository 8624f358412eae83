"""Systems that cannot say which cores a process may use: everything works with all of them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import placekit as pk
from placekit.machine import num_usable_cpus, usable_cpus


def test_without_affinity_all_cpus_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS and Windows have no ``sched_getaffinity``."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cpus() == list(range(os.cpu_count() or 1))
    assert num_usable_cpus() >= 1


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("ilp", pk.Throughput()),
        ("cpsat", pk.Throughput()),
        ("bound", pk.Throughput()),
        ("mincut", pk.SerialLatency(subgraph_cost_s=1e-3)),
    ],
)
def test_methods_that_ask_for_cores_work_without_affinity(
    method: str, objective: pk.Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objective and bound are those that the methods give where the system can say."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    times = np.array([[3.0, 1.0], [1.0, 3.0], [3.0, 1.0]])
    costs = pk.CostTable(("cpu", "gpu"), times, np.full((2, 2), 0.1), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1), costs, objective, contiguity=pk.Contiguity.NONE)
    expected = pk.solve(problem, method, stop=pk.MaxRuntime(20))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    result = pk.solve(problem, method, stop=pk.MaxRuntime(20))
    assert (result.objective, result.lower_bound) == pytest.approx((expected.objective, expected.lower_bound))

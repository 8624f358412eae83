"""Graphs unlike the public ones: what went wrong on them once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from limits import SOON_S

import placekit as pk
from placekit.objectives import OffloadLatency, Throughput
from placekit.solvers.throughput.bounds.bottleneck import bottleneck


def chain(memory_bytes: list[float], *, num_acc: int, limit_bytes: float) -> pk.Problem:
    """Return a chain of ops of one second on accelerators with a memory limit, without a CPU."""
    names = [f"o{i}" for i in range(len(memory_bytes))]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)), name="chain")
    costs = pk.CostTable(("acc",), np.ones((len(names), 1)), np.ones((graph.num_tensors, 1)), np.array(memory_bytes))
    return pk.Problem(graph, pk.Platform.of(acc=num_acc, memory_bytes={"acc": limit_bytes}), costs)


@pytest.mark.parametrize("method", ["dp", "auto"])
def test_bug_series_program_without_any_plan_ends(method: str) -> None:
    """Sizes that fill the devices to the byte and cannot be packed: there is no plan to walk back through."""
    problem = chain([7, 7, 7, 5, 5, 5, 4, 4, 4, 4], num_acc=4, limit_bytes=13).replace(
        objective=OffloadLatency(), contiguity=pk.Contiguity.NONE
    )
    result = pk.solve(problem, method, stop=pk.MaxRuntime(1))
    assert result.placement is None
    assert result.runtime_s < SOON_S


def test_bug_presolve_cuts_off_the_optimum() -> None:
    """HiGHS's probing and its enumeration both turned this program's optimum of 0 into 50, and the bound into 0.5."""
    names = [f"o{i}" for i in range(6)]
    readers = {0: [2, 4], 1: [3, 4, 5], 3: [5]}
    graph = pk.OpGraph.from_edges(names, [(names[u], names[v]) for u, each in readers.items() for v in each])
    op_time_s, transfer_time_s = np.zeros((6, 3)), np.zeros((3, 3))
    op_time_s[[1, 3, 4, 5], [1, 0, 1, 0]] = 1.0
    transfer_time_s[[0, 1, 2], [2, 1, 1]] = 1.0
    supported = np.ones((6, 3), dtype=bool)
    supported[[0, 1, 4], [2, 0, 2]] = False
    costs = pk.CostTable(
        ("k0", "k1", "k2"), op_time_s, transfer_time_s, np.array([2.5, 0.1, 0.1, 1.0, 0.1, 0.0]), supported=supported
    )
    platform = pk.Platform.of(k0=1, k1=2, k2=1, host=("k0", "k1", "k2"), memory_bytes={"k0": 3.9, "k1": 0.6})
    problem = pk.Problem(graph, platform, costs, Throughput(overlap=True))
    best = pk.evaluate(problem, pk.Placement.of(problem, [0, 3, 0, 3, 0, 3]))
    assert best.is_feasible
    assert best.objective == 0.0
    assert not bottleneck(problem, upper_bound_s=1.0)[0]

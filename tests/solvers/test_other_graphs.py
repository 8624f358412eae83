"""Graphs unlike the public ones: what went wrong on them once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import placekit as pk
from placekit.objectives import OffloadLatency


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
    result = pk.solve(problem, method, stop=pk.MaxRuntime(10))
    assert result.placement is None
    assert result.runtime_s < 60

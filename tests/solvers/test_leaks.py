"""Many solves in one process: what one needed is given back."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import placekit as pk


def _problem(objective: pk.Objective) -> pk.Problem:
    rng = np.random.default_rng(0)
    edges = sorted({(f"o{rng.integers(max(0, i - width), i)}", f"o{i}") for i in range(2, 24) for width in (3, 8)})
    graph = pk.OpGraph.from_edges([f"o{i}" for i in range(24)], edges)
    times = np.stack([rng.uniform(1e-4, 1e-3, 24), rng.uniform(5e-4, 4e-3, 24)], axis=1)
    transfers = np.stack([rng.uniform(1e-5, 5e-4, graph.num_tensors), np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("gpu", "cpu"), times, transfers, np.ones(24))
    return pk.Problem(graph, pk.Platform.of(gpu=2, cpu=1, host="cpu"), costs, objective)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "method"), [(pk.Throughput(), "ilp"), (pk.Throughput(), "dp"), (pk.OffloadLatency(), "ilp")]
)
def test_no_run_outlives_its_solve(objective: pk.Objective, method: str) -> None:
    """Native callbacks and caches are where a run, with all its arrays and programs, can be held for ever."""
    problem, before = _problem(objective), _num_alive()  # other tests may keep theirs
    counts = []
    for _ in range(2):
        pk.solve(problem, method, stop=pk.MaxRuntime(0.1))
        counts.append(_num_alive() - before)
    assert max(counts) <= 2, counts  # the last run may still be in a frame or an error


def _num_alive() -> int:
    gc.collect()
    names = {"Run", "LpProblem", "Highs", "Instance"}
    return sum(type(each).__name__ in names for each in gc.get_objects())

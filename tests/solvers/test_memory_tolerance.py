"""Memory limits a hair beside a sum of ops: every method takes what the judge takes, no more and no less."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import brute_force

import placekit as pk

HAIRS = [-2.5e-12, -1.1e-12, -1e-12, -0.9e-12, 0.0]
"""Limits beside a sum of ops, relative: the judge's tolerance is 1e-12."""


def chain(op_bytes: list[float], op_time_s: list[list[float]], platform: pk.Platform) -> pk.Problem:
    """Return a chain of ops under the serial latency, with a cost per subgraph."""
    count = len(op_bytes)
    graph = pk.OpGraph(
        name="chain",
        op_names=tuple(f"o{i}" for i in range(count)),
        op_types=("Op",) * count,
        tensor_producer=np.arange(count - 1),
        consumer_offsets=np.arange(count),
        consumers=np.arange(1, count),
        tensor_bytes=np.ones(count - 1),
    )
    transfers = np.full((count - 1, len(platform.kinds)), 0.25)
    costs = pk.CostTable(platform.kinds, np.array(op_time_s), transfers, np.array(op_bytes))
    return pk.Problem(graph, platform, costs, pk.SerialLatency(subgraph_cost_s=0.1), contiguity=pk.Contiguity.NONE)


def assert_proven(problem: pk.Problem, method: str) -> None:
    """Check that a method proves what exhaustive search finds, in a few seconds of solving."""
    best = brute_force(problem)
    assert best is not None
    result = pk.solve(problem, method, stop=pk.MaxIterations(2000))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("method", ["mincut", "ilp", "cpsat"])
@pytest.mark.parametrize("hair", HAIRS)
def test_a_limit_a_hair_beside_a_sum_is_decided(method: str, hair: float) -> None:
    """A program whose rows take what the judge refuses learns it, and ends."""
    platform = pk.Platform.of(a=3, memory_bytes={"a": 6e9 * (1 + hair)})
    assert_proven(chain([1e9, 1e9, 2e9, 2e9], [[1.0], [2.0], [1.5], [3.0]], platform), method)


@pytest.mark.parametrize("method", ["mincut", "ilp", "cpsat"])
def test_only_what_the_judge_refuses_is_closed(method: str) -> None:
    """Of two full devices one is over its limit within the judge's tolerance, the other beyond it."""
    limits = {"a": 4e9 * (1 - 0.5e-12), "b": 6e9 * (1 - 3e-12)}
    platform = pk.Platform.of(a=1, b=1, c=1, memory_bytes=limits)
    times = [[1.0, 9.0, 9.0], [1.0, 9.0, 9.0], [9.0, 1.0, 4.0], [9.0, 1.0, 5.0]]
    assert_proven(chain([2e9, 2e9, 3e9, 3e9], times, platform), method)

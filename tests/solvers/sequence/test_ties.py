"""The last stage of ``auto``: among equal placements the one with more free memory, less transfer, fewer devices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import placekit as pk
from placekit.objectives import Objective
from placekit.solve.method import Run
from placekit.solvers.sequence.ties import settle_ties

OBJECTIVES = [pk.SerialLatency(), pk.Throughput(), pk.Makespan(), pk.OffloadLatency()]


def two_diamonds(objective: Objective, limit: float | None) -> pk.Problem:
    """Return two diamonds of four ops of 1 byte, one after the other, on two cards and free links."""
    names = [f"op{i}" for i in range(8)]
    pairs = [(a, b) for base in (0, 4) for a, b in ((base, base + 1), (base, base + 2), (base + 1, base + 3))]
    pairs += [(2, 3), (6, 7), (3, 4)]
    graph = pk.OpGraph.from_edges(names, [(names[a], names[b]) for a, b in sorted(pairs)])
    costs = pk.CostTable(("gpu",), np.ones((8, 1)), np.zeros((graph.num_tensors, 1)), np.ones(8))
    platform = pk.Platform.of(gpu=2, memory_bytes={"gpu": limit} if limit else None)
    return pk.Problem(graph, platform, costs, objective, pk.Contiguity.NONE)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("limit", [None, 10.0])
def test_no_placement_of_the_same_objective_fills_a_card_less(objective: Objective, limit: float | None) -> None:
    """With limits the fullest card is as empty as in the best of all placements, and the objective is the optimum."""
    problem = two_diamonds(objective, limit)
    result = pk.solve(problem)
    assert result.placement is not None
    assert result.status is pk.Status.OPTIMAL
    assert pk.evaluate(problem, result.placement).objective == result.objective
    counts = np.bincount(result.placement.device_of_op, minlength=2)
    if limit is not None:
        every = (np.array(device) for device in itertools.product((0, 1), repeat=8))
        equal = [d for d in every if pk.evaluate(problem, pk.Placement.of(problem, d)).objective == result.objective]
        assert counts.max() == min(np.bincount(d, minlength=2).max() for d in equal)
    elif isinstance(objective, pk.SerialLatency):
        assert counts.min() == 0  # one card is enough


def test_the_objective_is_held() -> None:
    """A start that is better than what has more free memory stays."""
    problem = two_diamonds(pk.SerialLatency(), 10.0)
    slow = problem.costs.replace(transfer_time_s=np.ones((problem.graph.num_tensors, 1)))
    run = Run(problem.replace(costs=slow))
    run.offer(np.zeros(8, dtype=np.int64))
    settle_ties(run)
    assert run.objective == 8.0
    assert run.placement is not None
    assert set(run.placement.device_of_op.tolist()) == {0}

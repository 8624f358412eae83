"""Annealing of the excess: what breaks a contiguity is counted right, and what can be placed is placed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S
from planted import planted
from strategies import ALL, examples, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.objectives import Objective
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.generic.excess import excess, room_of

SOON = pk.MaxRuntime(SOON_S) | pk.MaxIterations(10**8)


@examples(200)
@given(problems(), st.integers(0, 2**31))
def test_a_placement_without_breaks_keeps_the_contiguity(problem: pk.Problem, seed: int) -> None:
    """As the judge has it, for random placements."""
    contraction = contract(problem)
    room = room_of(contraction)
    num_devices = problem.platform.num_devices
    device = np.random.default_rng(seed).integers(0, num_devices, contraction.num_classes)
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, contraction.expand(device)))
    is_broken = any(violation.constraint == "contiguity" for violation in evaluation.violations)
    roomy = room._replace(limit_bytes=np.full(num_devices, np.inf))
    assert (excess(roomy, device) > 0) == is_broken


CASES = [
    (objective, contiguity)
    for objective in (pk.Throughput(), pk.Throughput(teams="any"), pk.SerialLatency())
    for contiguity in Contiguity
]


@pytest.mark.parametrize(("objective", "contiguity"), [*CASES, (pk.Makespan(), Contiguity.NONE)], ids=str)
def test_local_search_finds_what_was_planted(objective: Objective, contiguity: Contiguity) -> None:
    """With memory for the planted placement and no byte more, or a hair more for ops of many sizes on many devices."""
    for seed in range(4) if ALL else (1, 2):
        num_devices = 3 + seed // 2
        spare = 0.005 if seed == 2 else 0.0
        problem = planted(seed, objective, contiguity, num_ops=20 + 6 * seed, num_devices=num_devices, spare=spare)
        result = pk.solve(problem, "local-search", stop=SOON, seed=seed, params={"max_cycles": 1})
        assert result.objective is not None, problem.name


def test_teams_of_equal_devices_are_found_too() -> None:
    """39 ops of 89 bytes on three devices with room for 13 each: no team of two has the memory of two."""
    problem = planted(1, pk.Throughput(teams="equal"), Contiguity.CONVEX, num_ops=39, num_devices=3)
    costs = pk.CostTable(
        ("acc",), problem.costs.op_time_s[:, :1], problem.costs.transfer_time_s[:, :1], problem.costs.op_memory_bytes
    )
    platform = pk.Platform.of(acc=3)
    platform = platform.replace(devices=tuple(each.replace(memory_bytes=13 * 89.0) for each in platform.devices))
    tight = problem.replace(platform=platform, costs=costs)
    assert pk.solve(tight, "local-search", stop=SOON, params={"max_cycles": 1}).objective is not None


def test_a_search_without_a_time_limit_ends_where_nothing_fits() -> None:
    """Three ops of two bytes on two devices of three: all bytes fit, but not all ops."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("acc",), np.ones((3, 1)), np.zeros((2, 1)), np.full(3, 2.0))
    platform = pk.Platform.of(acc=2)
    platform = platform.replace(devices=tuple(each.replace(memory_bytes=3.0) for each in platform.devices))
    for objective in (pk.Throughput(), pk.SerialLatency(), pk.Makespan()):
        problem = pk.Problem(graph, platform, costs, objective, contiguity=Contiguity.NONE)
        assert pk.solve(problem, "local-search").objective is None


OBJECTIVES = (pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.OffloadLatency(calls_per_device=2))
SEARCHES = [(objective, method) for objective in OBJECTIVES for method in ("local-search", "cpsat", "ilp")]


@pytest.mark.parametrize(
    ("objective", "method"), [*SEARCHES, (pk.Makespan(), "local-search"), (pk.Makespan(), "cpsat")], ids=str
)
def test_small_problems_without_a_feasible_placement_end_with_the_proof(objective: Objective, method: str) -> None:
    """Three ops of two bytes on two devices with room for one each: no search goes on until its time is up."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("x",), np.ones((3, 1)), np.ones((2, 1)), np.full(3, 2.0))
    platform = pk.Platform.of(x=2, memory_bytes={"x": 3.0})
    problem = pk.Problem(graph, platform, costs, objective, Contiguity.NONE)
    result = pk.solve(problem, method, stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.INFEASIBLE
    assert result.stop_reason is pk.StopReason.PROVED

"""The judge of offload latency: formula, schedule, and what cannot be executed."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, problems

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.objectives import get_objective

OFFLOAD = st.builds(pk.OffloadLatency, calls_per_device=st.integers(1, 3))


@given(data=st.data(), problem=problems(max_ops=7, objective=OFFLOAD, contiguity=st.just(pk.Contiguity.NONE)))
@examples(400)
def test_judge_matches_the_naive_formula(data: st.DataObject, problem: pk.Problem) -> None:
    """The same latency as a recursion over calls, with steps and without; no latency where it has none."""
    num_ops = problem.graph.num_ops
    devices = data.draw(st.lists(st.integers(0, problem.platform.num_devices - 1), min_size=num_ops, max_size=num_ops))
    steps = data.draw(st.none() | st.lists(st.integers(-3, 3), min_size=num_ops, max_size=num_ops))
    score = problem.objective.score(problem, np.array(devices), None if steps is None else np.array(steps))
    expected = oracle.offload_latency(problem, tuple(devices), None if steps is None else tuple(steps))
    if math.isinf(expected):
        assert score.violations
    else:
        assert not score.violations
        assert score.objective_s == pytest.approx(expected, rel=1e-12)
        schedule = score.schedule
        assert schedule is not None
        assert schedule.finish_s.max() == pytest.approx(expected, rel=1e-12)
        busy = np.bincount(schedule.device, schedule.finish_s - schedule.start_s, problem.platform.num_devices)
        np.testing.assert_allclose(busy, score.load_s, rtol=1e-9, atol=1e-9)
        assert sorted(schedule.op[~schedule.is_transfer].tolist()) == list(range(num_ops))


def test_hand_checked_calls(diamond: pk.Problem) -> None:
    """The diamond of the fixture, by hand."""
    problem = diamond.replace(objective=pk.OffloadLatency(), contiguity=None)
    cases = {
        (0, 0, 0, 0): 12.0,  # the CPU is wide: b and c at the same time
        (1, 1, 1, 1): 4.0,
        (0, 1, 2, 0): 4.0 + (2 + 1 + 2) + 4.0,  # two calls at the same time
        (1, 1, 1, 0): (3 + 2 * 2) + 4.0,  # the outputs of b and c; a's stays inside
        (1, 0, 0, 0): (1 + 2) + 4.0 + 4.0,  # a's output moves once for two readers
        (1, 2, 0, 1): None,  # acc.0 waits for acc.1 and acc.1 for acc.0
    }
    for devices, latency in cases.items():
        assert pk.evaluate(problem, pk.Placement.of(problem, devices)).objective == latency
    two = problem.replace(objective=pk.OffloadLatency(calls_per_device=2))
    steps = pk.Placement.of(two, [1, 0, 0, 1], [0, 0, 0, 1])
    assert pk.evaluate(two, steps).objective == 3 + 4 + (4 + 1)
    halves = pk.Placement.of(two, [1, 1, 1, 1], [0, 0, 1, 1])  # a and b leave the first call and enter the second
    assert pk.evaluate(two, halves).objective == (2 + 2 * 2) + (2 * 2 + 2)


@pytest.mark.parametrize(
    ("devices", "steps", "constraint", "message"),
    [
        ([1, 0, 0, 1], None, "order", r"the calls of 'acc\.0' cannot start: it waits for its own output"),
        ([1, 2, 1, 2], [0, 0, 1, 0], "calls", r"device 'acc\.0' is called 2 times per sample, it may be called 1"),
        ([1, 2, 2, 1], None, "order", r"the calls of 'acc\.0', 'acc\.1' cannot start: they wait for each other"),
    ],
)
def test_what_cannot_be_executed_is_a_violation(
    diamond: pk.Problem, devices: list[int], steps: list[int] | None, constraint: str, message: str
) -> None:
    """Calls that wait for each other and calls that are too many are named."""
    problem = diamond.replace(objective=pk.OffloadLatency(), contiguity=None)
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, devices, steps))
    assert evaluation.objective is None
    assert [v.constraint for v in evaluation.violations] == [constraint]
    assert re.fullmatch(message, str(evaluation.violations[0]))


def test_host_pays_no_transfer_even_with_a_link(diamond: pk.Problem) -> None:
    """A host works in host memory, whatever its link says."""
    problem = diamond.replace(objective=pk.OffloadLatency(), contiguity=None)
    paid = problem.replace(costs=problem.costs.replace(transfer_time_s=np.full((3, 2), 2.0)))
    for devices in ([0, 1, 2, 0], [1, 0, 0, 2]):
        placement = pk.Placement.of(problem, devices)
        assert pk.evaluate(paid, placement).objective == pk.evaluate(problem, placement).objective


@pytest.mark.parametrize("calls", [0, -1, 1.5, True, "2"])
def test_wrong_number_of_calls_is_refused(calls: Any) -> None:
    """The message names the value and the bound."""
    with pytest.raises(InvalidProblemError, match=r"calls_per_device is .*; it must be a whole number >= 1"):
        get_objective("offload-latency", {"calls_per_device": calls})


def test_variant_round_trips() -> None:
    """As JSON values and back."""
    objective = pk.OffloadLatency(calls_per_device=3)
    assert get_objective(objective.name, objective.to_dict()) == objective


def test_the_round_robin_of_calls_can_be_executed() -> None:
    """Ops in turn would make calls that wait for each other in a braid of two chains: runs of ops do not."""
    names = [f"{side}{place}" for place in range(6) for side in "ab"]
    edges = [(f"{one}{place}", f"{other}{place + 1}") for place in range(5) for one in "ab" for other in "ab"]
    graph = pk.OpGraph.from_edges(names, edges)
    costs = pk.CostTable(("acc",), np.ones((12, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(12))
    problem = pk.Problem(graph, pk.Platform.of(acc=3), costs, pk.OffloadLatency(), pk.Contiguity.NONE)
    assert pk.solve(problem, method="round-robin").objective == 12

"""Pins that contradict: only where nothing is feasible, and both are named with their ops and devices."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force, team_brute_force
from strategies import examples, problems, teamed_problems

import placekit as pk
from placekit.model.pins import pins_against_order


def pinned_at_random(data: st.DataObject, problem: pk.Problem) -> pk.Problem:
    """Return the problem with many pins, so that they often contradict."""
    places = st.integers(-1, problem.platform.num_devices - 1)
    return problem.replace(pinned=np.array([data.draw(places) for _ in range(problem.graph.num_ops)]))


@examples(300)
@given(st.data())
def test_pins_that_contradict_leave_nothing_feasible(data: st.DataObject) -> None:
    """Against every placement."""
    problem = pinned_at_random(data, data.draw(problems(max_ops=6)))
    if pins_against_order(problem) is not None:
        assert brute_force(problem) is None


@examples(200)
@given(st.data())
def test_pins_that_teams_can_respect_do_not_contradict(data: st.DataObject) -> None:
    """Against every placement on every division into teams."""
    problem = pinned_at_random(data, data.draw(teamed_problems(max_ops=5, max_devices=3)))
    if pins_against_order(problem) is not None:
        assert team_brute_force(problem) is None


def chain(contiguity: str, teams: Literal["off", "equal"] = "off", length: int = 5) -> pk.Problem:
    """Return a chain of ops a, b, ... on a CPU and two accelerators."""
    names = "abcdefgh"[:length]
    costs = pk.CostTable(("cpu", "acc"), np.ones((length, 2)), np.zeros((length - 1, 2)), np.zeros(length))
    return pk.Problem(
        pk.OpGraph.from_edges(list(names), list(pairwise(names))),
        pk.Platform.of(cpu=1, acc=2, host="cpu"), costs, pk.Throughput(teams=teams), pk.Contiguity(contiguity),
    )  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "greedy", "local-search"])
@pytest.mark.parametrize("contiguity", ["acyclic", "convex"])
def test_a_device_between_ops_of_another_is_named(contiguity: str, method: str) -> None:
    """Every method says so at once, heuristics too; with all three ops and both devices."""
    problem = chain(contiguity).pin({"*": "acc.0", "c": "acc.1", "b": "acc.0"})
    result = pk.solve(problem, method)
    assert result.status is pk.Status.INFEASIBLE
    assert str(result.violations[0]).endswith(
        f"pins contradict contiguity {contiguity}: 'b' on 'acc.0' comes before 'c' on 'acc.1', which comes before 'd' "
        "on 'acc.0'"
    )


def test_two_paths_that_cross_are_named() -> None:
    """Paths a-b and c-d: with a, d on one device and b, c on another, acyclic has no order; convex may."""
    costs = pk.CostTable(("acc",), np.ones((4, 1)), np.zeros((2, 1)), np.zeros(4))
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("c", "d")])
    costs = costs.replace(transfer_time_s=np.zeros((graph.num_tensors, 1)))
    pins = {"a": "acc.0", "d": "acc.0", "b": "acc.1", "c": "acc.1"}
    problem = pk.Problem(graph, pk.Platform.of(acc=2), costs).pin(pins)
    told = str(pk.solve(problem).violations[0])
    assert "'a' on 'acc.0' comes before 'b' on 'acc.1'" in told or "'c' on 'acc.1' comes before 'd'" in told
    assert "pins contradict contiguity acyclic" in told
    assert pk.solve(problem.replace(contiguity="convex")).objective is not None


def test_one_team_may_have_both_devices() -> None:
    """With teams the same pins are kept by the team of both; not by a CPU and an accelerator."""
    pins = {"b": "acc.0", "c": "acc.1", "d": "acc.0"}
    assert pk.solve(chain("acyclic", "equal").pin(pins)).objective is not None
    result = pk.solve(chain("acyclic", "equal").pin(pins | {"c": "cpu.0"}))
    assert result.status is pk.Status.INFEASIBLE
    assert "'c' on 'cpu.0'" in str(result.violations[0])


def test_a_class_with_two_pins_names_both() -> None:
    """Ops that must share a device, pinned to two; and one pinned to a device that another cannot run on."""
    problem = chain("acyclic").colocate(["a", "b"]).pin({"a": "acc.0", "b": "cpu.0"})
    told = str(pk.solve(problem).violations[0])
    assert "op 'b' is pinned to 'cpu.0' and op 'a' to 'acc.0', but they must share a device" in told
    supported = np.ones((5, 2), dtype=bool)
    supported[1, 1] = False
    problem = chain("acyclic").colocate(["a", "b"]).pin({"a": "acc.0"})
    told = str(pk.solve(problem.replace(costs=problem.costs.replace(supported=supported))).violations[0])
    assert "op 'a' is pinned to 'acc.0', which does not support 'b' beside it" in told

"""The verifier's judge and the judge agree, on any placement, feasible or not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import MAKESPANS, TIMES_S, examples, placements, problems, teamed_placements, teamed_problems

import placekit as pk
from placekit.model.placement import Placement
from placekit.objectives import Makespan, Objective, OffloadLatency, SerialLatency, Throughput
from placekit.objectives.evaluate import evaluate
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import broken_constraints, objective

OBJECTIVES: st.SearchStrategy[Objective] = st.one_of(
    st.builds(Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"])),
    st.builds(SerialLatency, subgraph_cost_s=TIMES_S),
    st.builds(OffloadLatency, calls_per_device=st.integers(1, 3)),
    st.sampled_from(MAKESPANS),
)


@given(st.data())
@settings(parent=examples(100), phases=[Phase.generate])
def test_judges_agree_on_teams(data: st.DataObject) -> None:
    """The same with teams of several devices, allowed or not."""
    problem = data.draw(teamed_problems(max_ops=8, max_devices=5))
    placement = data.draw(teamed_placements(problem))
    said, exact = evaluate(problem, placement), ExactProblem.of(problem)
    teams = [members for members in placement.teams if len(members) > 1]
    device = placement.device_of_op.tolist()
    broken = dict(broken_constraints(exact, device, None, teams))
    assert broken.keys() == {violation.constraint for violation in said.violations}
    if said.objective is not None and "team" not in broken:
        value = objective(exact, device, None, teams)
        assert value is not None
        assert float(value) == pytest.approx(said.objective, rel=1e-12, abs=1e-300)


@given(st.data())
@settings(parent=examples(500), phases=[Phase.generate])
def test_judges_agree(data: st.DataObject) -> None:
    """The objective to 1e-12, and the same set of broken constraints, with and without steps."""
    problem = data.draw(problems(objective=OBJECTIVES))
    placement = data.draw(placements(problem))
    if data.draw(st.booleans()):
        num_ops = problem.graph.num_ops
        steps = data.draw(st.lists(st.integers(0, 3), min_size=num_ops, max_size=num_ops))
        placement = Placement.of(problem, placement.device_of_op, steps)
    said = evaluate(problem, placement)
    exact = ExactProblem.of(problem)
    steps_given = None if placement.step_of_op is None else placement.step_of_op.tolist()
    broken = broken_constraints(exact, placement.device_of_op.tolist(), steps_given)
    assert {constraint for constraint, _ in broken} == {violation.constraint for violation in said.violations}
    assert max(Counter(constraint for constraint, _ in broken).values(), default=1) == 1
    if said.objective is not None:
        value = objective(exact, placement.device_of_op.tolist(), steps_given)
        assert value is not None
        assert float(value) == pytest.approx(said.objective, rel=1e-12, abs=1e-300)


def _scores_agree(problem: pk.Problem, devices: list[int]) -> float:
    """Return what both judges say a placement takes."""
    said = evaluate(problem, Placement.of(problem, devices)).objective
    value = objective(ExactProblem.of(problem), devices, None)
    assert said is not None
    assert value is not None
    assert float(value) == pytest.approx(said, rel=1e-12)
    return said


def test_upward_ranks_count_transfers() -> None:
    """Of two ready ops the one with the longer way goes first; on the way are transfers, of 4 s in the mean."""
    graph = pk.OpGraph.from_edges(["work", "send", "after"], [("send", "after")])
    times = np.array([[3.0], [1.0], [1.0]])
    costs = pk.CostTable(("cpu",), times, np.array([[2.0]]), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs, Makespan(order="upward-rank"), pk.Contiguity.NONE)
    assert _scores_agree(problem, [0, 0, 1]) == 6  # 1 + 4 + 1: the work of 3 s goes on meanwhile; behind it 9 s


def test_upward_ranks_count_direct_links() -> None:
    """The same over a link of 1.5 s: 3.5 s from the second op on, and 3 s of the first."""
    graph = pk.OpGraph.from_edges(["work", "send", "after"], [("send", "after")])
    platform = pk.Platform.of(cpu=2)
    platform = pk.Platform(platform.devices, platform.links, (pk.DirectLink(1.5, 1e9),))
    names, times = platform.direct_link_names, np.array([[3.0], [1.0], [1.0]])
    costs = pk.CostTable(
        ("cpu",), times, np.array([[9.0]]), np.zeros(3), direct_links=names, direct_time_s=np.array([[1.5]])
    )
    problem = pk.Problem(graph, platform, costs, Makespan(order="upward-rank"), pk.Contiguity.NONE)
    assert _scores_agree(problem, [0, 0, 1]) == 4


def test_ops_are_ready_in_the_order_of_sums_in_double_precision() -> None:
    """0.1 + 0.2 is later than 0.3: what waits for that goes second, though its position is the first."""
    graph = pk.OpGraph.from_edges(
        ["first", "second", "at_once", "late", "early", "tail"],
        [("first", "second"), ("second", "late"), ("at_once", "early"), ("early", "tail")],
    )
    times = np.array([0.1, 0.2, 0.3, 1.0, 1.0, 5.0]).reshape(-1, 1)
    costs = pk.CostTable(("cpu",), times, np.zeros((graph.num_tensors, 1)), np.zeros(6))
    problem = pk.Problem(graph, pk.Platform.of(cpu=4), costs, Makespan(), pk.Contiguity.NONE)
    assert _scores_agree(problem, [0, 0, 1, 2, 2, 3]) == pytest.approx(6.3)  # 7.3 if the other one went first


def test_tensors_queue_before_their_receivers_do() -> None:
    """With contention the second tensor of an op is there at 3 s, after what is ready at 2.5 s and takes its device."""
    edges = [("make", "long"), ("make", "short"), ("other", "last")]
    graph = pk.OpGraph.from_edges(["make", "long", "short", "other", "last"], edges)
    size = [0.5 if op == 0 else 0.0 for op in graph.tensor_producer.tolist()]
    costs = pk.CostTable(
        ("cpu",), np.array([[1.0], [3.0], [1.0], [2.5], [4.0]]), np.array(size).reshape(-1, 1), np.zeros(5)
    )
    problem = pk.Problem(graph, pk.Platform.of(cpu=4), costs, Makespan(contention=True), pk.Contiguity.NONE)
    assert _scores_agree(problem, [0, 1, 2, 3, 2]) == 7.5

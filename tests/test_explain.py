"""Explanations, against numbers computed by hand."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, problems, teamed_problems

import placekit as pk
from placekit.advice.alternatives import alternatives_of
from placekit.advice.changes import GIB, changes
from placekit.advice.explain import Explanation, explain
from placekit.advice.rules import rules_of
from placekit.advice.worth import without_device
from placekit.cli.commands.explain import sentences
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan, OffloadLatency, Throughput
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import SOLVER_TOLERANCE


def chain(num_devices: int = 2, memory_bytes: float | None = None, **fields: object) -> Problem:
    """Return a -> b -> c of 3, 2 and 1 s, one GiB each, on equal devices; a tensor costs 0.5 s at each end."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")], name="chain", output_bytes=[8, 4, 4])
    memory = {} if memory_bytes is None else {"acc": memory_bytes}
    platform = pk.Platform.of(acc=num_devices, memory_bytes=memory)
    costs = pk.CostTable(("acc",), np.array([[3.0], [2.0], [1.0]]), np.full((2, 1), 0.5), np.full(3, float(GIB)))
    return Problem(graph, platform, costs, **fields)  # type: ignore[arg-type]  # fields by name


def place(problem: Problem, *devices: int) -> Placement:
    """Return the placement of a, b and c."""
    return Placement.of(problem, list(devices))


def test_bottleneck_and_cuts_by_hand() -> None:
    """A | b c: loads 3.5 and 3.5; one tensor of 8 bytes, half a second at each end."""
    problem = chain()
    found = explain(problem, place(problem, 0, 1, 1), time_limit_s=0)
    assert found.objective_s == 3.5
    assert found.bottleneck.device == "acc.0"
    (cut,) = found.cuts
    assert (cut.op, cut.source, cut.targets, cut.num_bytes) == ("a", "acc.0", ("acc.1",), 8)
    assert (cut.cost_s, cut.bottleneck_cost_s) == (1.0, 0.5)
    assert found.unchanged is None
    assert found.what_ifs == ()


def test_moves_by_hand() -> None:
    """From a | b c: b to the left gives 5.5 | 1.5; c to the left has a cycle; a to the right gives 6 on one device."""
    problem = chain()
    found = explain(problem, place(problem, 0, 1, 1), time_limit_s=0)
    assert [(move.op, move.target, move.objective_s, move.change_s) for move in found.moves] == [
        ("b", "acc.0", 5.5, 2.0),
        ("a", "acc.1", 6.0, 2.5),
    ]
    assert found.off_bottleneck == found.moves[1]
    assert (found.num_moves, found.num_moves_tried) == (3, 3)


def test_a_move_that_helps_is_found() -> None:
    """All on one device takes 6; splitting a off takes 3.5, and is the best of the three moves."""
    problem = chain()
    found = explain(problem, place(problem, 0, 0, 0), time_limit_s=0)
    assert (found.moves[0].op, found.moves[0].objective_s, found.moves[0].change_s) == ("a", 3.5, -2.5)
    assert found.cuts == ()


def test_what_is_asked_depends_on_the_constraints_that_there_are() -> None:
    """Memory, contiguity and pins are dropped one at a time; more memory and one device more are asked about."""
    problem = chain(2, memory_bytes=2 * GIB, pinned=[0, -1, 1])
    found = explain(problem, place(problem, 0, 0, 1), time_limit_s=1)
    assert [each.change for each in found.what_ifs] == [
        "without memory limits",
        "without contiguity (acyclic)",
        "without pins",
        "one GiB more on every acc",
        "one acc more",
    ]


def test_searching_on_is_no_gain_of_a_change() -> None:
    """B belongs to the right: found with all constraints, too, so that none of them binds and no change gains."""
    problem = chain(2, memory_bytes=2 * GIB, pinned=[0, -1, 1])
    found = explain(problem, place(problem, 0, 0, 1), time_limit_s=1)
    assert found.objective_s == 5.5
    assert found.unchanged is not None
    assert found.unchanged.objective_s == 3.5
    assert found.binding == ()
    assert [found.gain_s(each) for each in found.what_ifs] == [0.0] * 5


def test_memory_that_binds_is_named_and_one_gib_more_is_enough() -> None:
    """With 1 GiB each, a | b | c: b pays for two tensors, 3; a is the bottleneck. Slower links make b c one device."""
    problem = chain(3, memory_bytes=GIB)
    slow = problem.replace(costs=problem.costs.replace(transfer_time_s=np.array([[0.1], [5.0]])))
    found = explain(slow, place(slow, 0, 1, 2), time_limit_s=1)
    assert found.objective_s == pytest.approx(7.1)  # b: 2 + 0.1 + 5; with c on its device 3.1
    assert [each.constraint for each in found.binding] == ["memory"]
    gains = {each.change: found.gain_s(each) for each in found.what_ifs}
    assert gains["without memory limits"] == pytest.approx(4.0)
    assert gains["one GiB more on every acc"] == pytest.approx(4.0)
    assert gains["one acc more"] == 0


def test_a_binding_constraint_is_named() -> None:
    """C is pinned beside a: with it the best is all on one device, 6, or b alone, 5; without it 3.5."""
    problem = chain(2, contiguity="none", pinned=[0, -1, 0])
    found = explain(problem, place(problem, 0, 1, 0), time_limit_s=1)
    assert found.objective_s == 5.0
    assert [each.constraint for each in found.binding] == ["pins"]
    assert found.gain_s(found.binding[0]) == 1.5
    assert found.to_dict()["binding"] == ["pins"]


def test_one_device_more_is_solved_on_a_larger_platform() -> None:
    """One device takes 6; a second one 3.5."""
    problem = chain(1)
    found = explain(problem, place(problem, 0, 0, 0), time_limit_s=1)
    (more,) = [each for each in found.what_ifs if each.change == "one acc more"]
    assert more.objective_s == 3.5
    assert found.gain_s(more) == 2.5
    assert found.num_moves == 0


def test_a_result_brings_its_bound_and_is_checked() -> None:
    """The bound of the result counts; a result of other costs is refused."""
    problem = chain()
    result = pk.solve(problem, "dp")
    assert explain(problem, result, time_limit_s=0).bound_s == result.lower_bound
    dearer = problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s * 2))
    with pytest.raises(InvalidProblemError, match=r"takes 6.5 s here, the result says 3.5 s"):
        explain(dearer, result)


def test_what_cannot_be_explained_is_refused() -> None:
    """An infeasible placement, or a result without one."""
    problem = chain(2, memory_bytes=2 * GIB)
    with pytest.raises(InvalidProblemError, match=r"not feasible: device 'acc.0' needs"):
        explain(problem, place(problem, 0, 0, 0))
    with pytest.raises(InvalidProblemError, match=r"no placement to explain: the ops need .* more than all devices"):
        explain(problem, pk.solve(chain(2, memory_bytes=GIB), "dp"))


def test_steps_are_reported_in_order() -> None:
    """The caller hears what is being worked on, and how much there is."""
    told: list[tuple[int, int, str]] = []
    problem = chain(1)
    explain(problem, place(problem, 0, 0, 0), time_limit_s=0.2, on_step=lambda *step: told.append(step))
    assert told == [
        (0, 5, "single moves"),
        (1, 5, "the problem as it is"),
        (2, 5, "without contiguity (acyclic)"),
        (3, 5, "one acc more"),
        (4, 5, "without acc.0"),
    ]


def test_a_sender_pays_per_receiver_under_makespan_only() -> None:
    """One tensor from a to two other devices of a kind: three times 0.5 s, or four times under makespan."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("a", "c")])
    costs = pk.CostTable(("acc",), np.ones((3, 1)), np.full((1, 1), 0.5), np.ones(3))
    problem = Problem(graph, pk.Platform.of(acc=3), costs)
    for objective, cost_s in ((problem.objective, 1.5), (Makespan(), 2.0)):
        changed = problem.replace(objective=objective)
        found = explain(changed, place(changed, 0, 1, 2), time_limit_s=0)
        assert [cut.cost_s for cut in found.cuts] == [cost_s]
        assert sum(load.transfer_s for load in found.loads) == cost_s


def test_hosts_pay_nothing_under_offload_latency() -> None:
    """Only the accelerator's end of a transfer costs, even if the host's kind has a price."""
    graph = pk.OpGraph.from_edges(list("ab"), [("a", "b")])
    costs = pk.CostTable(("cpu", "acc"), np.ones((2, 2)), np.full((1, 2), 0.5), np.ones(2))
    problem = Problem(graph, pk.Platform.of(cpu=1, acc=1, host="cpu"), costs, OffloadLatency())
    found = explain(problem, place(problem, 0, 1), time_limit_s=0)
    assert [cut.cost_s for cut in found.cuts] == [0.5]


@given(problems(), st.booleans())
@examples(40)
def test_moves_and_cuts_agree_with_the_judge(problem: Problem, is_makespan: bool) -> None:
    """The objective after every move is the judge's; cut costs sum to the transfer terms of the loads."""
    if is_makespan:
        problem = problem.replace(objective=Makespan(), contiguity="none")
    result = pk.solve(problem, "greedy")
    if result.placement is None:
        return
    found = explain(problem, result, time_limit_s=0, max_moves=1000)
    for move in found.moves:
        device = result.placement.device_of_op.copy()
        op = problem.graph.op_index[move.op]
        device[problem.op_class == problem.op_class[op]] = problem.platform.index(move.target)
        judged = evaluate(problem, Placement.of(problem, device, result.placement.step_of_op))
        assert judged.is_feasible
        assert judged.objective == move.objective_s
    changes = [move.objective_s for move in found.moves]
    assert changes == sorted(changes)
    transfer = sum(load.transfer_s for load in found.loads)
    assert np.isclose(sum(cut.cost_s for cut in found.cuts), transfer, rtol=1e-9, atol=1e-12)


def test_what_a_device_brings() -> None:
    """Of two equal devices with room for 4 GiB each, one brings 6 / 3.5; a third, unused, nothing; one alone, all."""
    two = chain(2)
    (worth,) = explain(two, pk.solve(two, "enumerate"), time_limit_s=1.0).worths
    assert (worth.device, worth.objective_s, worth.is_proven) == ("acc.1", 6.0, True)
    assert worth.factor == pytest.approx(6 / 3.5)
    three = chain(3)
    (worth,) = explain(three, place(three, 0, 1, 1), time_limit_s=1.0).worths
    assert (worth.device, worth.is_used, worth.factor) == ("acc.2", False, 1.0)
    tight = chain(2, memory_bytes=2 * GIB)
    (worth,) = explain(tight, place(tight, 0, 1, 1), time_limit_s=1.0).worths
    assert worth.is_needed
    (worth,) = explain(chain(1), place(chain(1), 0, 0, 0), time_limit_s=1.0).worths
    assert worth.why_not == "it is the only device"


def one_of_each(**fields: object) -> Problem:
    """Return a -> b of 4 and 4 s on a CPU, 6 and 6 s on a GPU that holds one op; tensors cost 3 s at the GPU."""
    graph = pk.OpGraph.from_edges(list("ab"), [("a", "b")])
    costs = pk.CostTable(("cpu", "gpu"), np.array([[4.0, 6.0]] * 2), np.array([[0.0, 3.0]]), np.ones(2))
    platform = pk.Platform.of(cpu=1, gpu=1, memory_bytes={"gpu": 1})
    return Problem(graph, platform, costs, **fields)  # type: ignore[arg-type]  # fields by name


def test_copies_that_a_change_allows_are_named() -> None:
    """Without its limit the GPU holds the whole model: copies take 4.8 s, which no placement without teams reaches."""
    problem = one_of_each()
    told = sentences(explain(problem, pk.solve(problem), time_limit_s=1))
    line = next(each for each in told["constraints"] if each.startswith("Without memory limits"))
    assert "no placement with contiguity acyclic and teams off is better (auto" in line
    assert line.endswith("; a copy on each of cpu.0, gpu.0: 4.8 s, 3.2 s (40 %) better.")
    assert [each.constraint for each in explain(problem, pk.solve(problem)).binding] == ["memory"]
    free = one_of_each(objective=Throughput(teams="any"), contiguity="none")
    told = sentences(explain(free, pk.solve(free), time_limit_s=1))
    assert told["bottleneck"][0].endswith("no placement is better (proven).")
    assert "4.8 s, 3.2 s (40 %) better" in told["constraints"][1]


def test_a_device_that_a_better_placement_uses_is_worth_something() -> None:
    """All on one of two devices takes 6 s; the search finds 3.5 s with both, so that the idle one is not worthless."""
    problem = chain(2)
    (worth,) = explain(problem, place(problem, 0, 0, 0), time_limit_s=1).worths
    assert (worth.is_used, worth.objective_s) == (True, 6.0)
    assert worth.factor == pytest.approx(6 / 3.5)
    three = chain(3)
    (idle,) = explain(three, place(three, 0, 1, 1), time_limit_s=1).worths
    assert (idle.is_used, idle.objective_s, idle.is_proven) == (False, 3.5, True)


@examples(60)
@given(st.one_of(problems(max_ops=5, max_devices=3), teamed_problems(max_ops=5)))
def test_what_is_said_of_changes_agrees_with_solving_them(problem: Problem) -> None:
    """A sentence that claims a proof covers what `solve` finds for that change; without rules, whatever there is."""
    result = pk.solve(problem)
    if result.placement is None:
        return
    found = explain(problem, result, time_limit_s=2)
    told = sentences(found)
    _check_proof(told["bottleneck"][0], problem, found.objective_s)
    copies_now = _copies_s(problem)
    for line, what_if, (_, _, changed) in zip(
        [each for each in (*told["constraints"], *told["what more would bring"]) if _is_answer(each, found)],
        found.what_ifs,
        changes(problem),
        strict=True,
    ):
        solved = pk.solve(changed)
        optimum = solved.objective
        assert optimum is not None, "the placement itself is one"
        assert solved.status is pk.Status.OPTIMAL
        is_better = optimum < found.now_s * (1 - SOLVER_TOLERANCE)
        assert not is_better or "better placement was found" in line or "no placement" not in line, (line, optimum)
        assert what_if.objective_s is None or what_if.objective_s >= optimum * (1 - 1e-9)
        _check_proof(line, changed, found.now_s)
        copies = _copies_s(changed)
        assert ("a copy on each of" in line) == (
            copies < min(found.now_s, optimum, copies_now) * (1 - SOLVER_TOLERANCE)
        )
    for worth in found.worths:
        smaller = without_device(problem, problem.platform.index(worth.device))
        if isinstance(smaller, str) or not worth.is_proven:
            continue
        best = pk.solve(smaller).objective
        assert worth.is_needed == (best is None)
        assert best is None or worth.objective_s == pytest.approx(best, rel=1e-6)


def _is_answer(line: str, found: Explanation) -> bool:
    return any(line.lower().startswith(f"{each.change.lower()}:") for each in found.what_ifs)


def _copies_s(problem: Problem) -> float:
    known = (each.objective_s for each in alternatives_of(problem) if each.form == "copies")
    return min((each for each in known if each is not None), default=np.inf)


def _check_proof(line: str, problem: Problem, now_s: float) -> None:
    """No placement within the rules that a proof names is better; without rules none of any contiguity or team."""
    if "proven)" not in line:
        return
    if " placement is better" in line:
        assert rules_of(problem) == ""
        objective = problem.objective
        if isinstance(objective, Throughput):
            with contextlib.suppress(InvalidProblemError):
                objective = replace(objective, teams="any")
                problem = problem.replace(objective=objective)
        problem = problem.replace(contiguity="none")
    best = pk.solve(problem).objective
    assert best is not None
    assert best >= now_s * (1 - SOLVER_TOLERANCE), line

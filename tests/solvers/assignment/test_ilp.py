"""The integer program: known optima, limits, interrupts, warm starts, other solvers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hard import hard_problem, interrupted_answer
from limits import SOON_S

import placekit as pk
from placekit.model.errors import InvalidProblemError, JudgeDisagreementError, UnknownNameError
from placekit.solve.method import Run
from placekit.solve.result import Incumbent
from placekit.solvers.assignment.ilp.slots import embed, slot_chain


@pytest.mark.parametrize(("contiguity", "optimum_ms"), [("acyclic", 27.9185676799), ("none", 21.9083761057)])
def test_public_workload_is_proven(workloads: Path, contiguity: str, optimum_ms: float) -> None:
    """BERT-3 at operator granularity: the published contiguous optimum, and the better non-contiguous one."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem.replace(contiguity=contiguity), method="ilp", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(optimum_ms / 1e3, rel=1e-9)


def test_time_limit_returns_incumbent_and_bound() -> None:
    """A problem too hard for the limit: both sides of the gap come back, near the limit, and agree with the judge."""
    problem = hard_problem()
    result = pk.solve(problem, method="ilp", stop=pk.MaxRuntime(3))
    assert (result.status, result.stop_reason) == (pk.Status.FEASIBLE, pk.StopReason.TIME)
    assert result.placement is not None
    assert result.lower_bound is not None
    assert result.objective is not None
    assert 0 < result.lower_bound < result.objective
    assert pk.evaluate(problem, result.placement).objective == result.objective
    assert result.runtime_s < SOON_S
    objectives = [line.objective for line in result.trace if line.objective is not None]
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.slow
def test_interrupt_returns_incumbent_and_bound() -> None:
    """Ctrl-C in the middle of a solve prints a result with both."""
    answer = interrupted_answer("ilp")
    assert (answer["status"], answer["stop_reason"]) == ("feasible", "user")
    assert 0 < answer["lower_bound"] < answer["objective"]


def test_target_gap_stops_early(workloads: Path) -> None:
    """A gap of 20 % is reached before the proof, and reported as such."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem, method="ilp", stop=pk.TargetGap(0.2))
    assert result.gap is not None
    assert result.gap <= 0.2
    assert result.stop_reason in (pk.StopReason.GAP, pk.StopReason.PROVED)


@pytest.mark.parametrize("contiguity", ["none", "convex", "acyclic"])
def test_warm_start_is_kept_and_accepted(contiguity: str) -> None:
    """With no time to search, the answer is the warm start; HiGHS takes it as a solution of its model."""
    problem = hard_problem(contiguity)
    start = pk.solve(problem, method="random:200", seed=1).placement
    assert start is not None
    value = pk.evaluate(problem, start).objective
    at_once = pk.solve(problem, method="ilp", stop=pk.MaxRuntime(0), warm_start=start).objective
    assert value is not None
    assert at_once is not None
    assert at_once <= value

    from placekit.solvers.assignment.ilp.model import IlpModel
    from placekit.solvers.generic.coarsen import contract

    model = IlpModel(contract(problem), value)
    values = model.encode(start.device_of_op)
    for variable, number in values.items():
        variable.varValue = number
    assert set(values) == set(model.lp.variables())
    assert all(constraint.valid(1e-6) for constraint in model.lp.constraints())
    assert model.lp.objective.value() * model.unit_s == pytest.approx(value)
    decoded = model.decode(values)
    assert pk.evaluate(problem, pk.Placement.of(problem, decoded)).objective == pytest.approx(value)


def test_infeasible_warm_start_is_no_obstacle(diamond: pk.Problem) -> None:
    """A warm start that breaks a constraint is scored and then ignored."""
    start = pk.Placement.of(diamond, [1, 2, 2, 1])
    assert pk.solve(diamond, method="ilp", warm_start=start).objective == 4.0


def test_infeasible_problem_names_the_reason(diamond: pk.Problem) -> None:
    """Bytes over the largest device, over all devices, no device for a class, and constraints that clash."""
    small = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 0.5, "cpu": 0.75})
    result = pk.solve(diamond.replace(platform=small), method="ilp")
    assert result.status is pk.Status.INFEASIBLE
    assert "need 1 B, 0.25 B more than the largest device" in str(result.violations[0])
    tight = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 1.0, "cpu": 1.0})
    result = pk.solve(diamond.replace(platform=tight), method="ilp")
    assert "the ops need 4 B, 1 B more than all devices have together" in str(result.violations[0])
    pinned = diamond.pin({"a": "cpu.0", "b": "acc.0"}).colocate(["a", "b"])
    result = pk.solve(pinned, method="ilp")
    assert "op 'a' is pinned to 'cpu.0' and op 'b' to 'acc.0', but they must share" in str(result.violations[0])
    clash = diamond.pin({"a": "acc.0", "d": "acc.0", "b": "acc.1"})
    result = pk.solve(clash, method="ilp")
    assert (result.status, result.stop_reason) == (pk.Status.INFEASIBLE, pk.StopReason.PROVED)
    assert "'a' on 'acc.0' comes before 'b' on 'acc.1', which comes before 'd'" in str(result.violations[0])
    no_room = diamond.replace(platform=pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"cpu": 2.0, "acc": 2.0}))
    result = pk.solve(no_room.pin({"a": "acc.0", "d": "acc.0"}), method="ilp")
    assert (result.status, result.stop_reason) == (pk.Status.INFEASIBLE, pk.StopReason.PROVED)
    assert result.violations[0].constraint == "infeasible"


def test_fused_cycle_without_a_device_is_infeasible() -> None:
    """Colocation a-d and b-c on a chain closes a cycle; pinned apart, an acyclic placement cannot exist."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")])
    costs = pk.CostTable(("cpu",), np.ones((4, 1)), np.zeros((3, 1)), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs).colocate(["a", "d"], ["b", "c"])
    assert pk.solve(problem, method="ilp").objective == 4.0
    result = pk.solve(problem.pin({"a": "cpu.0", "b": "cpu.1"}), method="ilp")
    assert result.status is pk.Status.INFEASIBLE
    assert "wait for each other through colocation" in str(result.violations[0])


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated")
def test_another_pulp_solver_gives_the_same_optimum(diamond: pk.Problem) -> None:
    """CBC, which PuLP ships, proves the same value."""
    problem = diamond.replace(costs=diamond.costs.replace(op_time_s=[[4.0, 3.0]] * 4))
    by_cbc = pk.solve(problem, method="ilp:CBC")
    assert (by_cbc.objective, by_cbc.status) == (pk.solve(problem, method="ilp").objective, pk.Status.OPTIMAL)
    with pytest.raises(UnknownNameError, match="PuLP has no solver 'nosuch'; it has "):
        pk.solve(problem, method="ilp:nosuch")


def test_model_can_be_written_as_mps(diamond: pk.Problem, tmp_path: Path) -> None:
    """The file starts like MPS; a folder that is not there is a named error."""
    pk.solve(diamond.replace(contiguity="none"), method="ilp", params={"mps": str(tmp_path / "model.mps")})
    assert "ROWS" in (tmp_path / "model.mps").read_text()
    with pytest.raises(InvalidProblemError, match=r"cannot write the model to .*missing"):
        pk.solve(diamond, method="ilp", params={"mps": str(tmp_path / "missing" / "model.mps")})


def test_wrong_parameters_are_named(diamond: pk.Problem) -> None:
    """Unknown names and wrong types list what is possible."""
    with pytest.raises(InvalidProblemError, match="'ilp' has no parameter 'speed'; parameters are: solver, threads"):
        pk.solve(diamond, method="ilp", params={"speed": 1})
    with pytest.raises(InvalidProblemError, match="parameter 'solver' is 3; it must be of type str"):
        pk.solve(diamond, method="ilp", params={"solver": 3})
    with pytest.raises(InvalidProblemError, match="threads is 0"):
        pk.solve(diamond, method="ilp", params={"threads": 0})


def test_times_of_any_scale_are_proven(diamond: pk.Problem) -> None:
    """Nanoseconds or hours: tolerances of the solver do not matter, because times are scaled."""
    for scale in (1e-9, 1e4):
        costs = diamond.costs.replace(
            op_time_s=diamond.costs.op_time_s * scale, transfer_time_s=diamond.costs.transfer_time_s * scale
        )
        result = pk.solve(diamond.replace(costs=costs, contiguity="none"), method="ilp")
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == pytest.approx(4.0 * scale)


def test_zero_costs_are_solved() -> None:
    """Nothing to gain is still an optimum."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = pk.CostTable(("cpu",), np.zeros((2, 1)), np.zeros((1, 1)), np.zeros(2))
    result = pk.solve(pk.Problem(graph, pk.Platform.of(cpu=2), costs), method="ilp")
    assert (result.objective, result.gap, result.status) == (0.0, 0.0, pk.Status.OPTIMAL)


def test_solve_works_outside_the_main_thread(diamond: pk.Problem) -> None:
    """Signals can only be handled in the main thread; elsewhere the solve runs all the same."""
    answers: list[pk.Result] = []
    worker = threading.Thread(target=lambda: answers.append(pk.solve(diamond, method="ilp")))
    worker.start()
    worker.join()
    assert answers[0].objective == 4.0


def test_bound_above_an_objective_is_an_error(diamond: pk.Problem) -> None:
    """The worst bug there is does not pass silently; within the tolerance a bound is rounded down."""
    lines: list[Incumbent] = []
    run = Run(diamond, on_progress=lines.append)
    run.offer(np.array([1, 1, 1, 1]))
    run.raise_bound(4.0 * (1 + 1e-9), "rounded")
    assert run.bound == 4.0
    assert lines[-1].bound == 4.0
    with pytest.raises(JudgeDisagreementError, match=r"lies above the achieved objective 4.0 s"):
        run.raise_bound(4.1, "wrong")
    with pytest.raises(JudgeDisagreementError, match=r"promises at most 3.0 s, the judge says 4.0 s"):
        run.offer(np.array([1, 1, 1, 1]), at_most=3.0)


@pytest.mark.parametrize("counts", [[1], [3], [2, 1], [1, 1, 1], [3, 2, 1], [1, 1, 1, 1], [2, 2, 2]])
def test_slot_chain_contains_every_order(counts: list[int]) -> None:
    """Every permutation of the devices' groups is a subsequence."""
    import itertools

    chain = slot_chain(counts)
    devices = [group for group, count in enumerate(counts) for _ in range(count)]
    for order in set(itertools.permutations(devices)):
        slots = embed(order, chain)
        assert [chain[s] for s in slots] == list(order)
        assert slots == sorted(set(slots))

"""The constraint program: exact against brute force, scaled safely, anytime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hard import hard_problem, interrupted_answer
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.solve.registry import get_method
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solvers.assignment.cpsat.solve import build_model
from placekit.solvers.backends.scale import TimeScale, scale_bytes
from placekit.solvers.generic.coarsen import contract


@examples(400)
@given(problems(max_ops=6, max_devices=4))
def test_cpsat_matches_brute_force(problem: pk.Problem) -> None:
    """Same optimum, or the same verdict that there is none; the bound is never above it."""
    best = brute_force(problem)
    result = pk.solve(problem, method="cpsat", params={"workers": 1})
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.lower_bound is not None
    assert result.objective is not None
    assert result.lower_bound <= best * (1 + 1e-9) + 1e-12
    if isinstance(problem.objective, pk.SerialLatency) and problem.objective.subgraph_cost_s:
        assert result.objective >= best * (1 - 1e-9)  # the program counts subgraphs too low: a bound, no proof
    else:
        assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-12)
        assert result.status is pk.Status.OPTIMAL


@examples(150)
@given(problems(max_ops=8, max_devices=4), st.data())
def test_known_placements_are_solutions_of_the_model(problem: pk.Problem, data: st.DataObject) -> None:
    """A feasible placement can be said in the model, breaks none of its constraints, and costs what the judge says."""
    from ortools.sat.python import cp_model

    contraction = contract(problem)
    size = contraction.num_classes
    devices = st.integers(0, problem.platform.num_devices - 1)
    device = np.array(data.draw(st.lists(devices, min_size=size, max_size=size)), dtype=np.int64)
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, contraction.expand(device)))
    if not evaluation.is_feasible or evaluation.objective is None:
        return
    model = build_model(contraction, evaluation.objective)
    values = model.encode(device)
    assert values is not None
    proto = model.proto
    assert set(values) == set(range(len(proto.proto.variables)))
    proto.clear_objective()  # type: ignore[no-untyped-call]  # OR-Tools left the annotation out
    for index, value in values.items():
        proto.add(proto.get_int_var_from_proto_index(index) == value)
    assert cp_model.CpSolver().solve(proto) == cp_model.OPTIMAL
    if model.level:
        units = sum(values[level.index] for level in model.level)
        assert model.scale.bound_s(units) <= evaluation.objective
        assert evaluation.objective <= model.scale.at_most_s(units)


@examples(300)
@given(st.floats(1e-12, 1e6), st.integers(1, 10_000), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_scaled_times_are_below_and_close(ceiling: float, terms: int, shares: list[float]) -> None:
    """The integer times never exceed the true ones, and miss them by less than a unit each."""
    scale = TimeScale.of(ceiling, terms)
    assert math.frexp(scale.unit_s)[0] == 0.5  # a power of two: dividing by it is exact
    times = np.array(shares) * ceiling
    units = scale.floor(times, 2**62)
    assert (units * scale.unit_s <= times).all()
    assert (times - units * scale.unit_s < scale.unit_s).all()
    assert terms * scale.unit_s <= 2e-7 * ceiling * (1 + 1e-9) or terms / 2e-7 > 2**42
    assert scale.bound_s(int(units.sum())) <= times.sum() <= scale.at_most_s(int(units.sum())) or len(shares) > terms


@examples(300)
@given(st.lists(st.floats(0, 2**60) | st.integers(0, 9).map(float), min_size=1, max_size=12), st.floats(0, 2**61))
def test_what_fits_still_fits_in_whole_bytes(sizes: list[float], limit: float) -> None:
    """A set of sizes within the limit is within the limit as integers; whole bytes stay exact."""
    whole, most = scale_bytes(np.array(sizes), limit)
    assert sum(whole.tolist()) < 2**62
    if math.fsum(sizes) <= limit:
        assert sum(whole.tolist()) <= most
    if all(size == int(size) for size in sizes) and sum(sizes) + limit < 2**50 and sum(sizes) > limit + 1:
        assert sum(whole.tolist()) > most


@pytest.mark.parametrize(("contiguity", "optimum_ms"), [("acyclic", 27.9185676799), ("none", 21.9083761057)])
def test_public_workload_is_proven(workloads: Path, contiguity: str, optimum_ms: float) -> None:
    """BERT-3 at operator granularity: the published contiguous optimum, and the better non-contiguous one."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem.replace(contiguity=contiguity), method="cpsat", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(optimum_ms / 1e3, rel=SOLVER_TOLERANCE)


@pytest.mark.parametrize("contiguity", ["none", pytest.param("convex", marks=pytest.mark.slow), "acyclic"])
def test_time_limit_returns_incumbent_and_bound(contiguity: str) -> None:
    """A problem too hard for the limit: both sides of the gap come back, near the limit, and agree with the judge."""
    problem = hard_problem(contiguity, 300)
    result = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(2))
    assert (result.status, result.stop_reason) == (pk.Status.FEASIBLE, pk.StopReason.TIME)
    assert result.placement is not None
    assert result.lower_bound is not None
    assert result.objective is not None
    assert 0 < result.lower_bound < result.objective
    assert pk.evaluate(problem, result.placement).objective == result.objective
    assert result.runtime_s < SOON_S
    bounds = [line.bound for line in result.trace if line.bound is not None]
    assert bounds == sorted(bounds)


def test_interrupt_returns_incumbent_and_bound() -> None:
    """Ctrl-C in the middle of a solve prints a result with both."""
    answer = interrupted_answer("cpsat")
    assert (answer["status"], answer["stop_reason"]) == ("feasible", "user")
    assert 0 < answer["lower_bound"] < answer["objective"]


@pytest.mark.parametrize("contiguity", ["none", "convex", "acyclic"])
def test_warm_start_is_taken_as_a_solution(contiguity: str) -> None:
    """CP-SAT begins at the placement that was handed in: the first incumbent of the trace is no worse."""
    problem = hard_problem(contiguity, 300)
    start = pk.solve(problem, method="random:100", seed=1).placement
    assert start is not None
    result = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(0.5), warm_start=start)
    assert result.objective is not None
    assert result.objective <= (pk.evaluate(problem, start).objective or 0)


def test_infeasible_memory_is_proven(diamond: pk.Problem) -> None:
    """Three devices that hold the bytes in sum but not in any division of the ops."""
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 3.0, "cpu": 3.0})
    costs = diamond.costs.replace(op_memory_bytes=np.array([2.0, 2.0, 2.0, 2.0]))
    result = pk.solve(diamond.replace(platform=platform, costs=costs), method="cpsat")
    assert result.status is pk.Status.INFEASIBLE
    assert "the search was exhaustive" in str(result.violations[0])


def test_target_gap_stops_early(workloads: Path) -> None:
    """A gap of 20 % is reached before the proof, and reported as such."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem, method="cpsat", stop=pk.TargetGap(0.2))
    assert result.gap is not None
    assert result.gap <= 0.2
    assert result.stop_reason in (pk.StopReason.GAP, pk.StopReason.PROVED)


def test_wrong_parameters_are_explained() -> None:
    """Arguments that are no number of workers say what they should be."""
    with pytest.raises(InvalidProblemError, match="workers is 'many'; it must be a whole number"):
        get_method("cpsat:many")
    with pytest.raises(InvalidProblemError, match="workers is 0; it must be >= 1"):
        get_method("cpsat:0")

"""Constraint programming for the makespan: optimal by enumeration, bounds that hold."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan
from ortools.sat.python import cp_model
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import UnsupportedProblemError
from placekit.solve.method import Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solvers.backends.cpsat import CpsatLimits, CpStatus, search
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.exact import proofs
from placekit.solvers.makespan.exact.cp_method import limit_to_refute
from placekit.solvers.makespan.exact.cp_model import MakespanModel
from placekit.solvers.makespan.schedule.tasks import Tasks, make_tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, timetable_of

NO_CONTIGUITY = st.just(pk.Contiguity.NONE)


def known(problem: pk.Problem, seed: int = 0) -> tuple[Tasks, pk.Placement, Timetable, float]:
    """Return the tasks, and a schedule by a short annealing."""
    result = pk.solve(problem, method="local-search", params={"patience": 1, "steps": 10}, seed=seed)
    assert result.placement is not None
    assert result.objective is not None
    tasks = make_tasks(problem)
    evaluation = pk.evaluate(problem, result.placement)
    return tasks, result.placement, timetable_of(result.placement, evaluation, tasks), result.objective


@given(SMALL)
@examples(100)
def test_cpsat_finds_the_optimum(problem: pk.Problem) -> None:
    """Against enumeration of placements and orders, with memory, classes, pins and unsupported ops."""
    optimum = best_makespan(problem)
    result = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(120))
    if optimum is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(optimum, rel=2 * SOLVER_TOLERANCE, abs=0)
    assert result.lower_bound is not None
    assert result.lower_bound <= optimum * (1 + 1e-9)


@given(SMALL)
@examples(100)
def test_a_limit_is_refuted_below_the_optimum_only(problem: pk.Problem) -> None:
    """The program without objective, one worker, no linear relaxation: at the optimum a schedule, below none."""
    optimum = best_makespan(problem)
    assume(optimum is not None and optimum > 0)
    assert optimum is not None
    tasks = make_tasks(problem)

    def decide(limit_s: float) -> CpStatus:
        windows = narrow(tasks, limit_s)
        if windows is None:
            return CpStatus.INFEASIBLE
        model = MakespanModel(tasks, windows, limit_s, 0.0, decides=True)
        return search(model, CpsatLimits(refutes=True), lambda *_: None, None, lambda: False)

    assert decide(optimum * (1 + 1e-9)) is CpStatus.OPTIMAL
    assert decide(optimum * 0.9) is CpStatus.INFEASIBLE


def test_the_next_limit_divides_the_gap_down_to_the_one_asked_for() -> None:
    """A third of the gap is left, or the gap that was asked for; without one, in the end the best makespan."""
    problem = generate("layered", 20, objective=pk.Makespan()).replace(contiguity=pk.Contiguity.NONE)
    best = pk.solve(problem, method="heft")
    assert best.placement is not None
    assert best.objective is not None

    def next_limit_s(stop: pk.TargetGap | None, gap: float) -> float:
        run = Run(problem, stop)
        assert best.placement is not None
        run.offer(best.placement)
        assert run.objective is not None
        run.raise_bound(run.objective * (1 - gap), "a test")
        return limit_to_refute(run) / run.objective

    assert next_limit_s(pk.TargetGap(0.01), 0.3) == pytest.approx(0.9)
    assert next_limit_s(pk.TargetGap(0.01), 0.02) == pytest.approx(0.99)
    assert next_limit_s(pk.TargetGap(0.01), 0.02) >= 0.99
    assert next_limit_s(None, 0.02) == pytest.approx(1 - 0.02 / 3)
    assert next_limit_s(None, 0.005) == pytest.approx(1 - 0.005 / 3)
    assert next_limit_s(None, 5e-5) == 1.0


@given(SMALL)
@examples(30)
def test_adding_a_device_never_hurts_the_optimum(problem: pk.Problem) -> None:
    """A second device of the first kind leaves the shortest schedule as it is, or shortens it."""
    twin = problem.platform.devices[0].replace(name="one more")
    wider = problem.replace(platform=problem.platform.replace(devices=(*problem.platform.devices, twin)))
    before, after = (pk.solve(each, method="cpsat", stop=pk.MaxRuntime(120)).objective for each in (problem, wider))
    if before is not None:
        assert after is not None
        assert after <= before * (1 + 2 * SOLVER_TOLERANCE)


@given(
    problems(
        max_ops=5, max_kinds=2, max_devices=3, objective=st.just(pk.Makespan(contention=True)), contiguity=NO_CONTIGUITY
    )
)
@examples(40)
def test_the_bound_holds_with_contention(problem: pk.Problem) -> None:
    """The model leaves the bus out, its bound is that of the problem without; what it leaves open is enumerated."""
    result = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(120))
    without_bus = best_makespan(problem)
    if without_bus is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    optimum = pk.solve(problem, method="enumerate").objective
    assert optimum is not None
    assert without_bus <= optimum * (1 + SOLVER_TOLERANCE)
    assert result.objective is not None
    assert result.lower_bound is not None
    assert result.lower_bound <= optimum * (1 + SOLVER_TOLERANCE)


@given(st.data(), SMALL)
@examples(60)
def test_every_schedule_rounds_to_a_solution(data: st.DataObject, problem: pk.Problem) -> None:
    """The hint of a feasible schedule is a solution of the program, whose value is below its makespan in units."""
    run = pk.solve(problem, method="random:20", seed=data.draw(st.integers(0, 9)))
    assume(run.placement is not None and run.objective)
    assert run.placement is not None
    assert run.objective is not None
    tasks = make_tasks(problem)
    plan = timetable_of(run.placement, pk.evaluate(problem, run.placement), tasks)
    windows = narrow(tasks, run.objective)
    assert windows is not None
    model = MakespanModel(tasks, windows, run.objective)
    assert model.hint(plan)
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    assert solver.solve(model.proto) == cp_model.OPTIMAL
    assert model.scale.bound_s(solver.objective_value) <= run.objective * (1 + 1e-9)
    assert run.objective <= model.scale.at_most_s(solver.objective_value)


def test_contiguity_is_refused(diamond: pk.Problem) -> None:
    """The model keeps no part connected, and says so."""
    problem = diamond.replace(objective=pk.Makespan(), contiguity="acyclic")
    with pytest.raises(UnsupportedProblemError, match="contiguity none"):
        pk.solve(problem, method="cpsat")


def test_memory_that_only_two_devices_have_is_used() -> None:
    """Two ops of 6 bytes do not share 10 bytes, though a transfer costs more than both: 1 + 10 + 1 s."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = pk.CostTable(("d",), np.ones((2, 1)), np.full((1, 1), 5.0), np.full(2, 6.0))
    platform = pk.Platform.of(d=2, memory_bytes={"d": 10.0})
    result = pk.solve(pk.Problem(graph, platform, costs, pk.Makespan()), method="cpsat")
    assert (result.objective, result.status) == (12.0, pk.Status.OPTIMAL)


def test_steps_can_beat_every_order_of_a_device_that_never_idles() -> None:
    """Waiting for the op that feeds the other device is worth more than starting the one that is ready."""
    # d0 could start `long` (10 s) at 0; better it waits 1 s for `b`, whose reader needs 10 s on d1
    graph = pk.OpGraph.from_edges(["a", "b", "c", "long"], [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("d",), np.array([[1.0], [1.0], [10.0], [10.0]]), np.zeros((2, 1)), np.ones(4))
    problem = pk.Problem(graph, pk.Platform.of(d=2), costs, pk.Makespan()).pin(
        {"a": "d.1", "b": "d.0", "c": "d.1", "long": "d.0"}
    )
    result = pk.solve(problem, method="cpsat")
    assert (result.objective, result.status) == (12.0, pk.Status.OPTIMAL)
    assert result.placement is not None
    assert pk.evaluate(problem, pk.Placement.of(problem, result.placement.device_of_op)).objective == 21.0


def test_quick_bounds_of_a_large_graph_are_left_when_the_answer_is_wanted(
    diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that listens to nobody is not waited for; one that ends raises the bound, and what fails is told."""
    monkeypatch.setattr(proofs, "MAX_OPS_REFUTE", 0)  # any graph is large
    problem = diamond.replace(objective=pk.Makespan(), contiguity="none")
    run, is_left = Run(problem), threading.Event()
    proofs.Proof(run).quickly()
    assert run.bound_name == "critical path with transfers"

    def deaf(*_: object) -> Iterator[tuple[float, str]]:
        run.interrupted.set()  # Ctrl-C in the middle of it
        is_left.wait()
        yield 1e-9, "too late"

    monkeypatch.setattr(proofs, "quick_bounds", deaf)
    run = Run(problem)
    try:
        proofs.Proof(run).quickly()
    finally:
        is_left.set()
    assert run.bound is None

    def fails(*_: object) -> Iterator[tuple[float, str]]:
        raise pk.PlacekitError("x")

    monkeypatch.setattr(proofs, "quick_bounds", fails)
    with pytest.raises(pk.PlacekitError, match="x"):
        proofs.Proof(Run(problem)).quickly()

"""No bound above an optimum: instances on which one was, and the classes of problems that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz.problems import random_problem
from oracle import brute_force
from strategies import ALL

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnsupportedProblemError
from placekit.solve.lifting.without_links import without_links
from placekit.solvers.assignment.cpsat.solve import build_model
from placekit.solvers.backends.cpsat import CpsatLimits, CpStatus, search
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.offload_latency.bounds import rounded_down
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.offload_latency.series.series_program import solve_series
from placekit.solvers.offload_latency.series.spine import decompose
from placekit.solvers.throughput.bounds.bottleneck import bottleneck


def cost_table(kinds: tuple[str, ...], times: Any, moves: Any, num_bytes: Any, supported: Any = None) -> pk.CostTable:
    """Return the table of nested lists."""
    return pk.CostTable(kinds, times, moves, num_bytes, supported)


def pinned_to_the_middle() -> pk.Problem:
    """Everything on gpu.1 takes 1.00000011 s; presolve made 1.1 s of it."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")])
    costs = cost_table(("gpu",), [[1.0], [1e-7], [1e-8]], [[0.1], [0.0]], [0, 0, 0])
    return pk.Problem(graph, pk.Platform.of(gpu=3), costs).pin({"a": "gpu.1", "b": "gpu.1"})


def class_around_an_op(transfer_s: float) -> pk.Problem:
    """D -> a -> c with d and c in one class: with all in one call, nothing moves."""
    graph = pk.OpGraph.from_edges(["a", "free", "c", "d"], [("a", "c"), ("d", "a")])
    costs = cost_table(("acc", "cpu"), [[0, 0], [2e-4, 6e-4], [0, 0], [0.8, 0]], [[transfer_s, 0], [0, 0]], [0] * 4)
    platform = pk.Platform.of(acc=1, cpu=1, host="cpu")
    problem = pk.Problem(graph, platform, costs, pk.OffloadLatency())
    return problem.colocate(["c", "d"]).pin({"a": "acc.0", "d": "acc.0"})


def classes_that_nobody_waits_for() -> pk.Problem:
    """Three classes, none of whose inputs reach all outputs: one call can hold them all."""
    graph = pk.OpGraph.from_edges(list("012345"), [("0", "5"), ("5", "3"), ("3", "2"), ("1", "4")])
    times = [[7e-3, 0, 6e-3], [0, 7e-3, 2e-3], [0] * 3, [0] * 3, [0] * 3, [0] * 3]
    moves = [[0, 0, 0], [0, 1e-3, 0], [0, 0, 0], [0, 0.01, 0.01]]
    costs = cost_table(("cpu", "x", "y"), times, moves, [0] * 6)
    problem = pk.Problem(graph, pk.Platform.of(cpu=1, x=1, y=1, host="cpu"), costs, pk.OffloadLatency())
    return problem.colocate("05", "12", "34")


def free_of_contiguity() -> pk.Problem:
    """Presolve made 1.0009 ms of an optimum of 1 ms."""
    graph = pk.OpGraph.from_edges(["a", "b", "c", "d"], [("c", "d")])
    supported = [[True, True], [False, True], [True, True], [True, True]]
    times = [[0, 1e-5], [0, 1e-3], [1e-5, 0], [1e-6, 1e-4]]
    costs = cost_table(("gpu", "cpu"), times, [[1e-5, 1e-5]], [0] * 4, supported=supported)
    return pk.Problem(graph, pk.Platform.of(gpu=2, cpu=1, host="cpu"), costs, contiguity=Contiguity.NONE)


def without_presolve() -> pk.Problem:
    """HiGHS without presolve makes 88.3 of an optimum of 80, at coefficients between 1 and 87."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("b", "a")])
    supported = [[True, True], [False, True], [True, True]]
    times = [[2e-7, 8e-7], [0.0, 4e-7], [0.0, 7e-7]]
    costs = cost_table(("k0", "k1"), times, [[8e-7, 1e-6]], [0] * 3, supported=supported)
    return pk.Problem(graph, pk.Platform.of(k0=1, k1=2), costs, contiguity=Contiguity.NONE)


def convex_without_presolve() -> pk.Problem:
    """Return the same with down-sets: 42.9 of 41.9."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("b", "a"), ("c", "a"), ("c", "d")])
    costs = cost_table(("k",), [[0.0], [10.0], [41.887618825324516], [1.0]], [[0.0], [70.0]], [0] * 4)
    return pk.Problem(graph, pk.Platform.of(k=3), costs, contiguity=Contiguity.CONVEX).pin({"d": "k.1"})


REPORTED = {
    "pinned to the middle": pinned_to_the_middle(),
    "class around an op": class_around_an_op(2e-4),
    "class around an op, half the transfer": class_around_an_op(1e-4),
    "classes that nobody waits for": classes_that_nobody_waits_for(),
    "free of contiguity": free_of_contiguity(),
    "without presolve": without_presolve(),
    "convex, without presolve": convex_without_presolve(),
}


@pytest.mark.parametrize("method", ["bound", "dp", "ilp", "cpsat", "auto"])
@pytest.mark.parametrize("name", REPORTED)
def test_bug_bound_above_the_optimum(name: str, method: str) -> None:
    """Every method's bound is at most the enumerated optimum, and what it calls optimal is."""
    problem = REPORTED[name]
    optimum_s = brute_force(problem)
    assert optimum_s is not None
    try:
        result = pk.solve(problem, method, stop=pk.MaxRuntime(20))
    except UnsupportedProblemError as error:
        pytest.skip(str(error))
    assert result.lower_bound is None or result.lower_bound <= optimum_s * (1 + 1e-12)
    assert result.status is not pk.Status.OPTIMAL or result.objective == pytest.approx(optimum_s, rel=2e-6)


@pytest.mark.slow
def test_bottleneck_bounds_hold_on_random_problems() -> None:
    """With one device in detail and with several, from a ceiling that is far off and from the optimum."""
    checked = 0
    for case in range(400):
        # methods that know no direct links are given the relaxation without
        problem = without_links(random_problem(1, case, "throughput"))
        if problem.platform.num_devices**problem.num_classes > 100:
            continue
        optimum_s = brute_force(problem)
        if not optimum_s:
            continue
        checked += 1
        for factor in (1.0, 1.5):
            for num_detailed in (1, 2):
                bound_s = bottleneck(problem, upper_bound_s=factor * optimum_s, num_detailed=num_detailed)[0]
                assert bound_s is None or bound_s <= optimum_s * (1 + 1e-12), case
    assert checked > 80


def test_the_series_program_bounds_problems_with_colocation() -> None:
    """Classes that reach around other ops are where nets were charged that need not move."""
    rng = np.random.default_rng(3)
    checked, cases = 0, 400 if ALL else 100
    for case in range(cases):
        problem = random_problem(2, case, "offload-latency")
        num_ops = problem.graph.num_ops
        problem = problem.replace(contiguity=Contiguity.NONE, objective=pk.OffloadLatency())
        problem = problem.replace(colocation=rng.integers(0, max(1, num_ops - 1), num_ops))
        if problem.platform.num_devices**problem.num_classes > 100:
            continue
        optimum_s = brute_force(problem)
        if optimum_s is None:
            continue
        checked += 1
        flat = flatten_calls(problem)
        series = decompose(flat, 5000)
        assert series is not None
        plan = solve_series(flat, series, is_bound=True)
        assert plan is not None
        assert rounded_down(flat, plan.latency_s) <= optimum_s * (1 + 1e-12), case
    assert checked > cases / 5


def test_bug_cover_rows_join_the_program_while_the_solver_runs() -> None:
    """Two ops that miss a device by 100 bytes of 8e9: PuLP read a row that the solver did not have."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = cost_table(("k",), [[1.0], [1.0]], [[0.5]], [4e9, 4e9 + 100])
    platform = pk.Platform.of(k=2, memory_bytes={"k": 8e9})
    for objective in (pk.SerialLatency(), pk.Throughput(), pk.OffloadLatency()):
        problem = pk.Problem(graph, platform, costs, objective)
        result = pk.solve(problem, "ilp")
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == brute_force(problem)


def test_an_interrupted_bound_says_nothing() -> None:
    """A tree that may not look at a single node proves nothing."""
    assert bottleneck(without_presolve(), should_stop=lambda: True)[0] is None


def inclusion_presolve() -> pk.Problem[pk.SerialLatency]:
    """CP-SAT's presolve makes 0.9 ms of an optimum of 0.5 ms in a program of 20 variables; found by fuzzing."""
    names = [f"o{op}" for op in range(7)]
    readers = {"o3": "06524", "o0": "6524", "o1": "54", "o6": "2", "o5": "24", "o2": "4"}
    graph = pk.OpGraph.from_edges(names, [(name, f"o{other}") for name, others in readers.items() for other in others])
    op_time_s = np.array(
        [[2e-4, 6e-4], [1e-11, 7e-4], [0, 5e-11], [0, 8e-11], [3e-4, 1e-11], [4e-11, 7e-11], [9e-11, 0]]
    )
    enters_s = {"o3": 2e-4, "o0": 5e-11, "o1": 1e-4, "o6": 4e-4, "o5": 9e-11, "o2": 6e-11}
    transfer_s = np.array([[0, enters_s[names[producer]]] for producer in graph.tensor_producer])
    memory = 1e6 * np.array([297.105329, 535.329013, 230.698445, 769.751691, 227.615971, 949.942653, 77.440030])
    devices = (
        pk.Device("d0", "k0", memory_bytes=2527832819.4, is_host=True),
        pk.Device("d1", "k1", memory_bytes=1474663954.9),
    )
    costs = pk.CostTable(("k0", "k1"), op_time_s, transfer_s, memory)
    return pk.Problem(graph, pk.Platform(devices), costs, pk.SerialLatency())


@pytest.mark.parametrize("presolve", [False, True])
def test_bug_presolve_of_the_constraint_solver_cuts_off_the_optimum(presolve: bool) -> None:
    """The presolve of sets inside sets is switched off in every search, also where a model is presolved."""
    model = build_model(contract(inclusion_presolve()), None)
    bounds = [0.0]
    outcome = search(model, CpsatLimits(presolve=presolve), lambda *_: None, bounds.append, lambda: False)
    assert outcome is CpStatus.OPTIMAL
    assert model.scale.bound_s(max(bounds)) <= 0.00050000033


def test_a_small_program_is_solved_despite_presolve() -> None:
    """Method `cpsat` proves the optimum of that program."""
    result = pk.solve(inclusion_presolve(), "cpsat")
    assert result.objective == pytest.approx(0.00050000033, rel=1e-6)

"""All schedules in the order of time: the optimum of enumeration, and bounds that hold wherever a search is cut off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, known_optimum
from strategies import examples

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.method import Run
from placekit.solvers.makespan.bounds.quick import first_heads_tails
from placekit.solvers.makespan.bounds.windows import Windows, narrow
from placekit.solvers.makespan.exact.a_star import MAX_OPS_A_STAR, least_makespan, search_all_schedules
from placekit.solvers.makespan.exact.a_star_state import chronology_of
from placekit.solvers.makespan.exact.proofs import Proof
from placekit.solvers.makespan.schedule.tasks import make_tasks

EPS = 2e-9


def windows_of(problem: pk.Problem, limit_s: float) -> Windows:
    """Return the windows under a limit that some schedule keeps."""
    tasks = make_tasks(problem)
    windows = narrow(tasks, limit_s, first_heads_tails(tasks))
    assert windows is not None
    return windows


def is_free(problem: pk.Problem) -> bool:
    """Return True if the search leaves nothing out: every op has a class of its own, no memory limit, no bus."""
    has_limit = any(device.memory_bytes is not None for device in problem.platform.devices)
    alone = len(np.unique(problem.op_class)) == problem.graph.num_ops
    assert isinstance(problem.objective, pk.Makespan)
    return alone and not has_limit and not problem.objective.contention


@given(SMALL, st.sampled_from([1.0, 1.1, 1.5, 10.0]), st.sampled_from([60, 200, 50_000]))
@examples(400)
def test_the_optimum_of_enumeration(problem: pk.Problem, limit: float, num_states: int) -> None:
    """Never above it, however few states there are; and equal to it if the search ends and leaves nothing out."""
    optimum = known_optimum(problem)
    assume(optimum > 0)
    windows = windows_of(problem, limit * optimum)
    bound, is_exact, device, end = least_makespan(
        chronology_of(make_tasks(problem), windows, limit * optimum), 1.0, num_states
    )
    bound_s = bound * limit * optimum
    assert bound_s <= optimum * (1 + EPS)
    if num_states == 50_000:
        assert is_exact
    if is_exact and is_free(problem):
        assert bound_s == pytest.approx(optimum, rel=EPS)
    if device[0] >= 0 and is_free(problem):
        assert end.max() == pytest.approx(bound, rel=EPS)


@given(SMALL)
@examples(200)
def test_what_is_offered_is_the_optimum(problem: pk.Problem) -> None:
    """From a list schedule on: the bound holds, and where nothing is left out the judge confirms the schedule."""
    optimum = known_optimum(problem)
    run = Run(problem)
    placement = pk.solve(problem, "heft").placement
    assume(placement is not None and optimum > 0)
    assert placement is not None
    run.offer(placement)
    assume(run.objective is not None)
    Proof(run).by_a_star()
    assert run.bound is None or run.bound <= optimum * (1 + EPS)
    if is_free(problem):
        assert run.objective == pytest.approx(optimum, rel=1e-6)
        assert run.gap == pytest.approx(0.0, abs=1e-6)


def test_bug_ops_that_start_at_once_changed_places() -> None:
    """An op of no time before one of 1 s on the same device, both at 0 but for rounding: 18.099609375 s in all."""
    graph = pk.OpGraph.from_edges(["send", "work", "read"], [("send", "work"), ("work", "read")])
    times, supported = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    costs = pk.CostTable(("cpu", "gpu"), times, np.array([[0, 1], [0, 17.099609375]]), np.zeros(3), supported=supported)
    problem = pk.Problem(graph, pk.Platform.of(cpu=3, gpu=1), costs, pk.Makespan())
    run = Run(problem)
    run.offer(pk.Placement.of(problem, np.array([0, 3, 0])))
    assert run.objective == 19.099609375
    Proof(run).by_a_star()
    assert run.objective == 18.099609375


def test_bug_more_than_three_equal_devices_were_three() -> None:
    """Five ops between a source and a sink, on five equal devices: 3 s, where three devices take 4 s.

    The windows list three devices of a group of equal ones, which is enough for bounds that look at two ops at a time.
    """
    names = ["source", *"abcde", "sink"]
    graph = pk.OpGraph.from_edges(names, [("source", name) for name in "abcde"] + [(name, "sink") for name in "abcde"])
    costs = pk.CostTable(("gpu",), np.ones((7, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(7))
    problem = pk.Problem(graph, pk.Platform.of(gpu=5), costs, pk.Makespan())
    run = Run(problem)
    run.offer(pk.Placement.of(problem, np.array([0, 0, 0, 0, 1, 1, 0])))
    assert run.objective == 5.0
    Proof(run).by_a_star()
    assert run.objective == 3.0
    assert run.bound == pytest.approx(3.0, rel=1e-6)


@given(st.integers(0, 2**31), st.integers(4, 6), st.integers(0, 2))
@examples(60)
def test_as_the_program_on_many_devices(seed: int, num_equal: int, num_others: int) -> None:
    """Up to eight ops side by side, four to six equal devices, others beside them: as the constraint program says."""
    rng = np.random.default_rng(seed)
    num_ops = int(rng.integers(4, 9))
    names = [f"o{v}" for v in range(num_ops)]
    edges = [(names[u], names[v]) for u in range(num_ops) for v in range(u + 1, num_ops) if rng.random() < 0.2]
    graph = pk.OpGraph.from_edges(names, edges)
    times = rng.integers(1, 6, (num_ops, 2)).astype(np.float64)
    costs = pk.CostTable(("cpu", "gpu"), times, rng.integers(0, 3, (graph.num_tensors, 2)) / 1.0, np.zeros(num_ops))
    problem = pk.Problem(graph, pk.Platform.of(cpu=num_others, gpu=num_equal), costs, pk.Makespan())
    exact = pk.solve(problem, "cpsat", stop=pk.MaxRuntime(60))
    assert exact.status is pk.Status.OPTIMAL
    assert exact.objective is not None
    run = Run(problem)
    run.offer(np.full(num_ops, problem.platform.num_devices - 1))
    Proof(run).by_a_star()
    assert run.objective == pytest.approx(exact.objective, rel=1e-6)
    assert run.bound is not None
    assert run.bound <= exact.objective * (1 + EPS)
    assert run.bound == pytest.approx(exact.objective, rel=1e-6)


@pytest.mark.parametrize(
    ("family", "num_devices", "equal", "ratio"),
    [("transformer", 2, True, 2.0), ("layered", 3, True, 1.0), ("layered", 2, False, 5.0), ("inception", 2, True, 0.5)],
)
def test_as_the_program_of_all_orders(family: str, num_devices: int, equal: bool, ratio: float) -> None:
    """Twenty to thirty ops: the same optimum, or a bound below it that does not fall as the search gets longer."""
    problem = generate(
        family, 26, num_devices=num_devices, equal=equal, transfer_ratio=ratio, objective=pk.Makespan()
    ).replace(contiguity="none")
    result = pk.solve(problem, "cpsat", stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective is not None
    limit_s = result.objective * 1.02
    windows = windows_of(problem, limit_s)
    chronology = chronology_of(make_tasks(problem), windows, limit_s)
    found = [least_makespan(chronology, 1.0, num_states) for num_states in (1_000, 10_000, 100_000)]
    bounds_s = [bound * limit_s for bound, *_ in found]
    assert bounds_s == sorted(bounds_s)
    assert bounds_s[-1] <= result.objective * (1 + EPS)
    assert found[-1][1] or bounds_s[0] < bounds_s[-1]
    for bound, is_exact, _, end in found:
        if is_exact:
            assert bound * limit_s == pytest.approx(result.objective, rel=1e-6)
            assert end.max() * limit_s == pytest.approx(result.objective, rel=1e-6)


def test_ops_that_take_no_time() -> None:
    """A makespan of 0 has nothing below it, and is no unit of time."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c")], name="no time")
    costs = pk.CostTable(("gpu",), np.zeros((3, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(gpu=2), costs, pk.Makespan())
    run = Run(problem)
    run.offer(np.zeros(3, dtype=np.int64))
    with np.errstate(all="raise"):
        Proof(run).by_a_star()
    assert run.objective == 0.0
    assert run.bound is None
    assert pk.solve(problem, "cpsat").status is pk.Status.OPTIMAL


def test_time_and_interruption_end_it() -> None:
    """Without time there is one short search; told to stop before, none."""
    problem = generate("layered", 60, num_devices=4, objective=pk.Makespan()).replace(contiguity="none")
    assert problem.graph.num_ops <= MAX_OPS_A_STAR
    result = pk.solve(problem, "heft")
    assert result.objective is not None
    tasks, windows = make_tasks(problem), windows_of(problem, result.objective)
    assert len(list(search_all_schedules(tasks, windows, result.objective, 0.0))) == 1
    assert not list(search_all_schedules(tasks, windows, result.objective, math.inf, lambda: True))

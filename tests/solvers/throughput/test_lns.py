"""Large-neighbourhood search: neighbourhoods that cost what they say, proofs, quality, anytime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.solve.registry import get_method
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.throughput.lns.neighbourhood import Neighbourhood, reduce_problem
from placekit.solvers.throughput.lns.search import is_below, profile_of
from placekit.solvers.throughput.local_search.anneal import score
from placekit.solvers.throughput.local_search.state import empty_state

THROUGHPUT = st.builds(pk.Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"]))
NONE = st.just(pk.Contiguity.NONE)


def tangled(num_ops: int, seed: int = 0) -> pk.Problem:
    """Return a random graph on three accelerators and a slow CPU, with transfers as dear as ops."""
    rng = np.random.default_rng(seed)
    names = [f"o{i}" for i in range(num_ops)]
    edges = {(names[int(rng.integers(max(0, i - 6), i))], names[i]) for i in range(1, num_ops) for _ in range(2)}
    graph = pk.OpGraph.from_edges(names, sorted(edges), name="tangled")
    times = rng.random((num_ops, 1)) * [[1.0, 6.0]]
    transfers = np.stack([rng.random(graph.num_tensors) * 0.5, np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("acc", "cpu"), times, transfers, rng.random(num_ops))
    return pk.Problem(graph, pk.Platform.of(acc=3, cpu=1, host="cpu"), costs, contiguity=pk.Contiguity.NONE)


@examples(200)
@given(problems(objective=THROUGHPUT, contiguity=NONE), st.integers(0, 2**31))
def test_neighbourhoods_cost_what_the_problem_costs(problem: pk.Problem, seed: int) -> None:
    """Moving free classes changes the loads of the devices concerned alike in both, and no other load."""
    flat = flatten(contract(problem))
    rng = np.random.default_rng(seed)
    num_classes, num_devices = flat.allowed.shape
    device = rng.integers(num_devices, size=(num_classes,))
    devices = rng.random((num_devices,)) < 0.6
    free = devices[device] & (rng.random((num_classes,)) < 0.7)
    reduced, cluster = reduce_problem(flat, device, Neighbourhood(free, devices))
    moved = device.copy()
    if devices.any():
        moved[free] = rng.choice(np.flatnonzero(devices), int(free.sum()))
    reduced_device = np.zeros(len(reduced.memory_bytes), dtype=np.int64)
    reduced_device[cluster] = moved
    assert (reduced_device[cluster] == moved).all()
    states = empty_state(flat), empty_state(flat), empty_state(reduced)
    score(flat, states[0], device)
    score(flat, states[1], moved)
    score(reduced, states[2], reduced_device)
    for name in ("work_s", "moved_s"):
        before, after, small = (getattr(state, name) for state in states)
        np.testing.assert_allclose(after[devices], small[devices], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(after[~devices], before[~devices], rtol=1e-9, atol=1e-9)
        assert not small[~devices].any()
    np.testing.assert_allclose(states[1].used_bytes, states[2].used_bytes, rtol=1e-9)


@examples(60)
@given(problems(max_ops=6, max_devices=3, objective=THROUGHPUT, contiguity=NONE))
def test_small_problems_are_solved_and_bounds_hold(problem: pk.Problem) -> None:
    """Where the whole problem is one neighbourhood the answer is proven; a bound is never above the optimum."""
    best = brute_force(problem)
    result = pk.solve(problem, method="lns:20")
    if best is None:
        assert result.placement is None
    elif result.objective is not None:
        assert result.objective >= best * (1 - 1e-9) - 1e-12
        assert result.lower_bound is not None
        assert result.lower_bound <= best * (1 + 1e-9) + 1e-12


def test_optimum_of_a_small_graph_is_proven() -> None:
    """Eight ops on four devices: equal to brute force, with the proof."""
    problem = tangled(8)
    result = pk.solve(problem, method="lns")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(brute_force(problem))


def test_answer_is_no_worse_than_local_search() -> None:
    """The neighbourhoods start where the local search ends, and only ever improve."""
    problem = tangled(120)
    start = pk.solve(problem, method="local-search:10", seed=1)
    result = pk.solve(problem, method="lns:6", seed=1, params={"effort": 0.2})
    assert start.objective is not None
    assert result.objective is not None
    assert result.objective <= start.objective


@pytest.mark.slow
def test_same_seed_same_answer() -> None:
    """Neighbourhoods are searched side by side, and still the seed alone decides."""
    problem = tangled(60)
    results = [pk.solve(problem, method="lns:6", seed=5, params={"effort": 0.1}) for _ in range(2)]
    assert results[0].placement == results[1].placement


def test_time_limit_returns_the_best() -> None:
    """The limit holds within a neighbourhood too, and the answer is the judge's."""
    problem = tangled(400)
    result = pk.solve(problem, method="lns", stop=pk.MaxRuntime(3), params={"effort": 100.0})
    assert result.stop_reason is pk.StopReason.TIME
    assert result.runtime_s < SOON_S
    assert result.placement is not None
    assert pk.evaluate(problem, result.placement).objective == result.objective


def test_public_workload_is_solved(workloads: Path) -> None:
    """BERT-3 at operator granularity: the proven non-contiguous optimum."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem.replace(contiguity="none"), method="lns", stop=pk.MaxRuntime(30))
    assert result.objective == pytest.approx(21.9083761057e-3, rel=SOLVER_TOLERANCE)


def test_contiguity_and_other_objectives_are_refused(diamond: pk.Problem) -> None:
    """The message says what to change."""
    with pytest.raises(UnsupportedProblemError, match="do not keep parts acyclic; use contiguity none"):
        pk.solve(diamond, method="lns")
    with pytest.raises(UnsupportedProblemError, match="throughput and makespan, not serial-latency"):
        pk.solve(diamond.replace(objective=pk.SerialLatency()), method="lns")


@pytest.mark.parametrize(
    ("argument", "params", "message"),
    [
        ("lns:x", {}, "patience is 'x'; it must be a whole number"),
        ("lns", {"effort": 0.0}, r"effort is 0\.0; it must be > 0"),
        ("lns", {"workers": 0}, "workers is 0; it must be >= 1"),
    ],
)
def test_wrong_parameters_are_explained(argument: str, params: dict[str, float], message: str) -> None:
    """Messages name the parameter, its value and its range."""
    with pytest.raises(InvalidProblemError, match=message):
        get_method(argument, params)


def test_profiles_compare_as_sorted_loads() -> None:
    """The largest load first, then the second; differences of rounding count as none."""
    ones, twos = np.array([[1.0], [3.0], [2.0]]), np.array([[3.0], [1.0], [1.0]])
    none = np.zeros_like(ones)
    assert profile_of(ones, none, False).tolist() == [3.0, 2.0, 1.0]
    assert is_below(profile_of(twos, none, False), profile_of(ones, none, False))
    assert not is_below(profile_of(ones, none, False), profile_of(twos, none, False))
    assert not is_below(profile_of(ones * (1 - 1e-15), none, False), profile_of(ones, none, False))
    assert profile_of(ones, twos, True).tolist() == [3.0, 3.0, 2.0]

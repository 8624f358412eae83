"""Constants that go along with the op that reads them: the same optimum, with memory and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.offload_latency.free_followers import free_followers


@examples(60)
@given(
    problems(max_ops=6, max_devices=3, objective=st.just(pk.OffloadLatency()), contiguity=st.just(pk.Contiguity.NONE)),
    st.lists(st.sampled_from([0.0, 0.0, 1.0]), min_size=6, max_size=6),
)
def test_program_with_free_ops_matches_brute_force(problem: pk.Problem, scale: list[float]) -> None:
    """Memory, pins, colours, support, several producers and readers: a bound above the optimum would be an error."""
    factor = np.array(scale)[: problem.graph.num_ops, None]
    problem = problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s * factor))
    best = brute_force(problem)
    result = pk.solve(problem, method="cpsat:1", stop=pk.MaxRuntime(30))
    if best is None:
        assert result.placement is None
        return
    assert result.lower_bound is None or result.lower_bound <= best * (1 + SOLVER_TOLERANCE)
    if result.status is pk.Status.OPTIMAL:
        assert result.objective == pytest.approx(best, rel=1.01 * SOLVER_TOLERANCE, abs=1e-300)


def test_constants_follow_their_reader_and_outputs_their_producer() -> None:
    """A constant of one reader and an output of one producer follow; a constant of two readers does not."""
    names = ["constant", "shared", "a", "b", "result"]
    edges = [("constant", "a"), ("shared", "a"), ("shared", "b"), ("a", "b"), ("b", "result")]
    graph = pk.OpGraph.from_edges(names, edges)
    times = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 9.0], [1.0, 9.0], [0.0, 0.0]])
    costs = pk.CostTable(("acc", "cpu"), times, np.tile([0.1, 0.0], (graph.num_tensors, 1)), np.ones(5))
    problem = pk.Problem(graph, pk.Platform.of(acc=2, cpu=1, host="cpu"), costs, pk.OffloadLatency())
    assert free_followers(flatten_calls(problem)) == {0: 2, 4: 3}
    twice = problem.replace(objective=pk.OffloadLatency(calls_per_device=2))
    assert free_followers(flatten_calls(twice)) == {}
    result = pk.solve(problem, method="auto", stop=pk.MaxRuntime(30))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(brute_force(problem))

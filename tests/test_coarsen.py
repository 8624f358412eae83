"""Contraction loses nothing: the optimum over contracted placements is the optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force, is_feasible, objective
from strategies import examples, problems

import placekit as pk
from placekit.solvers.generic.coarsen import contract


@st.composite
def problems_with_free_ops(draw: st.DrawFn) -> pk.Problem:
    """Draw a throughput problem in which many ops take no time, and most of those no memory."""
    problem = draw(problems())
    num_ops = problem.graph.num_ops
    free = np.array(draw(st.lists(st.sampled_from([True, True, False]), min_size=num_ops, max_size=num_ops)))
    light = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=num_ops, max_size=num_ops)))
    costs = problem.costs.replace(
        op_time_s=np.where(free[:, None], 0.0, problem.costs.op_time_s),
        op_memory_bytes=np.where(free & light, 0.0, problem.costs.op_memory_bytes),
    )
    if not isinstance(problem.objective, pk.Throughput):
        problem = problem.replace(objective=pk.Throughput())
    return problem.replace(costs=costs)


def best_contracted(problem: pk.Problem) -> float | None:
    """Return the optimum over placements of the contraction's classes, by enumeration."""
    contraction = contract(problem)
    devices = [np.flatnonzero(row).tolist() for row in contraction.allowed]
    best: float | None = None
    for choice in itertools.product(*devices):
        of_op = tuple(contraction.expand(np.array(choice, dtype=np.int64)).tolist())
        if is_feasible(problem, of_op):
            value = objective(problem, of_op)
            best = value if best is None else min(best, value)
    return best


@examples(200)
@given(problems_with_free_ops())
def test_contraction_keeps_the_optimum(problem: pk.Problem) -> None:
    """With free leaves, memory, unsupported ops, pins, colours and backward ops, under every contiguity."""
    best, contracted = brute_force(problem), best_contracted(problem)
    assert (best is None) == (contracted is None)
    if best is not None:
        assert contracted == pytest.approx(best, rel=1e-12)


@examples(200)
@given(problems_with_free_ops(), st.data())
def test_restricting_a_feasible_placement_does_not_hurt(problem: pk.Problem, data: st.DataObject) -> None:
    """Expanding the leaders' devices keeps a placement feasible and no worse."""
    choice = st.integers(0, problem.platform.num_devices - 1)
    labels = problem.op_class
    of_class = data.draw(st.lists(choice, min_size=int(labels.max()) + 1, max_size=int(labels.max()) + 1))
    before = tuple(of_class[c] for c in labels.tolist())
    if not is_feasible(problem, before):
        return
    contraction = contract(problem)
    after = tuple(contraction.expand(contraction.restrict(np.array(before))).tolist())
    assert is_feasible(problem, after)
    assert objective(problem, after) <= objective(problem, before) * (1 + 1e-12)


def test_a_chain_of_free_leaves_collapses(diamond: pk.Problem) -> None:
    """A chain of 1,000 free ops behind one op becomes part of it, and dp sees one class."""
    names = ["work", *(f"free{i}" for i in range(1000))]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)))
    time_s = np.zeros((1001, 1))
    time_s[0] = 1.0
    costs = pk.CostTable(("gpu",), time_s, np.ones((1000, 1)), np.zeros(1001))
    contraction = contract(pk.Problem(graph, pk.Platform.of(gpu=2), costs))
    assert contraction.num_classes == 1
    assert contraction.num_nets == 0
    assert graph.op_names[contraction.leader[0]] == "work"
    limited = pk.Problem(
        graph, pk.Platform.of(gpu=2, memory_bytes={"gpu": 1e6}), costs.replace(op_memory_bytes=np.ones(1001))
    )
    assert contract(limited).num_classes == 1001
    assert contract(diamond).num_classes == 4

"""List schedulers: their schedules are possible, their placements respect every constraint, the papers agree."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S, Stopwatch
from strategies import examples, problems

import placekit as pk
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.objectives.makespan.instance import make_instance
from placekit.objectives.makespan.ranks import mean_time_s, mean_transfer_s, upward_rank
from placekit.objectives.makespan.simulate import simulate_steps
from placekit.solve.method import Run
from placekit.solvers.makespan.lists import favourite_children as favourites
from placekit.solvers.makespan.lists import schedulers as lists
from placekit.solvers.makespan.lists.favourite_children import favourite_children
from placekit.solvers.makespan.lists.schedulers import ListScheduler

METHODS: list[type[ListScheduler]] = [
    lists.Heft,
    lists.MTopo,
    lists.MEtf,
    lists.MSct,
]
VARIANTS = st.builds(pk.Makespan, order=st.sampled_from(["fifo", "upward-rank"]), contention=st.booleans())

PAPER_COST = [
    [14, 16, 9],
    [13, 19, 18],
    [11, 13, 19],
    [13, 8, 17],
    [12, 13, 10],
    [13, 16, 9],
    [7, 15, 11],
    [5, 11, 14],
    [18, 12, 20],
    [21, 7, 16],
]
PAPER_EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip


@pytest.fixture
def topcuoglu() -> pk.Problem:
    """Return the example of Topcuoglu et al. 2002, figure 2: 10 tasks on 3 unequal processors, one tensor per edge.

    Communication between any two processors takes the weight of the edge: half of it on the link of each.
    """
    graph = pk.OpGraph(
        name="topcuoglu",
        op_names=tuple(f"n{i}" for i in range(1, 11)),
        op_types=("Op",) * 10,
        tensor_producer=np.array([u - 1 for u, _ in PAPER_EDGES]),
        consumer_offsets=np.arange(len(PAPER_EDGES) + 1),
        consumers=np.array([v - 1 for _, v in PAPER_EDGES]),
        tensor_bytes=np.zeros(len(PAPER_EDGES)),
    )
    transfer = np.repeat(np.array(list(PAPER_EDGES.values()))[:, np.newaxis] / 2, 3, axis=1)
    costs = pk.CostTable(("p1", "p2", "p3"), np.array(PAPER_COST, dtype=float), transfer, np.zeros(10))
    return pk.Problem(graph, pk.Platform.of(p1=1, p2=1, p3=1), costs, pk.Makespan())


def test_heft_is_that_of_the_paper(topcuoglu: pk.Problem) -> None:
    """Ranks of table 3 and the schedule of figure 3(a): makespan 80."""
    instance = make_instance(topcuoglu)
    ranks = upward_rank(instance, mean_time_s(instance), mean_transfer_s(instance))
    expected = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert ranks == pytest.approx(expected, abs=1e-3)
    result = pk.solve(topcuoglu, method="heft")
    assert result.objective == pytest.approx(80.0)


def makespan_problems(**options: Any) -> st.SearchStrategy[pk.Problem]:
    """Random problems under every variant of the objective."""
    return problems(objective=VARIANTS, contiguity=st.just(pk.Contiguity.NONE), **options)


@pytest.mark.parametrize("method", METHODS)
@given(problem=makespan_problems(), seed=st.integers(0, 3))
@examples(40)
def test_placements_respect_everything_but_tight_memory(
    method: type[ListScheduler], problem: pk.Problem, seed: int
) -> None:
    """Pins, classes and support always hold; what is broken, if anything, is a memory limit."""
    run = Run(problem, seed=seed)
    result = pk.solve(problem, method=method())
    if result.status is pk.Status.INFEASIBLE:
        return
    assert result.status is pk.Status.FEASIBLE or {v.constraint for v in result.violations} == {"memory"}
    if result.placement is not None:
        assert result.placement.step_of_op is not None
    # the plan itself: no two ops at once on a device, no op before its inputs
    instance = make_instance(problem)
    plan = method().plan(run, instance)
    step = np.empty(len(plan.device), dtype=np.int64)
    step[np.lexsort((instance.rank, plan.finish_s, plan.start_s))] = np.arange(len(step))
    replay = simulate_steps(instance, plan.device, step)
    assert not isinstance(replay, int)
    assert (replay.start_s <= plan.start_s).all()
    assert (plan.finish_s - plan.start_s >= -1e-9).all()


@pytest.mark.parametrize("method", METHODS)
@given(problem=makespan_problems(with_memory=False))
@examples(25)
def test_always_feasible_without_memory_limits(method: type[ListScheduler], problem: pk.Problem) -> None:
    """Unless pins, support and classes contradict each other there is always an answer."""
    assert pk.solve(problem, method=method()).status in (pk.Status.FEASIBLE, pk.Status.INFEASIBLE)


@pytest.mark.parametrize("method", METHODS)
def test_memory_limits_spread_the_ops(method: type[ListScheduler], diamond: pk.Problem) -> None:
    """Two bytes per accelerator: no device takes more than it may, though one would be fastest."""
    platform = pk.Platform.of(acc=2, memory_bytes={"acc": 2.0})
    costs = pk.CostTable(("acc",), np.ones((4, 1)), np.full((3, 1), 9.0), np.ones(4))
    problem = pk.Problem(diamond.graph, platform, costs, pk.Makespan())
    result = pk.solve(problem, method=method())
    assert result.status is pk.Status.FEASIBLE
    assert [load.memory_bytes for load in result.device_loads] == [2.0, 2.0]


@pytest.mark.parametrize("method", METHODS)
def test_corner_is_repaired_and_said(method: type[ListScheduler]) -> None:
    """Ops of 1 and 1 byte spread over devices of 2 leave no room for the one of 2 bytes; moving one of them does."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "c"), ("b", "c")])
    costs = pk.CostTable(("acc",), np.ones((3, 1)), np.full((2, 1), 0.25), np.array([1.0, 1.0, 2.0]))
    platform = pk.Platform.of(acc=2, memory_bytes={"acc": 2.0})
    result = pk.solve(pk.Problem(graph, platform, costs, pk.Makespan()), method=method())
    assert result.status is pk.Status.FEASIBLE
    assert ("repaired" in result.info) == (method is not lists.MTopo)  # which fills the first device with a and b


def test_corner_that_needs_a_swap_is_reported() -> None:
    """Bytes 2, 2 and 3 on devices of 3 and 4: after the greedy first choice no single move helps; that is said."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    times = np.array([[1.0, 9.0], [9.0, 9.0], [1.0, 1.0]])
    costs = pk.CostTable(("small", "large"), times, np.zeros((2, 2)), np.array([2.0, 2.0, 3.0]))
    platform = pk.Platform.of(small=1, large=1, memory_bytes={"small": 3.0, "large": 4.0})
    result = pk.solve(pk.Problem(graph, platform, costs, pk.Makespan()), method="heft")
    assert (result.status, result.placement) == (pk.Status.UNKNOWN, None)
    assert {violation.constraint for violation in result.violations} == {"memory"}
    assert "repaired" in result.info


def test_insertion_uses_a_gap() -> None:
    """A short op fits into the time in which a device waits for a transfer."""
    # a on 0, then c waits 4 s for b's tensor; x (2 s, least urgent) fits in between
    graph = pk.OpGraph.from_edges(["a", "b", "c", "x"], [("a", "c"), ("b", "c")])
    costs = pk.CostTable(("acc",), np.array([[1.0], [1.0], [9.0], [2.0]]), np.full((2, 1), 2.0), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(acc=2), costs, pk.Makespan())
    problem = problem.pin({"a": "acc.0", "b": "acc.1", "c": "acc.0", "x": "acc.0"})
    assert pk.solve(problem, method="heft").objective == 14.0


def test_earliest_task_first_prefers_the_earliest_start() -> None:
    """Of two ops the first takes the fast device, the second starts at once on the slow one: 5 s, where HEFT has 2."""
    graph = pk.OpGraph.from_edges(["x", "y"], [])
    costs = pk.CostTable(("slow", "fast"), np.array([[5.0, 1.0]] * 2), np.zeros((0, 2)), np.zeros(2))
    problem = pk.Problem(graph, pk.Platform.of(slow=1, fast=1), costs, pk.Makespan())
    assert pk.solve(problem, method="m-etf").objective == 5.0
    assert pk.solve(problem, method="heft").objective == 2.0


def test_devices_wait_for_favourite_children() -> None:
    """The favourite child of a, whose tensor is slow to move, runs where a ran."""
    graph = pk.OpGraph.from_edges(["a", "b", "f", "z"], [("a", "f"), ("b", "f"), ("b", "z")])
    costs = pk.CostTable(("acc",), np.array([[2.0], [1.0], [5.0], [1.0]]), np.array([[4.0], [0.25]]), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(acc=2), costs, pk.Makespan())
    instance = make_instance(problem)
    found = favourite_children(instance, mean_time_s(instance), mean_transfer_s(instance))
    assert found.by == "linear program"
    assert found.child[0] == 2
    result = pk.solve(problem, method="m-sct")
    assert result.placement is not None
    assert result.placement["f"] == result.placement["a"]


@given(makespan_problems())
@examples(60)
def test_favourites_are_a_matching_of_edges(problem: pk.Problem) -> None:
    """Every favourite is a child, and no op is the favourite of two."""
    instance = make_instance(problem)
    child = favourite_children(instance, mean_time_s(instance), mean_transfer_s(instance)).child
    edges = set(zip(problem.graph.senders.tolist(), problem.graph.receivers.tolist(), strict=True))
    chosen = [(op, int(c)) for op, c in enumerate(child) if c >= 0]
    assert set(chosen) <= edges
    assert len({c for _, c in chosen}) == len(chosen)


def test_large_graphs_get_favourites_without_the_program(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the slowest transfers come first, and the result says so."""
    monkeypatch.setattr(favourites, "MAX_EDGES", 3)
    result = pk.solve(diamond.replace(objective=pk.Makespan(), contiguity="none"), method="m-sct")
    assert result.info["favourite_children"] == "slowest transfers first"


def test_topological_filling_shares_the_bytes() -> None:
    """Eight ops of one byte on two devices: a share is 4 + 1 bytes, so five go first and three second."""
    names = [f"op{i}" for i in range(8)]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    costs = pk.CostTable(("acc",), np.ones((8, 1)), np.zeros((7, 1)), np.ones(8))
    placement = pk.solve(pk.Problem(graph, pk.Platform.of(acc=2), costs, pk.Makespan()), method="m-topo").placement
    assert placement is not None
    assert placement.device_of_op.tolist() == [0] * 5 + [1] * 3


def test_other_problems_are_refused_with_the_reason(diamond: pk.Problem) -> None:
    """Other objectives and contiguity are named; so are parameters."""
    with pytest.raises(UnsupportedProblemError, match="serves makespan, not throughput"):
        pk.solve(diamond, method="heft")
    with pytest.raises(UnsupportedProblemError, match="does not look at contiguity acyclic"):
        pk.solve(diamond.replace(objective=pk.Makespan(), contiguity="acyclic"), method="heft")
    with pytest.raises(InvalidProblemError, match="'m-etf' has no parameters"):
        pk.solve(diamond, method="m-etf:3")


@pytest.mark.parametrize("method", METHODS)
def test_large_graphs_take_seconds(method: type[ListScheduler]) -> None:
    """20,000 ops and 40,000 edges on eight devices with tight memory; generous, for busy machines."""
    rng = np.random.default_rng(0)
    num_ops, width = 20_000, 40
    reader = np.arange(width, num_ops)
    readers = np.tile(reader, 2)
    producers = np.concatenate([(reader // width - 1) * width + rng.integers(0, width, len(reader)) for _ in range(2)])
    order = np.argsort(producers, kind="stable")
    producer, first = np.unique(producers[order], return_index=True)
    graph = pk.OpGraph(
        name="layers",
        op_names=tuple(f"op{i}" for i in range(num_ops)),
        op_types=("Op",) * num_ops,
        tensor_producer=producer,
        consumer_offsets=np.append(first, len(readers)),
        consumers=readers[order],
        tensor_bytes=np.ones(len(producer)),
    )
    costs = pk.CostTable(("acc",), rng.random((num_ops, 1)), rng.random((len(producer), 1)), np.ones(num_ops))
    platform = pk.Platform.of(acc=8, memory_bytes={"acc": num_ops / 8 * 1.05})
    problem = pk.Problem(graph, platform, costs, pk.Makespan())
    watch = Stopwatch()
    result = pk.solve(problem, method=method())
    assert watch.seconds() < SOON_S
    assert result.status is pk.Status.FEASIBLE

"""Calls along one path: bounds below every placement, and proofs where no op lies on every path."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracle
import pytest
from strategies import draws

import placekit as pk
from placekit.solve.method import Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solvers.offload_latency import path_calls
from placekit.solvers.offload_latency.flat import OffloadProblem, flatten_calls
from placekit.solvers.offload_latency.path_calls import (
    CALLS_ALONG_PATH,
    PathCalls,
    heaviest_path,
    raise_along_path,
    shortest,
)
from placekit.solvers.offload_latency.series.series_arrays import merged_groups


def random_problem(rng: np.random.Generator) -> pk.Problem:
    """Return a problem of few ops around a chain, on a host and two or three accelerators with little memory."""
    num_ops = int(rng.integers(4, 8))
    names = [f"op{i}" for i in range(num_ops)]
    edges = {(v - 1 if rng.random() < 0.5 else int(rng.integers(v)), v) for v in range(1, num_ops)}
    edges |= {(int(rng.integers(v)), v) for v in range(1, num_ops) if rng.random() < 0.4}
    graph = pk.OpGraph.from_edges(names, [(names[u], names[v]) for u, v in sorted(edges)])
    kinds = ("cpu", "acc", "big")[: int(rng.integers(2, 4))]
    limits = {kind: float(rng.integers(*span)) for kind, span in (("acc", (3, 9)), ("big", (6, 14))) if kind in kinds}
    platform = pk.Platform.of(cpu=1, acc=2, big=int("big" in kinds), host="cpu", memory_bytes=limits)
    times = np.stack([(20 if kind == "cpu" else 4) * rng.random(num_ops) for kind in kinds], axis=1)
    times[rng.random(num_ops) < 0.2] = 0.0
    supported = np.ones_like(times, dtype=bool)
    supported[rng.random(num_ops) < 0.1, 1] = False
    moves = np.stack([(0 if kind == "cpu" else 3) * rng.random(graph.num_tensors) for kind in kinds], axis=1)
    costs = pk.CostTable(kinds, times, moves, rng.integers(0, 5, num_ops).astype(float), supported)
    colours = np.where(rng.random(num_ops) < 0.2, 0, np.arange(1, num_ops + 1))
    return pk.Problem(graph, platform, costs, pk.OffloadLatency(int(rng.integers(1, 3))), colocation=colours)


def lattice(num_steps: int) -> pk.Problem:
    """Return a recurrent chain of which no op lies on every path: state outputs that nobody reads, and one mask."""
    names, edges = ["mask"], []
    for s in range(num_steps):
        names += [f"cell{s}", f"state{s}", f"gate{s}"]
        edges += [(f"cell{s}", f"state{s}"), (f"cell{s}", f"gate{s}"), ("mask", f"gate{s}")]
        edges += [(f"gate{s - 1}", f"cell{s}")] if s else []
    graph = pk.OpGraph.from_edges(names, edges)
    is_cell = np.array([name.startswith("cell") for name in names])
    times = np.stack([np.where(is_cell, 60.0, 0.0), np.where(is_cell, 6.0, 0.0)], axis=1)
    moves = np.stack([np.zeros(graph.num_tensors), np.full(graph.num_tensors, 5.0)], axis=1)
    costs = pk.CostTable(("cpu", "acc"), times, moves, np.where(is_cell, 3.0, 0.1))
    platform = pk.Platform.of(cpu=1, acc=4, host="cpu", memory_bytes={"acc": 10.0})
    return pk.Problem(graph, platform, costs, pk.OffloadLatency())


def along_path(problem: pk.Problem) -> tuple[list[float], Run]:
    """Return the bounds along the path as they come, and the run that has them."""
    run, found = Run(problem), []
    raise_along_path(run, flatten_calls(problem), lambda bound, _: found.append(bound), lambda: False)
    return found, run


def least_call(flat: OffloadProblem, path: list[int], group: int, first: int, last: int) -> float:
    """Return the least seconds of a set of nodes that fits and has these nodes of the path; infinity if there is none.

    Sets that no node leaves and comes back to, by enumeration.
    """
    before = np.eye(flat.num_nodes, dtype=bool)
    before[flat.senders, flat.receivers] = True
    for _ in range(flat.num_nodes):
        before = (before.astype(int) @ before.astype(int)) > 0
    best = math.inf
    for choice in itertools.product([False, True], repeat=flat.num_nodes):
        inside = np.array(choice)
        between = before[inside].any(axis=0) & before[:, inside].any(axis=1)
        wanted = [first <= at <= last for at in range(len(path))]
        if inside[path].tolist() != wanted or (between & ~inside).any():
            continue
        if flat.memory_bytes[inside].sum() > flat.limit_bytes[group]:
            continue
        seconds = float(flat.time_s[inside, group].sum())
        for n in range(flat.num_nets):
            sides = inside[flat.nodes_of_net(n)]
            seconds += float(flat.net_time_s[n, group]) if sides.any() and not sides.all() else 0.0
        best = min(best, seconds)
    return best


def test_no_bound_along_a_path_is_above_the_optimum() -> None:
    """Nor does it fall from one minimum cut to the next; most are the optimum."""
    rng, tight, solved = np.random.default_rng(7), 0, 0
    for _ in range(draws(1000)):
        problem = random_problem(rng).replace(objective=pk.OffloadLatency())
        best = oracle.brute_force(problem)
        if best is None:
            continue
        found, run = along_path(problem)
        assert found == sorted(found)
        assert max(found) <= best * (1 + 1e-9) + 1e-12
        assert run.objective is None or run.objective >= best * (1 - 1e-9) - 1e-12
        tight, solved = tight + (found[-1] >= best * (1 - SOLVER_TOLERANCE)), solved + 1
    assert tight >= solved / 3


@pytest.mark.parametrize("seed", range(draws(80)))
def test_no_call_is_bounded_above_its_least_time(seed: int) -> None:
    """Neither at once nor by minimum cuts with a price of memory, against all sets of nodes; cuts only raise it."""
    flat = flatten_calls(random_problem(np.random.default_rng(seed)))
    path = heaviest_path(flat)
    calls = PathCalls(flat, path, flat.time_s, flat.net_time_s, flat.limit_bytes)
    for g, i, j in itertools.product(range(flat.num_groups), range(len(path)), range(len(path))):
        at_once = calls.least_s[g, i, j]
        if i > j or math.isinf(at_once):
            assert i > j or math.isinf(least_call(flat, path.tolist(), g, i, j))
            continue
        calls.find(g, i, j)
        assert at_once <= calls.least_s[g, i, j]
        least = least_call(flat, path.tolist(), g, i, j)
        assert calls.least_s[g, i, j] <= least * (1 + 1e-9) + 1e-12
        assert flat.memory_bytes[calls.members[g, i, j]].sum() <= flat.limit_bytes[g]


def test_a_chain_with_ends_that_nobody_reads_is_proven() -> None:
    """No op lies on every path, so that there is no spine. Each call holds three cells, and moves the mask once."""
    problem = lattice(9)
    result = pk.solve(problem, "dp")
    assert result.status is pk.Status.OPTIMAL
    assert result.bound_name == CALLS_ALONG_PATH
    assert result.objective == pytest.approx(9 * 6.0 + 2 * 2 * 5.0 + 3 * 5.0)


def test_without_minimum_cuts_there_is_a_bound_and_no_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be in the calls is known at once."""
    monkeypatch.setattr(path_calls, "MAX_CUTS", 0)
    found, run = along_path(lattice(9))
    assert 9 * 6.0 < found[-1] <= 89.0
    assert run.objective is None


def test_the_shortest_path_counts_calls() -> None:
    """With one call the second half stays on the host."""
    least_s = np.array([[[1.0, np.inf], [np.inf, 1.0]]])
    less = np.array([[-1, 0]])
    one = shortest(least_s, np.array([5.0, 4.0]), less)
    assert one is not None
    assert (one.latency_s, one.calls) == (5.0, ((0, 0, 0),))
    two = shortest(least_s, np.array([5.0, 4.0]), np.array([[-1, 0, 1]]))
    assert two is not None
    assert (two.latency_s, two.calls) == (2.0, ((0, 0, 0), (0, 1, 1)))
    assert shortest(least_s, np.array([np.inf, np.inf]), less) is None
    assert len(merged_groups(flatten_calls(lattice(2)))[3][0]) == 5

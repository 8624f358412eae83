"""The series program where gaps are thinned or full of calls: never above the optimum."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from strategies import draws

import placekit as pk
from placekit.solve.method import Run
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.offload_latency.series import gap_calls
from placekit.solvers.offload_latency.series import spine as series_module
from placekit.solvers.offload_latency.series.gap_calls import look_inside
from placekit.solvers.offload_latency.series.series_program import solve_series
from placekit.solvers.offload_latency.series.spine import decompose

HOST_S = 50.0


def wide_problem(rng: np.random.Generator, *, slow_host: bool) -> pk.Problem:
    """Return a problem of one gap between two ops; with a slow host these stay there, and calls pay inside the gap."""
    num_ops = int(rng.integers(4, 7))
    inner = [f"v{i}" for i in range(num_ops)]
    edges = [(u, v) for i, u in enumerate(inner) for v in inner[i + 1 :] if rng.random() < 0.3]
    heads = [v for v in inner if rng.random() < 0.3 or not any(v == to for _, to in edges)]
    tails = [u for u in inner if not any(u == of for of, _ in edges)]
    edges += [("a", v) for v in heads] + [(u, "b") for u in tails]
    graph = pk.OpGraph.from_edges(["a", *inner, "b"], edges)
    shape = num_ops + 2
    host, call = (
        20 * rng.random(shape) * rng.choice([0, 1, 3], shape),
        3 * rng.random(shape) * rng.choice([0, 1], shape),
    )
    if slow_host:
        host, call = HOST_S * (1 + rng.random(shape)), rng.choice([0.2, 3.0], shape) * rng.random(shape)
        host[[0, -1]], call[[0, -1]] = 0.0, 1e6
    moves = 6 * rng.random(graph.num_tensors)
    limit = None if rng.random() < 0.5 else {"acc": float(rng.integers(3, 9))}
    return pk.Problem(
        graph,
        pk.Platform.of(cpu=1, acc=int(rng.integers(1, 3)), host="cpu", memory_bytes=limit),
        pk.CostTable(
            ("cpu", "acc"),
            np.stack([host, call], axis=1),
            np.stack([np.zeros_like(moves), moves], axis=1),
            rng.integers(0, 4, shape).astype(float),
        ),
        pk.OffloadLatency(),
    )


@pytest.mark.parametrize("slow_host", [False, True])
def test_no_bound_is_above_the_optimum_whatever_the_gaps_lack(monkeypatch: pytest.MonkeyPatch, slow_host: bool) -> None:
    """What is left out of a gap may be in the call of what is kept: then nothing of it moves."""
    monkeypatch.setattr(series_module, "FEWEST", 2)
    monkeypatch.setattr(gap_calls, "LARGEST", 1.0)
    rng, thinned = np.random.default_rng(28), 0
    for _ in range(draws(40)):
        problem = wide_problem(rng, slow_host=slow_host)
        best, flat = oracle.brute_force(problem), flatten_calls(problem)
        assert best is not None
        for most in (2, 8, 200):
            series = decompose(flat, most)
            assert series is not None
            thinned += len(series.dropped) > 0
            insides = look_inside(Run(problem), flat, series.between) if rng.random() < 0.1 else {}
            assert insides is not None
            bound = solve_series(flat, series, is_bound=True, insides=insides)
            assert bound is not None
            assert bound.latency_s <= best * (1 + 1e-9), (most, problem)
    assert thinned > draws(40)


def branches(num_gaps: int, num_calls: int) -> pk.Problem:
    """Return gaps of two slow branches one after the other: a call pays for either, and both need two calls."""
    names, edges = ["a0"], []
    for q in range(num_gaps):
        names += [f"u{q}", f"v{q}", f"a{q + 1}"]
        edges += [(f"a{q}", f"u{q}"), (f"a{q}", f"v{q}"), (f"u{q}", f"a{q + 1}"), (f"v{q}", f"a{q + 1}")]
    graph = pk.OpGraph.from_edges(names, edges)
    is_branch = np.array([name[0] != "a" for name in names])
    times = np.where(is_branch[:, None], [10.0, 1.0], [0.0, 1e3])  # the others stay on the host
    moves = np.tile([0.0, 1.0], (graph.num_tensors, 1))
    platform = pk.Platform.of(cpu=1, acc=num_calls, host="cpu")
    return pk.Problem(
        graph, platform, pk.CostTable(("cpu", "acc"), times, moves, np.zeros(len(names))), pk.OffloadLatency()
    )


def test_calls_inside_gaps_are_counted() -> None:
    """Two branches in one call take 1 + 2 + 2, in two calls 3: with five calls one gap of four has two."""
    problem = branches(4, 5)
    best_s = 3 + 3 * 5.0
    found = pk.solve(problem, "dp")
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best_s)


def test_what_a_gap_takes_by_the_number_of_its_calls() -> None:
    """One call inside takes 5 s, two take 3, more do not help; each comes with its calls."""
    problem = branches(2, 3)
    flat = flatten_calls(problem)
    series = decompose(flat, 100)
    assert series is not None
    insides = look_inside(Run(problem), flat, series.between)
    assert insides is not None
    known = [inside for inside in insides.values() if len(inside.calls) == 2]
    assert len(known) == 2
    for inside in known:
        assert inside.least_s == pytest.approx([5.0, 3.0])
        assert [len(calls or ()) for calls in inside.calls] == [1, 2]

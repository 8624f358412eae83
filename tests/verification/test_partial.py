"""What a part of a placement costs already is never more than what the whole one does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from forged import small
from fuzz.problems import random_problem

import placekit as pk
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import _Search, enumerate_all
from placekit.verification.heads import around
from placekit.verification.judge import broken_constraints, not_contiguous, objective
from placekit.verification.partial import least_latency, least_makespan, work_from
from placekit.verification.verify import verify


@pytest.mark.parametrize("name", ["offload-latency", "makespan", "throughput"])
@pytest.mark.parametrize("count", [400, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_part_is_never_above_the_whole(name: str, count: int) -> None:
    """Random placements, of which any ops are placed, or those that come first in topological order."""
    rng, compared = np.random.default_rng(28), 0
    for case in range(count):
        problem = random_problem(30, case, name)
        if name == "offload-latency":
            problem = problem.replace(objective=pk.OffloadLatency())
        exact = ExactProblem.of(problem)
        if any(not devices for devices in exact.allowed):
            continue
        device = [0] * exact.num_ops
        for group, ops in enumerate(exact.groups):
            d = int(rng.choice(exact.allowed[group]))
            for op in ops:
                device[op] = d
        whole = objective(exact, device)
        broken = dict(broken_constraints(exact, device))
        first = int(rng.integers(0, exact.num_ops + 1))
        is_first = [exact.position[op] < first for op in range(exact.num_ops)]
        for placed in (is_first, (rng.random(exact.num_ops) < 0.5).tolist()):
            some = [d if is_placed else -1 for d, is_placed in zip(device, placed, strict=True)]
            assert not_contiguous(exact, some) is None or "contiguity" in broken
            if name == "offload-latency":
                rest = work_from(exact) if placed is is_first else None
                least = least_latency(exact, some, rest)
                assert (least is None) <= (whole is None), case
            elif name == "makespan":
                least = least_makespan(exact, some, *around(exact))
            else:
                continue
            if whole is not None and least is not None:
                compared += 1
                assert exact.seconds(least) <= whole, case
    assert compared > count // 2 or name == "throughput"


STEPS = {
    pk.Throughput(): 7574,
    pk.Throughput(overlap=True): 5849,
    pk.SerialLatency(1.0): 24584,
    pk.OffloadLatency(): 11148,
    pk.Makespan(): 9295,
}
"""Steps in which the problems of the test below are solved, and all placements below their optima ruled out."""


@pytest.mark.parametrize("variant", STEPS)
def test_what_is_known_early_saves_steps(variant: pk.Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of a part that is never used would change no answer, but how many problems are small enough."""
    spent = 0

    def spend(search: _Search, steps: int) -> None:
        nonlocal spent
        spent += steps

    monkeypatch.setattr(_Search, "spend", spend)
    for case in range(12):
        rng = np.random.default_rng([66, case])
        edges = [a + b for a, b in itertools.combinations("abcdef", 2) if rng.random() < 0.4]
        times = rng.integers(0, 9, (6, 2)).astype(float).tolist()
        problem = small(
            variant,
            times,
            " ".join(edges),
            counts=(2, 1),
            move_s=rng.integers(0, 3, 2).astype(float).tolist(),
            size=1.0,
            memory={"p": float(rng.integers(2, 7))},
            contiguity=str(rng.choice(["none", "acyclic", "convex"])),
            host="q",
        )
        exact = ExactProblem.of(problem)
        found = enumerate_all(exact, None)
        while found.device is not None:
            found = enumerate_all(exact, objective(exact, found.device, found.step))
        assert found.is_complete
    assert spent <= STEPS[variant]


def test_offload_latency_of_many_ops_is_checked() -> None:
    """Twenty-four ops in two branches on three devices: 3**24 placements, most of which are known to be too long."""
    rng = np.random.default_rng(1)
    names = [f"o{op}" for op in range(24)]
    edges = [(names[op], names[op + 1]) for op in range(23) if op != 11]
    edges += [(names[0], names[12]), (names[11], names[23])]
    graph = pk.OpGraph.from_edges(names, edges)
    times = np.stack([rng.integers(1, 5, 24), rng.integers(3, 9, 24)], axis=1).astype(float)
    costs = pk.CostTable(("acc", "cpu"), times, np.full((graph.num_tensors, 2), [2.0, 0.0]), np.zeros(24))
    problem = pk.Problem(graph, pk.Platform.of(acc=2, cpu=1, host="cpu"), costs, pk.OffloadLatency())
    result = pk.solve(problem, "dp")
    assert verify(result, problem)["bound"].outcome == "checked"
    assert result.objective is not None
    exact = ExactProblem.of(problem)
    found = enumerate_all(exact, exact.seconds(round(result.objective / float(exact.tick)) + 1))
    assert found.device is not None

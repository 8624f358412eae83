"""Makespans of engines that take no order: every method is scored by the engine's rule, and free orders bound it."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import placekit as pk
from placekit.advice.order import order_note
from placekit.objectives.makespan.orders import EngineOrder
from placekit.solvers.makespan.search.engine_order import search_engine_order
from placekit.solvers.params import LocalSearchParams

RULES = [pk.Makespan(order, contention=bus, steps="none") for order in ("fifo", "upward-rank") for bus in (False, True)]


def random_problem(seed: int, objective: pk.Objective, num_ops: int = 5) -> pk.Problem:
    """Return a problem of two kinds with times that tie now and then, and a limit that binds now and then."""
    rng = np.random.default_rng(seed)
    names = [f"op{i}" for i in range(num_ops)]
    pairs = {(int(rng.integers(v)), v) for v in range(1, num_ops) for _ in range(2) if rng.random() < 0.6}
    graph = pk.OpGraph.from_edges(names, [(names[u], names[v]) for u, v in sorted(pairs)])
    times, moves = rng.integers(1, 9, (num_ops, 2)), rng.integers(0, 4, (graph.num_tensors, 2))
    costs = pk.CostTable(
        ("cpu", "gpu"), times.astype(float), moves.astype(float), rng.integers(0, 4, num_ops).astype(float)
    )
    limits = {"gpu": float(rng.integers(3, 9))} if rng.random() < 0.5 else None
    platform = pk.Platform.of(cpu=1, gpu=2, memory_bytes=limits)
    return pk.Problem(graph, platform, costs, objective)


@pytest.mark.parametrize("objective", RULES)
def test_all_placements_give_the_optimum_of_the_rule(objective: pk.Makespan) -> None:
    """The best placement by the rule is found, proven by enumeration, and confirmed."""
    for seed in range(3):
        problem = random_problem(seed, objective)
        result = pk.solve(problem)
        assert result.placement is not None
        assert result.placement.step_of_op is None
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == pytest.approx(oracle.brute_force(problem))
        assert result.bound_name == "all placements"
        assert pk.verify(result, problem).is_consistent


@pytest.mark.parametrize("method", ["heft", "m-etf", "m-topo", "local-search", "cpsat", "bound"])
def test_methods_are_scored_by_the_rule_and_bounded_by_free_orders(method: str) -> None:
    """No answer carries steps, none is better than its rule allows, and no bound exceeds the optimum."""
    for seed in range(3):
        problem = random_problem(seed, RULES[seed])
        best = oracle.brute_force(problem)
        assert best is not None
        result = pk.solve(problem, method, params={"patience": 2} if method == "local-search" else None)
        if result.placement is not None:
            assert result.placement.step_of_op is None
            ruled = oracle.objective(problem, tuple(result.placement.device_of_op.tolist()))
            assert result.objective == pytest.approx(ruled)
        assert result.lower_bound is None or result.lower_bound <= best * (1 + 1e-9)


def test_a_program_of_all_orders_says_that_its_bound_is_of_free_orders() -> None:
    """First come, first served takes 6 s where c could follow b at once; no order takes less than 4 s."""
    graph = pk.OpGraph.from_edges(list("abc"), [("b", "c")])
    costs = pk.CostTable(("cpu", "gpu"), np.array([[2.0, 9.0], [1.0, 9.0], [9.0, 3.0]]), np.zeros((1, 2)), np.zeros(3))
    free = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1), costs, pk.Makespan())
    problem = free.replace(objective=pk.Makespan(steps="none"))
    result = pk.solve(problem, "bound", warm_start=pk.Placement.of(problem, [0, 0, 1], [1, 0, 2]))
    assert result.objective == 6.0
    assert result.lower_bound == pytest.approx(4.0)
    assert result.bound_name is not None
    assert result.bound_name.endswith("of free orders")
    best = pk.solve(free)
    assert best.objective == 4.0
    assert best.placement is not None
    note = order_note(free, best.placement)
    assert note == "left to the runtime: 6 s by its rule, not the 4 s of the plan; `--steps none` plans for that"
    assert result.placement is not None
    assert order_note(problem, result.placement) is None


def test_steps_are_ignored_where_the_runtime_takes_none() -> None:
    """The judge scores a placement with steps as one without; a batch agrees with it."""
    problem = random_problem(7, pk.Makespan(steps="none"))
    device, step = [0, 1, 2, 1, 0], [4, 3, 2, 1, 0]
    value = pk.evaluate(problem, pk.Placement.of(problem, device, step)).objective
    assert value == pk.evaluate(problem, pk.Placement.of(problem, device)).objective
    assert isinstance(problem.objective.batch_score(problem), EngineOrder)
    assert problem.objective.batch_score(problem)(np.array([device]))[0] == value


def test_annealing_by_the_rule_finds_the_optimum() -> None:
    """On two chains that cross, where list scheduling is not the best, annealing is as good as enumeration."""
    from placekit.solve.method import Run

    for seed in (11, 12):
        problem = random_problem(seed, pk.Makespan(steps="none"), num_ops=6)
        run = Run(problem)
        search_engine_order(run, LocalSearchParams(patience=4, steps=50))
        assert run.objective == pytest.approx(oracle.brute_force(problem))


def test_a_hash_is_that_of_older_files_unless_the_runtime_takes_no_order() -> None:
    """The default leaves hashes as they are."""
    problem = random_problem(1, pk.Makespan())
    assert problem.objective.identity() == {"order": "fifo", "contention": False}
    assert problem.replace(objective=pk.Makespan(steps="none")).content_hash != problem.content_hash

"""Method ``enumerate``: the optimum of every small problem, or the proof that there is none."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from fuzz.optimum import enumerated_optimum
from fuzz.problems import OBJECTIVE_NAMES, random_problem
from hypothesis import given
from oracle import team_brute_force
from strategies import ALL, examples, teamed_problems

import placekit as pk
from placekit.model.errors import UnsupportedProblemError
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_steps
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.enumeration.items import items_of
from placekit.solvers.generic.enumeration.method import Enumerate
from placekit.solvers.generic.enumeration.orders import best_order
from placekit.solvers.generic.enumeration.scores import score_for


@pytest.mark.parametrize("objective", OBJECTIVE_NAMES)
def test_enumeration_agrees_with_the_judge_on_every_placement(objective: str) -> None:
    """Optimal or infeasible, always proven, on problems of every shape and constraint."""
    for case in range(8 if objective == "makespan" else 40):
        problem = random_problem(5, case, objective)
        optimum_s = enumerated_optimum(problem)
        result = pk.solve(problem, "enumerate")
        if optimum_s is None:
            assert result.status is pk.Status.INFEASIBLE
            continue
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == pytest.approx(optimum_s, rel=1e-11, abs=0)
        assert result.lower_bound is not None
        assert result.lower_bound <= optimum_s


@examples(40)
@given(teamed_problems(max_ops=4, max_devices=4))
def test_enumeration_goes_through_all_teams(problem: pk.Problem) -> None:
    """Every partition of the devices, under every contiguity."""
    best, result = team_brute_force(problem), pk.solve(problem, "enumerate")
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(best, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("objective", OBJECTIVE_NAMES)
def test_no_beginning_scores_more_than_what_it_can_become(objective: str) -> None:
    """The scores of the first items only rise, and end at the judge's value."""
    for case in range(20 if ALL else 8):
        problem = random_problem(6, case, objective)
        items = items_of(problem)
        score = score_for(items)
        assert score is not None
        rng = np.random.default_rng(case)
        places = np.array([rng.choice(np.flatnonzero(row)) for row in items.allowed if row.any()], dtype=np.int8)
        if len(places) < items.num_items:
            continue
        values = [float(score(places[None, :k])[0]) for k in range(1, items.num_items + 1)]
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(values))
        device, slot = items.expand(places.astype(np.int64))
        if isinstance(problem.objective, pk.Makespan):
            continue  # its last score is a bound on all orders
        judged = problem.objective.score(problem, device, slot)
        if judged.violations:
            assert np.isinf(values[-1]) or any(v.constraint == "calls" for v in judged.violations)
        else:
            assert values[-1] == pytest.approx(judged.objective_s, rel=1e-12, abs=0)


def test_the_best_order_is_the_best_of_all_orders() -> None:
    """With and without one transfer at a time, against every permutation."""
    checked = 0
    for case in range(40):
        problem = random_problem(7, case, "makespan")
        instance = instance_of(problem)
        rng = np.random.default_rng(case)
        allowed = instance.allowed
        if not allowed.any(axis=1).all():
            continue
        device = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
        for has_contention in (False, True):
            runs = [
                simulate_steps(instance, device, np.array(step), has_contention=has_contention)
                for step in itertools.permutations(range(instance.num_ops))
            ]
            least = min(run.makespan_s for run in runs if not isinstance(run, int))
            found, order = best_order(instance, device, has_contention, np.inf)
            assert found == pytest.approx(least, rel=1e-12, abs=0)
            step = np.argsort(order)
            again = simulate_steps(instance, device, step, has_contention=has_contention)
            assert not isinstance(again, int)
            assert again.makespan_s == pytest.approx(least, rel=1e-12, abs=0)
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("has_contention", [False, True])
def test_orders_that_equal_the_best_are_not_all_searched(has_contention: bool) -> None:
    """Eighteen ops that nothing joins: the 6e15 orders all take as long, in floating point too."""
    times = np.random.default_rng(0).uniform(0, 1, (18, 1))
    times[:9] = 0.0
    graph = pk.OpGraph.from_edges([f"o{i}" for i in range(18)], [])
    costs = pk.CostTable(("cpu",), times, np.zeros((0, 1)), np.zeros(18))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs, pk.Makespan(contention=has_contention))
    device = np.arange(18) % 2
    load_s = max(times[device == d].sum() for d in range(2))
    for most_s in (np.inf, 2 * load_s):
        assert best_order(instance_of(problem), device, has_contention, most_s)[0] == pytest.approx(load_s, rel=1e-12)
    assert best_order(instance_of(problem), device, has_contention, load_s / 2)[0] == load_s / 2


def ten_ops(objective: pk.Objective) -> pk.Problem:
    """Return ten ops in three layers on four devices of two kinds: a million placements."""
    rng = np.random.default_rng(0)
    names = [f"o{i}" for i in range(10)]
    layers = names[:3], names[3:7], names[7:]
    edges = [(u, v) for a, b in itertools.pairwise(layers) for u in a for v in b if rng.random() < 0.6]
    graph = pk.OpGraph.from_edges(names, edges)
    moves = rng.uniform(0, 0.5, (graph.num_tensors, 2)) * [1, 0]
    costs = pk.CostTable(("acc", "cpu"), rng.uniform(1, 5, (10, 2)), moves, np.zeros(10))
    return pk.Problem(graph, pk.Platform.of(acc=3, cpu=1, host="cpu"), costs, objective)


@pytest.mark.parametrize(
    "objective",
    [pk.Throughput(), pk.SerialLatency(0.3), pk.OffloadLatency(), pk.Makespan(), pk.Makespan(contention=True)],
)
def test_auto_proves_ten_ops_on_four_devices(objective: pk.Objective) -> None:
    """The promise for small problems, whatever the objective."""
    result = pk.solve(ten_ops(objective), "auto", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL


def test_enumeration_told_to_stop_keeps_what_it_has_proven() -> None:
    """Without any time the bound is that of no item at all."""
    run = Run(ten_ops(pk.Throughput()), pk.MaxRuntime(0))
    assert Enumerate().run(run) is StopReason.TIME
    assert run.bound is not None
    assert run.bound == 0.0


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("ilp", pk.Throughput()),
        ("ilp", pk.Throughput(teams="equal")),
        ("ilp", pk.SerialLatency()),
        ("bound", pk.Throughput()),
        ("bound", pk.Throughput(teams="any")),
        ("bound", pk.Makespan()),
    ],
)
def test_few_placements_are_enumerated_before_programs(
    method: str, objective: pk.Objective, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer is the same with the program; ``bound`` lists what it knows, and a model is written all the same."""
    rng = np.random.default_rng(1)
    graph = pk.OpGraph.from_edges(list("abcdef"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "e"), ("d", "f")])
    costs = pk.CostTable(("x", "y"), rng.uniform(1, 5, (6, 2)), rng.uniform(0, 2, (graph.num_tensors, 2)), np.zeros(6))
    problem = pk.Problem(graph, pk.Platform.of(x=2, y=1), costs, objective, pk.Contiguity.NONE)
    params = {"mps": str(tmp_path / "model.mps")} if method == "ilp" else {}
    quick = pk.solve(problem, method, params=params)
    assert quick.status is pk.Status.OPTIMAL
    assert quick.objective == pytest.approx(pk.solve(problem, "enumerate").objective, rel=1e-12)
    if method == "ilp":
        assert "solver_status" not in quick.info
        assert (tmp_path / "model.mps").exists()
    elif quick.bound_name == "all placements":
        assert quick.lower_bound == max(quick.info["lower_bounds_s"].values())
    monkeypatch.setattr("placekit.solvers.generic.enumeration.method.ENUMERATE_FIRST_UP_TO", 0)
    slow = pk.solve(problem, method)
    assert ("solver_status" in slow.info) == (method == "ilp")
    assert slow.lower_bound is not None
    assert quick.lower_bound is not None
    assert slow.lower_bound <= quick.lower_bound * (1 + 1e-9)
    if method == "ilp":
        assert slow.objective == pytest.approx(quick.objective, rel=1e-9)


def test_too_many_placements_are_refused() -> None:
    """A chain of 40 ops has more placements than can be looked at."""
    names = [f"o{i}" for i in range(40)]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)))
    costs = pk.CostTable(("a", "b"), np.ones((40, 2)), np.ones((39, 2)), np.zeros(40))
    problem = pk.Problem(graph, pk.Platform.of(a=1, b=1), costs)
    with pytest.raises(UnsupportedProblemError, match=r"1\.1e\+12 placements; 6\.0e\+06 can be enumerated"):
        pk.solve(problem, "enumerate")

"""The dynamic program over ideals against every plan of small problems."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fuzz.training_plans import brute_force, random_training_problem
from strategies import ALL

from placekit.solve.result import OPTIMALITY_TOLERANCE, Status
from placekit.solve.stop import StopReason
from placekit.solvers.training_plan.dp import TrainingDp
from placekit.solvers.training_plan.knapsack import Budget, ChoiceRows, Scratch, Span, choose
from placekit.training.problem import Choice, Layer, Restrictions, TrainingProblem
from placekit.training.result import PlanRun


def check(problem: TrainingProblem) -> Status:
    """Compare `dp` with brute force on one problem: objective, bound, and what is impossible."""
    expected = brute_force(problem)
    run = PlanRun(problem)
    reason = TrainingDp().run(run)
    assert "knapsacks_given_up" not in run.info
    if expected is None:
        assert run.objective is None
        assert reason is StopReason.PROVED
        assert run.infeasible_because
        return Status.INFEASIBLE
    assert run.objective == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert run.bound is not None
    assert run.bound <= expected * (1 + 1e-12)
    assert run.is_proven
    assert run.tolerance == OPTIMALITY_TOLERANCE
    return Status.OPTIMAL


def with_scales(problem: TrainingProblem, rng: np.random.Generator) -> TrainingProblem:
    """Return the problem with choices whose times differ by up to nine orders of magnitude."""

    def scaled(choice: Choice) -> Choice:
        return replace(choice, time_s=choice.time_s * float(rng.choice([1e-9, 1e-5, 1.0])))

    def layer(each: Layer) -> Layer:
        return replace(each, choices={t: tuple(map(scaled, listed)) for t, listed in each.choices.items()})

    return replace(problem, layers=tuple(map(layer, problem.layers)))


@pytest.mark.parametrize("seed", range(4))
def test_times_of_unequal_size_are_proven(seed: int) -> None:
    """Sums over all layers lose more than a fast stage takes: layers are added up one by one where that matters."""
    rng = np.random.default_rng(seed)
    for _ in range(150 if ALL else 30):
        check(with_scales(random_training_problem(rng, most_layers=4), rng))


@pytest.mark.parametrize("seed", range(8 if ALL else 2))
def test_dp_matches_brute_force(seed: int) -> None:
    """Of all plans none is better, no bound is above the best, and both outcomes occur."""
    rng = np.random.default_rng(seed)
    outcomes = [check(random_training_problem(rng, most_layers=5)) for _ in range(60)]
    assert outcomes.count(Status.INFEASIBLE) > 2
    assert outcomes.count(Status.OPTIMAL) > 10


@pytest.mark.slow
def test_dp_matches_brute_force_5000() -> None:
    """The same on 5,000 problems of up to 6 layers."""
    rng = np.random.default_rng(2021)
    outcomes = [check(random_training_problem(rng)) for _ in range(5000)]
    assert outcomes.count(Status.OPTIMAL) > 2000


@pytest.mark.parametrize("seed", range(3))
def test_restrictions_are_kept_and_proven(seed: int) -> None:
    """Each restriction gives the best plan of those that keep it: the same as a problem without the choice."""
    rng = np.random.default_rng(100 + seed)
    for _ in range(15):
        problem = random_training_problem(rng, most_layers=4)
        for rules in (Restrictions(data_parallel=False), Restrictions(tensor_parallel=False)):
            restricted = problem.replace(restrictions=rules)
            run = PlanRun(restricted)
            TrainingDp().run(run)
            best = brute_force_restricted(restricted)
            assert (run.objective is None) == (best is None)
            if best is not None:
                assert run.objective == pytest.approx(best, rel=1e-9, abs=1e-12)


def brute_force_restricted(problem: TrainingProblem) -> float | None:
    """Return the best objective of plans that keep the restrictions, by a problem that cannot break them."""
    rules = problem.restrictions
    if not rules.tensor_parallel:
        first = problem.tensor_degrees[0]
        layers = tuple(type(v)(v.name, {first: v.choices[first]}) for v in problem.layers)
        return brute_force(problem.replace(layers=layers, restrictions=Restrictions()))
    return brute_force(problem, most_replicas=1)


def test_dp_matches_brute_force_on_equal_layers() -> None:
    """Knapsacks over equal layers take their choices in one order, and still find every count."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        problem = random_training_problem(rng, most_layers=1)
        num_layers = 7
        if problem.edges:
            continue
        equal = problem.replace(
            layers=problem.layers * num_layers, num_devices=1, memory_bytes=float(rng.integers(20, 90))
        )
        check(equal)


@pytest.mark.parametrize("seed", range(4 if ALL else 2))
def test_choices_of_a_stage_match_enumeration(seed: int) -> None:
    """The knapsack says "fits" exactly where some choice of every layer keeps both budgets."""
    rng = np.random.default_rng(seed)
    for _ in range(120 if ALL else 40):
        n = int(rng.integers(1, 8))
        counts = rng.integers(1, 4, n)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        size = int(offsets[-1])
        cost, held = rng.integers(0, 20, size).astype(float), rng.integers(0, 20, size).astype(float)
        totals = {
            (sum(cost[list(rows)]), sum(held[list(rows)]))
            for rows in itertools.product(*(range(offsets[i], offsets[i + 1]) for i in range(n)))
        }
        zeros, none = np.zeros(size), np.zeros(0, dtype=np.int64)
        choices = ChoiceRows(
            offsets, cost, zeros, zeros, held, np.zeros(size + 1, dtype=np.int64), none, np.zeros(0), np.arange(n),
        )  # fmt: skip
        bits = np.array([[0], [(1 << n) - 1]], dtype=np.uint64)
        scratch = Scratch.of(offsets, n)
        picked = scratch.picked
        for _ in range(20):
            budget, memory = float(rng.integers(0, 15 * n)), float(rng.integers(0, 15 * n))
            found = choose(choices, bits, Span(0, 1, 0), Budget(1, 0.0, budget, memory), 10**6, scratch)
            assert found == any(t <= budget and m <= memory for t, m in totals)
            if found:
                assert (picked >= offsets[:-1]).all()
                assert (picked < offsets[1:]).all()
                assert cost[picked].sum() <= budget
                assert held[picked].sum() <= memory

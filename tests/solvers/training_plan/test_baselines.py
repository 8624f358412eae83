"""Baselines, restrictions, limits and proofs that nothing fits, through the verb."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.training_plans import random_training_problem
from strategies import ALL

from placekit.model.errors import UnknownNameError
from placekit.solve.result import Status
from placekit.solve.stop import MaxRuntime, StopReason
from placekit.solvers.training_plan.solve import PLAN_METHODS, solve_plan
from placekit.training.evaluate import evaluate_plan
from placekit.training.generate import chain_problem, recurrent_problem
from placekit.training.problem import Restrictions
from placekit.training.transformer import transformer_problem


@pytest.mark.parametrize("method", PLAN_METHODS)
def test_no_method_is_below_the_proven_optimum(method: str) -> None:
    """Every method's plan is feasible for the judge, and no better than the dynamic program's."""
    rng = np.random.default_rng(11)
    for _ in range(25 if ALL else 8):
        problem = random_training_problem(rng, most_layers=5)
        best, found = solve_plan(problem), solve_plan(problem, method)
        if found.plan is None:
            continue
        assert evaluate_plan(problem, found.plan).is_feasible
        assert best.objective is not None
        assert found.objective is not None
        assert found.objective >= best.objective * (1 - 1e-9)


def test_unknown_method_lists_those_that_exist() -> None:
    """A misspelt method is told what there is."""
    with pytest.raises(UnknownNameError, match="did you mean 'equal-split'"):
        solve_plan(chain_problem(2), "equalsplit")


def test_nothing_fits_is_proven_with_the_bytes_that_lack() -> None:
    """The named limit is refuted, and a little more than it is enough."""
    problem = chain_problem(5, num_devices=3, memory_bytes=1e6, tensor_degrees=(1,))
    result = solve_plan(problem)
    assert result.status is Status.INFEASIBLE
    (violation,) = result.violations
    assert "no plan fits: 3 devices need more than" in violation.message
    needed = problem.memory_bytes + violation.amount
    assert solve_plan(problem.replace(memory_bytes=needed * (1 + 1e-6))).plan is not None
    assert solve_plan(problem.replace(memory_bytes=needed * (1 - 1e-6))).status is Status.INFEASIBLE


def test_fewer_devices_than_a_degree_are_named() -> None:
    """Two devices cannot share a layer four ways."""
    result = solve_plan(chain_problem(2, num_devices=2, tensor_degrees=(4,)))
    assert result.status is Status.INFEASIBLE
    assert "2 devices are fewer than the smallest tensor-parallel degree, 4" in str(result.violations[0])


def test_time_limit_leaves_a_valid_bound() -> None:
    """Stopped at once, the bound is still below the optimum."""
    problem = recurrent_problem(3, 6, num_devices=8, memory_bytes=2e9)
    best = solve_plan(problem)
    stopped = solve_plan(problem, stop=MaxRuntime(0))
    assert stopped.stop_reason is StopReason.TIME
    assert stopped.lower_bound is not None
    assert best.objective is not None
    assert stopped.lower_bound <= best.objective


def test_many_ideals_start_from_linear_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a start from a few orders the answer is the same, and too many ideals leave an honest gap."""
    import placekit.solvers.training_plan.dp as module

    problem = recurrent_problem(3, 5, num_devices=6, memory_bytes=3e9, tensor_degrees=(1, 2))
    expected = solve_plan(problem)
    monkeypatch.setattr(module, "MANY_IDEALS", 3)
    assert solve_plan(problem).objective == pytest.approx(expected.objective, rel=1e-8)
    some = solve_plan(problem, params={"max_ideals": 20})
    assert some.objective is not None
    assert expected.objective is not None
    assert some.lower_bound is not None
    assert some.lower_bound <= expected.objective <= some.objective * (1 + 1e-9)


def test_powers_of_two_and_no_recomputation() -> None:
    """Restrictions hold in the plan, and cost something or nothing."""
    problem = chain_problem(8, num_devices=7, memory_bytes=2e9, tensor_degrees=(1, 2))
    free = solve_plan(problem)
    for rules in (Restrictions(powers_of_two=True), Restrictions(recomputation=False)):
        result = solve_plan(problem.replace(restrictions=rules))
        if result.plan is None:
            continue
        assert free.objective is not None
        assert result.objective is not None
        assert result.objective >= free.objective * (1 - 1e-9)
        if rules.powers_of_two:
            assert all(stage.data_degree & (stage.data_degree - 1) == 0 for stage in result.plan.stages)
        else:
            assert all("recomp" not in name for name in result.choice_names)


def test_transformer_without_a_file() -> None:
    """7 billion parameters on 32 accelerators: a proven plan, and every assumption in words."""
    problem, told = transformer_problem("7b", "a100-80gb", {"num_devices": 32})
    result = solve_plan(problem)
    assert result.status is Status.OPTIMAL
    assert any("data sheet" in line for line in told)
    # operations of forward and backward at half of the peak, on all devices, is a bound that nothing beats
    h, tokens = 4096, 4096
    flops = 3 * (32 * (24 * tokens * h * h + 4 * tokens * tokens * h) + 2 * tokens * h * 32000)
    assert result.objective is not None
    assert result.objective >= flops / 156e12 / 32
    assert result.objective <= 1.2 * flops / 156e12 / 32

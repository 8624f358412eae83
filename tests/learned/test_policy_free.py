"""Controls of what learning adds: the search without a network, a learning rate of 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import InvalidProblemError


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Makespan()], ids=lambda objective: objective.name)
def test_the_search_finds_the_enumerated_optimum(objective: pk.Objective, toy: pk.Problem) -> None:
    """Both single devices are worse; it ends by itself."""
    problem = toy.replace(objective=objective)
    optimum = pk.solve(problem, "enumerate").objective
    result = pk.solve(problem, "policy-free")
    assert result.objective == pytest.approx(optimum)
    assert result.stop_reason is not pk.StopReason.TIME


def test_same_seed_same_placement_and_constraints_hold() -> None:
    """With memory that forces a spread, pins and groups; another seed goes another way."""
    problem = generate("layered", 60, seed=3, num_devices=3, memory_factor=1.3, objective=pk.Makespan())
    problem = problem.replace(colocation=np.arange(60) // 2, pinned=np.where(np.arange(60) == 7, 1, -1))
    stop = pk.MaxIterations(4000)
    first, again, other = (pk.solve(problem, "policy-free", stop=stop, seed=seed) for seed in (1, 1, 2))
    assert first.placement == again.placement
    assert first.evaluations == again.evaluations >= 4000
    assert first.placement is not None
    assert pk.evaluate(problem, first.placement).is_feasible
    assert other.trace != first.trace


def test_a_warm_start_is_never_lost() -> None:
    """The second start and every other one begin at the best placement, that of the method before included."""
    problem = generate("inception", 40, seed=1, num_devices=2, objective=pk.Makespan())
    heft = pk.solve(problem, "heft").objective
    row = pk.solve(problem, "heft+policy-free", stop=pk.MaxIterations(500)).objective
    assert heft is not None
    assert row is not None
    assert row <= heft


@pytest.mark.parametrize(
    ("params", "message"),
    [({"patience": -1}, "policy-free: patience is -1; it must be >= 0")],
)
def test_wrong_parameters_are_refused(params: dict[str, Any], message: str, toy: pk.Problem) -> None:
    """The message names parameter, value and bound."""
    with pytest.raises(InvalidProblemError, match=message):
        pk.solve(toy, "policy-free", params=params)

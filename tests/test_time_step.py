"""A common divisor of all times: found where there is one, and no bound is ever rounded above an optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.solve.method import Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.time_step import common_step_s, round_up_to_step, time_step_s


@pytest.mark.parametrize(
    ("times_s", "step_s"),
    [
        ([6.0, 15.0, 0.0], 3.0),
        ([0.055, 0.01], 0.005),
        ([17.5e-3, 5e-3], 2.5e-3),
        ([1 / 3, 1.0], None),
        ([0.0], None),
        ([], None),
        ([1e300, 1.0], None),
    ],
)
def test_step_is_the_largest_common_divisor(times_s: list[float], step_s: float | None) -> None:
    """Whole numbers of a decimal unit, even where floats only come near to them; thirds have none."""
    found = common_step_s(np.array(times_s))
    assert found == (None if step_s is None else pytest.approx(step_s, rel=1e-15))


@examples(500)
@given(st.lists(st.integers(1, 10**5), min_size=1), st.integers(0, 6), st.floats(1 - 1e-6, 1 + SOLVER_TOLERANCE))
def test_bound_is_never_rounded_above_an_optimum(parts: list[int], decimals: int, off: float) -> None:
    """Whatever times add up to an objective, a bound near it, even a careless one, stays within what is off."""
    times_s = np.array([part / 10**decimals for part in parts])
    step_s = common_step_s(times_s)
    assert step_s is not None
    optimum_s = float(sum(times_s.tolist()))
    rounded = round_up_to_step(optimum_s * off, step_s)
    assert optimum_s * off <= rounded <= max(optimum_s * off, optimum_s * (1 + 1e-12))


@examples(300)
@given(problems(max_ops=5, max_devices=3, with_memory=False))
def test_objectives_are_multiples_of_the_step(problem: pk.Problem) -> None:
    """Of whole times, every objective is a multiple, and a bound just below the optimum is not rounded above it."""
    costs = problem.costs
    whole = costs.replace(
        op_time_s=np.rint(costs.op_time_s) * 0.25, transfer_time_s=np.rint(costs.transfer_time_s) * 1.5
    )
    problem = problem.replace(costs=whole)
    step_s, best = time_step_s(problem), brute_force(problem)
    if step_s is None or best is None:
        return
    assert best / step_s == pytest.approx(round(best / step_s), rel=1e-10, abs=1e-6)
    assert round_up_to_step(best * (1 - 1e-9), step_s) <= best


def test_bound_a_hair_below_a_whole_number_closes_the_gap() -> None:
    """59.99994 of 60 seconds is a proof, where all times are whole seconds."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = pk.CostTable(("gpu",), np.array([[25.0], [35.0]]), np.array([[5.0]]), np.zeros(2))
    run = Run(pk.Problem(graph, pk.Platform.of(gpu=2), costs, pk.Makespan()))
    run.offer([0, 0])
    run.raise_bound(59.99994, "a relaxation")
    assert run.objective == 60
    assert run.should_stop() is pk.StopReason.PROVED

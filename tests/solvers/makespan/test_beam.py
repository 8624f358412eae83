"""Beam search in the order of time: feasible schedules of the length it says, near the optimum, the same every time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan
from oracle import is_feasible
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.contiguity import Contiguity
from placekit.objectives import Makespan
from placekit.solvers.makespan.schedule.sequence import decode, empty_timeline, sequence_problem
from placekit.solvers.makespan.search.beam import LEAST_SLACK, Beam
from placekit.solvers.makespan.search.prices import Prices, price


def plain_prices(problem: pk.Problem, seed: int) -> Prices:
    """Return prices at random, about those of machines that are all worth the same."""
    flat = sequence_problem(problem, has_contention=False)
    noise = 0.5 + np.random.default_rng(seed).random(flat.time_s.shape)
    return Prices(flat.time_s * noise / problem.platform.num_devices, flat.allowed)


def run_beam(problem: pk.Problem, prices: Prices, limit_s: float, seed: int = 0) -> tuple[pk.Placement, float] | None:
    """Return a placement with steps and its makespan by the search's own kernel; None if the beam ran dry."""
    flat = sequence_problem(problem, has_contention=False)
    found = Beam(flat, prices).start(limit_s, np.random.default_rng(seed))
    if found is None:
        return None
    device, sequence = found
    value_s = decode(flat, device, sequence, empty_timeline(flat), 0)
    return pk.Placement.of(problem, device, np.argsort(sequence)), value_s


@examples(150)
@given(
    problems(objective=st.just(Makespan()), contiguity=st.just(Contiguity.NONE)),
    st.floats(0.5, 20.0),
    st.integers(0, 2**31),
)
def test_what_it_finds_is_a_schedule_within_the_limit(problem: pk.Problem, limit_s: float, seed: int) -> None:
    """Classes, pins, support and memory are kept, steps follow the edges, the makespan is below the limit."""
    found = run_beam(problem, plain_prices(problem, seed), limit_s, seed)
    again = run_beam(problem, plain_prices(problem, seed), limit_s, seed)
    if found is None:
        assert again is None
        return
    placement, value_s = found
    assert again is not None
    np.testing.assert_array_equal(placement.device_of_op, again[0].device_of_op)
    assert is_feasible(problem, tuple(placement.device_of_op.tolist()))
    assert value_s <= limit_s * (1 + 0.01) * (1 + 1e-9)
    assert pk.evaluate(problem, placement).objective == value_s


@examples(150)
@given(SMALL, st.integers(0, 2**31))
def test_never_below_the_optimum(problem: pk.Problem, seed: int) -> None:
    """No schedule is shorter than the optimum by enumeration; where nothing is feasible nothing is found."""
    found, optimum = run_beam(problem, plain_prices(problem, seed), 100.0, seed), best_makespan(problem)
    if found is not None:
        assert optimum is not None
        assert found[1] >= optimum * (1 - 1e-9)


def test_near_the_bound_where_work_is_all_that_counts() -> None:
    """Products of matrices on a fast and a slow machine: 5 % below `heft` or more, and within 2 % of the cheapest."""
    for seed in range(3):
        problem = generate(
            "chained-matmuls", 150, seed, num_devices=2, equal=False, transfer_ratio=0.1, objective=Makespan()
        )
        heft_s = pk.solve(problem, "heft").objective
        assert heft_s is not None
        flat = sequence_problem(problem, has_contention=False)
        prices = price(flat, heft_s)
        assert prices is not None
        found = run_beam(problem, prices, heft_s)
        assert found is not None
        assert found[1] <= min(0.95 * heft_s, 1.02 * Beam(flat, prices).work_s)


def test_looks_for_longer_schedules_after_it_found_none() -> None:
    """The limit rises until it is above what can be reached; one found sets it anew."""
    problem = generate("layered", 60, num_devices=3, equal=False, transfer_ratio=0.1, objective=Makespan())
    flat = sequence_problem(problem, has_contention=False)
    beam, rng = Beam(flat, plain_prices(problem, 0)), np.random.default_rng(0)
    goal_s = 0.9 * beam.work_s  # less than any schedule takes
    slacks = [beam.slack]
    while beam.start(goal_s, rng) is None:
        slacks.append(beam.slack)
    np.testing.assert_allclose(slacks, LEAST_SLACK * 2.0 ** np.arange(len(slacks)))
    assert 0.1 < beam.slack <= slacks[-1]

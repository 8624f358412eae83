"""Races: feasible, as they say, never below the optimum, the same every time; the better half goes on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makespan_found import check_at_least_optimum, check_found
from makespan_optimum import SMALL
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.contiguity import Contiguity
from placekit.method import Run
from placekit.objectives import Makespan
from placekit.solvers.makespan.schedule.sequence import sequence_problem
from placekit.solvers.makespan.search.beam import BEAM_S, Beam
from placekit.solvers.makespan.search.incumbent import Best
from placekit.solvers.makespan.search.prices import Prices, price
from placekit.solvers.makespan.search.starts import mean_rank_s, scattered
from placekit.solvers.makespan.search.successive_halving import SuccessiveHalving

ASYNCHRONOUS = problems(objective=st.just(Makespan()), contiguity=st.just(Contiguity.NONE))
FEW_STEPS = 40
"""Proposals per op in a unit: a perturbation."""


def prepared(
    problem: pk.Problem, seed: int, run: Run | None = None, prices: Prices | None = None
) -> SuccessiveHalving | None:
    """Return a halving that begins at a list schedule; None if there was none."""
    flat, rng = sequence_problem(problem, has_contention=False), np.random.default_rng(seed)
    listed = scattered(flat, mean_rank_s(flat), 0.5, rng) if flat.allowed.any(axis=1).all() else None
    if listed is None:
        return None
    best = Best(run or Run(problem, None, seed), flat)
    best.consider(*listed)
    best.offer()
    if prices is None:
        price_s = flat.time_s * rng.uniform(0.5, 1.5, flat.time_s.shape) / problem.platform.num_devices
        prices = Prices(np.where(flat.allowed[flat.instance.class_of_op], price_s, 0.0), flat.allowed)
    return SuccessiveHalving(best, prices, Beam(flat, prices), FEW_STEPS)


def raced(problem: pk.Problem, seed: int, turns: int = 6) -> Best | None:
    """Return the best schedule after some turns, which is no longer than the first one; None if there was none."""
    halving = prepared(problem, seed)
    if halving is None:
        return None
    best = halving._best
    before_s = best.value_s
    for _ in range(turns):
        halving.turn(best.flat)
    assert best.value_s <= before_s
    return best


@examples(60)
@given(ASYNCHRONOUS, st.integers(0, 2**31))
def test_what_it_finds_is_a_schedule_as_it_says(problem: pk.Problem, seed: int) -> None:
    """It is feasible, the judge agrees, and the same seed finds it again."""
    best, again = raced(problem, seed), raced(problem, seed)
    check_found(problem, best, again)


@examples(100)
@given(SMALL, st.integers(0, 2**31))
def test_it_is_never_below_the_optimum(problem: pk.Problem, seed: int) -> None:
    """No schedule is shorter than the optimum by enumeration."""
    best = raced(problem, seed)
    check_at_least_optimum(problem, best)


def halving_of_products(run: Run | None = None) -> SuccessiveHalving:
    """Return a halving of 84 chained products on three unequal devices, at the prices of the linear program."""
    problem = generate("chained-matmuls", 100, num_devices=3, equal=False, transfer_ratio=0.1, objective=Makespan())
    flat = sequence_problem(problem, has_contention=False)
    halving = prepared(problem, 0, run and Run(problem, run.stop), price(flat, 0.03))
    assert halving is not None
    return halving


def test_the_better_half_goes_on() -> None:
    """What is promoted is of the better half of its rung, so fewer reach the next; nothing gets longer."""
    halving = halving_of_products()
    for _ in range(40):
        promoted = halving._promoted()
        if promoted is not None:
            rung = len(promoted.values_s) - 1
            values_s = [competitor.values_s[rung] for competitor in halving._rungs[rung]]
            assert sum(value_s < promoted.values_s[rung] for value_s in values_s) < len(values_s) // 2
        halving.turn(halving._best.flat)
        assert promoted is None or len(promoted.values_s) == rung + 2
    sizes = [len(rung) for rung in halving._rungs]
    assert len(sizes) >= 3
    assert all(higher < lower for lower, higher in pairwise(sizes))
    competitors = halving._rungs[0]
    assert sizes[0] >= 8
    assert all(later <= earlier for competitor in competitors for earlier, later in pairwise(competitor.values_s))
    assert min(competitor.values_s[-1] for competitor in competitors) == halving._best.value_s
    assert len({tuple(competitor.device.tolist()) for competitor in competitors}) > len(competitors) / 2


def test_what_others_find_takes_part() -> None:
    """A better schedule from elsewhere is a competitor at the next turn."""
    halving, other = halving_of_products(), halving_of_products()
    for _ in range(8):
        other.turn(other._best.flat)
    halving.turn(halving._best.flat)
    assert other._best.value_s < halving._best.value_s
    halving._best.consider(other._best.device, other._best.sequence)
    halving.turn(halving._best.flat)
    assert any(competitor.values_s[0] == other._best.value_s for competitor in halving._rungs[0])


def test_where_nothing_can_be_begun_the_best_is_perturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time for a beam search, or where none finds a schedule, and it stays where it is."""
    problem = generate("chained-matmuls", 100, num_devices=3, equal=False, transfer_ratio=0.1, objective=Makespan())
    in_haste, in_vain = halving_of_products(Run(problem, pk.MaxRuntime(0.9 * BEAM_S))), halving_of_products()
    monkeypatch.setattr(in_vain._beam, "start", lambda *_: None)
    for halving in (in_haste, in_vain):
        before_s = halving._best.value_s
        for _ in range(3):
            halving.turn(halving._best.flat)
        assert [len(rung) for rung in halving._rungs] == [1]
        assert halving._best.value_s == halving._rungs[0][0].values_s[0] < before_s

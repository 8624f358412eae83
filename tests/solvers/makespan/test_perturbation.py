"""Perturbation: feasible, as they say, never below the optimum or above where they began, and devices stay as busy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from makespan_found import check_at_least_optimum, check_found
from makespan_optimum import SMALL
from numpy.typing import NDArray
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.contiguity import Contiguity
from placekit.graph import sum_by
from placekit.method import Run
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.search.construct import dispatch_order
from placekit.solvers.makespan.search.incumbent import Best
from placekit.solvers.makespan.search.perturbation import BUSIER, PERTURBED_STEPS, Perturbation
from placekit.solvers.makespan.search.prices import Prices
from placekit.solvers.makespan.search.starts import mean_rank_s, scattered

CONTENDED = problems(objective=st.builds(pk.Makespan, contention=st.booleans()), contiguity=st.just(Contiguity.NONE))


def prepared(
    problem: pk.Problem, flat: SequenceProblem, seed: int, run: Run | None = None
) -> tuple[float, Best, Perturbation] | None:
    """Return the makespan of a random schedule, and what perturbs it; None if there was no schedule."""
    rng = np.random.default_rng(seed)
    if not flat.allowed.any(axis=1).all():
        return None
    listed = scattered(flat, mean_rank_s(flat), 0.5, rng)
    if listed is None:
        return None
    best = Best(run or Run(problem, None, seed), flat)
    before_s = best.consider(listed[0], dispatch_order(flat, rng.random(flat.instance.num_ops)))
    best.offer()
    worth = rng.dirichlet(np.ones(flat.time_s.shape[1]))
    price_s = np.where(flat.allowed[flat.instance.class_of_op], flat.time_s * worth, 0.0)
    return before_s, best, Perturbation(flat, Prices(price_s, flat.allowed))


def perturbed(
    problem: pk.Problem, flat: SequenceProblem, seed: int, calls: int = 2, run: Run | None = None
) -> Best | None:
    """Return what some perturbations made of a random schedule, which are no longer; None if there was no schedule."""
    found = prepared(problem, flat, seed, run)
    if found is None:
        return None
    before_s, best, perturbation = found
    for _ in range(calls):
        perturbation.walk(best, flat, 5 * PERTURBED_STEPS * flat.instance.num_ops)
    assert best.value_s <= before_s
    return best


@examples(60)
@given(CONTENDED, st.integers(0, 2**31))
def test_what_they_find_is_a_schedule_as_they_say(problem: pk.Problem, seed: int) -> None:
    """It is feasible, the judge agrees, and the same seed finds it again."""
    assert isinstance(problem.objective, pk.Makespan)
    flat = sequence_problem(problem, has_contention=problem.objective.contention)
    best, again = perturbed(problem, flat, seed), perturbed(problem, flat, seed)
    check_found(problem, best, again)


@examples(100)
@given(SMALL, st.integers(0, 2**31))
def test_they_are_never_below_the_optimum(problem: pk.Problem, seed: int) -> None:
    """No schedule is shorter than the optimum by enumeration."""
    best = perturbed(problem, sequence_problem(problem, has_contention=False), seed)
    check_at_least_optimum(problem, best)


def test_a_perturbation_leaves_devices_as_busy() -> None:
    """Whatever moves, the busiest device is hardly busier than with the first class alone; few are alike."""
    problem = generate("chained-matmuls", 100, num_devices=3, equal=False, transfer_ratio=0.1, objective=pk.Makespan())
    flat = sequence_problem(problem, has_contention=False)
    found = prepared(problem, flat, 0)
    assert found is not None
    before_s, best, perturbation = found
    num_devices = flat.time_s.shape[1]

    def busy_s(device: NDArray[np.int64]) -> NDArray[np.float64]:
        return sum_by(device, flat.time_s[np.arange(len(device)), device], num_devices)

    rng, kinds, evened = np.random.default_rng(0), set(), 0
    for _ in range(200):
        device = perturbation._perturbed(best.device, before_s, rng)
        moved = np.flatnonzero(device != best.device)
        assert len(moved) <= 3
        longer_s = (busy_s(device) - busy_s(best.device)).max()
        alone_s = []  # what the first of them, whichever that is, does without the others
        for op in moved:
            alone = best.device.copy()
            alone[op] = device[op]
            alone_s.append((busy_s(alone) - busy_s(best.device)).max())
        evened += bool(alone_s) and longer_s < max(alone_s)
        assert longer_s <= max([*alone_s, 0.0]) + BUSIER * before_s + 1e-12
        kinds.add((*moved.tolist(), *device[moved].tolist()))
    assert len(kinds) > 170
    assert evened > 100


def test_they_stop_when_told_to() -> None:
    """Without time they find nothing."""
    problem = generate("chained-matmuls", 60, num_devices=3, equal=False, transfer_ratio=0.1, objective=pk.Makespan())
    flat = sequence_problem(problem, has_contention=False)
    ends = []
    for run in (None, Run(problem, pk.MaxRuntime(0.0))):
        found = prepared(problem, flat, 3, run)
        assert found is not None
        before_s, best, perturbation = found
        perturbation.walk(best, flat, 10 * PERTURBED_STEPS * flat.instance.num_ops)
        ends.append((before_s, best.value_s))
    assert ends[0][0] == ends[1][0] == ends[1][1]
    assert ends[0][1] < ends[0][0]

"""Parallel tempering: feasible, as it says, never below the optimum or above where it began, the same every time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from makespan_found import check_at_least_optimum, check_found
from makespan_optimum import SMALL
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.contiguity import Contiguity
from placekit.method import Run
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.search.construct import dispatch_order
from placekit.solvers.makespan.search.incumbent import Best
from placekit.solvers.makespan.search.parallel_tempering import REPLICAS, Tempering
from placekit.solvers.makespan.search.starts import mean_rank_s, scattered

CONTENDED = problems(objective=st.builds(pk.Makespan, contention=st.booleans()), contiguity=st.just(Contiguity.NONE))


def tempered(
    problem: pk.Problem, flat: SequenceProblem, seed: int, calls: int = 2, run: Run | None = None
) -> tuple[float, Best] | None:
    """Return the makespan of a random schedule, and what tempering made of it; None if there was no schedule."""
    rng = np.random.default_rng(seed)
    if not flat.allowed.any(axis=1).all():
        return None
    listed = [scattered(flat, mean_rank_s(flat), 0.5, rng) for _ in range(3)]
    starts = [(start[0], dispatch_order(flat, rng.random(flat.instance.num_ops))) for start in listed if start]
    if not starts:
        return None
    best = Best(run or Run(problem, None, seed), flat)
    before_s = best.consider(*starts[0])
    best.offer()
    tempering = Tempering(best, starts, 0.05)
    for _ in range(calls):
        tempering.walk(flat, 100 * REPLICAS * flat.instance.num_ops)
    return before_s, best


@examples(60)
@given(CONTENDED, st.integers(0, 2**31))
def test_what_it_finds_is_a_schedule_as_it_says(problem: pk.Problem, seed: int) -> None:
    """It is feasible and no longer than where it began, the judge agrees, and the same seed finds it again."""
    assert isinstance(problem.objective, pk.Makespan)
    flat = sequence_problem(problem, has_contention=problem.objective.contention)
    found, again = tempered(problem, flat, seed), tempered(problem, flat, seed)
    if found is None or again is None:
        assert found is again
        return
    before_s, best = found
    assert best.value_s <= before_s
    check_found(problem, best, again[1])


@examples(100)
@given(SMALL, st.integers(0, 2**31))
def test_it_is_never_below_the_optimum(problem: pk.Problem, seed: int) -> None:
    """No schedule is shorter than the optimum by enumeration."""
    found = tempered(problem, sequence_problem(problem, has_contention=False), seed)
    check_at_least_optimum(problem, found and found[1])


def test_it_goes_on_where_it_was_and_stops_when_told_to() -> None:
    """Several calls find more than one; none of them anything without time."""
    problem = generate("feed-forward-shards", 60, objective=pk.Makespan())
    flat = sequence_problem(problem, has_contention=False)
    ends = []
    for calls, run in ((1, None), (20, None), (20, Run(problem, pk.MaxRuntime(0.0)))):
        found = tempered(problem, flat, 3, calls, run)
        assert found is not None
        ends.append((found[0], found[1].value_s))
    assert ends[0][0] == ends[1][0] == ends[2][0] == ends[2][1]
    assert ends[1][1] < ends[0][1] < ends[0][0]

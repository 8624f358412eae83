"""Classical scheduling problems: their shape, and a published optimum."""

from __future__ import annotations

from pathlib import Path

import pytest

import placekit as pk
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.cases.suite_problems import declared_problems
from placekit.benchmarks.generators.shops import (
    PUBLISHED,
    SHOPS,
    flexible_job_shop,
    job_shop,
    parse_job_shop,
    published_shop,
    shop,
    taillard_job_shop,
    unrelated_machines,
)
from placekit.model.errors import InvalidProblemError, UnknownNameError


@pytest.mark.parametrize("name", [pytest.param("ft06", marks=pytest.mark.slow), "la01"])
def test_published_job_shops_are_proven(name: str) -> None:
    """The published optima are found and proven."""
    result = pk.solve(published_shop(name), method="auto", stop=pk.MaxRuntime(120))
    assert result.objective == PUBLISHED[name][1]
    assert result.status is pk.Status.OPTIMAL


def test_first_job_of_taillards_first_instance() -> None:
    """The generator makes what the paper's does: times and machines as published."""
    costs = taillard_job_shop(15, 15, 840612802, 398197754).costs
    assert costs.op_time_s[:15].max(axis=1).tolist() == [94, 66, 10, 53, 26, 15, 65, 82, 10, 27, 93, 92, 96, 70, 83]
    assert costs.supported[:15].argmax(axis=1).tolist() == [6, 12, 4, 7, 3, 2, 10, 11, 8, 14, 9, 13, 5, 0, 1]
    with pytest.raises(InvalidProblemError, match="time_seed is 0; it must be >= 1"):
        taillard_job_shop(2, 2, 0, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 numbers for 0 jobs"),
        ("2 1 0 3", "4 numbers for 2 jobs on 1 machines"),
        ("1 1 0 3.5", "'3.5' is no whole number"),
        ("1 1 1 3", r"machines \[1\]; .* 0 to 0"),
    ],
)
def test_text_that_is_no_job_shop_is_refused(text: str, problem: str) -> None:
    """One line names the value and what is expected."""
    with pytest.raises(InvalidProblemError, match=problem):
        parse_job_shop(text)


def test_families_of_suites_make_shops() -> None:
    """A suite names a shop by its family; an unknown instance is told."""
    plan = list(declared_problems(read_suite("shops"), Path()))
    assert len(plan) == 10
    problems = [spec.build() for spec in plan]
    assert problems[0] == published_shop("ft06")
    assert all(isinstance(each, pk.Problem) and each.objective == pk.Makespan() for each in problems)
    with pytest.raises(UnknownNameError, match="no published shop 'ft07'; published shops are ft06, ft10, la01"):
        SHOPS["published-shop"](seed=0, instance="ft07")


def test_shops_have_the_shape_of_their_kind() -> None:
    """A job visits every machine once; flexible ops have a choice; unrelated machines can all do everything."""
    problem = job_shop(4, 3, seed=1)
    assert problem.graph.num_ops == 12
    assert (problem.costs.supported.sum(axis=1) == 1).all()
    assert (problem.costs.supported.reshape(4, 3, 3).sum(axis=1) == 1).all()
    assert len(problem.graph.senders) == 4 * 2
    assert flexible_job_shop(5, 4, seed=2).costs.supported.sum(axis=1).max() > 1
    assert unrelated_machines(10, 3, seed=3).costs.supported.all()
    for make in (job_shop, flexible_job_shop, unrelated_machines):
        assert make(8, 4, seed=5) == make(8, 4, seed=5)
        assert make(8, 4, seed=5) != make(8, 4, seed=6)


def test_operation_without_a_machine_is_an_error() -> None:
    """The message names the operation."""
    with pytest.raises(InvalidProblemError, match=r"operation 'job0\.1' has machines \[2\]; .* 0 to 1"):
        shop("bad", [[{0: 1.0}, {2: 1.0}]], 2)

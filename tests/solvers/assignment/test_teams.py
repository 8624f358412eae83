"""Programs of spare teams: the optimum over all partitions of the devices, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from oracle import team_brute_force
from strategies import TEAM_NAMES, examples, problems, with_teams

import placekit as pk
from placekit.model.errors import UnsupportedProblemError
from placekit.solve.result import SOLVER_TOLERANCE


def check(problem: pk.Problem, method: str) -> None:
    """Ask for the optimum, or that there is none; and for a bound that is no higher."""
    best = team_brute_force(problem)
    result = pk.solve(problem, method, params={"workers": 1} if method == "cpsat" else None)
    if best is None:
        assert result.placement is None
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.objective == pytest.approx(best, rel=SOLVER_TOLERANCE, abs=1e-300)
    assert result.status is pk.Status.OPTIMAL
    assert result.lower_bound is not None
    assert result.lower_bound <= best * (1 + 1e-12)


SMALL = problems(
    max_ops=4,
    max_kinds=2,
    max_devices=3,
    objective=with_teams().filter(lambda objective: objective.teams == "equal"),
    names=TEAM_NAMES,
)


@examples(12)
@given(SMALL)
def test_the_constraint_program_matches_brute_force(problem: pk.Problem) -> None:
    """Under every contiguity."""
    check(problem, "cpsat")


@examples(12)
@given(SMALL)
def test_the_integer_program_matches_brute_force(problem: pk.Problem) -> None:
    """Under every contiguity."""
    check(problem, "ilp")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cpsat", "ilp"])
@examples(500)
@given(problem=SMALL)
def test_programs_match_brute_force_at_length(method: str, problem: pk.Problem) -> None:
    """The same on hundreds of problems."""
    check(problem, method)


@pytest.mark.parametrize("method", ["cpsat", "ilp"])
def test_what_programs_cannot_say_is_refused(diamond: pk.Problem, method: str) -> None:
    """Teams of unequal devices."""
    mixed = diamond.replace(objective=pk.Throughput(teams="any"))
    with pytest.raises(UnsupportedProblemError, match="the load of a team of unequal devices is not linear"):
        pk.solve(mixed, method)

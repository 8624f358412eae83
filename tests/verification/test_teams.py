"""The verifier knows teams: placements and certificates."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from oracle import team_brute_force
from strategies import examples, teamed_problems

import placekit as pk
from placekit.objectives.throughput import largest_teams
from placekit.solvers.throughput.bounds.unrelated_machines import certified_machines
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.ideals import reaches_below
from placekit.verification.verify import certifies, verify


@examples(25)
@given(teamed_problems(max_ops=5, max_devices=3))
def test_results_with_teams_verify(problem: pk.Problem) -> None:
    """What methods say is consistent."""
    for method in ("bound", "enumerate"):
        result = pk.solve(problem, method)
        found = verify(result, problem)
        assert found.is_consistent, str(found)


@examples(40)
@given(teamed_problems(max_ops=4, max_devices=3))
def test_certificates_of_shared_work_hold(problem: pk.Problem) -> None:
    """The linear program's bound is certified, and below the optimum."""
    found, best = certified_machines(problem), team_brute_force(problem)
    if found is None:
        return
    bound_s, certificate = found
    assert certifies(certificate, bound_s * (1 - 1e-12), problem)
    if best is not None:
        assert bound_s <= best * (1 + 1e-12)


def test_what_teams_cannot_prove(diamond: pk.Problem) -> None:
    """Single devices say nothing of teams; a tampered team fails."""
    problem = diamond.replace(objective=pk.Throughput(teams="equal"))
    assert largest_teams(problem).tolist() == [1, 2]
    exact = ExactProblem.of(problem)
    assert not enumerate_all(exact, Fraction(1)).is_complete
    assert reaches_below(exact, Fraction(1)) is None
    result = pk.solve(problem, "dp")
    assert verify(result, problem)["team"].detail == "1 teams of devices that may be one"
    document = result.to_dict()
    tampered = pk.Result.from_dict(document | {"placement": dict.fromkeys("abcd", "cpu.0+acc.0")})
    assert "may not be a team: teams are 'equal'" in verify(tampered, problem)["team"].detail

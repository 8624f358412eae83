"""Partitions of the devices, fixed teams, and methods that work on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import set_partitions, team_brute_force
from strategies import TEAM_NAMES, examples, placements, platforms, problems, teamed_problems, with_teams

import placekit as pk
from placekit.solvers.generic.teams.fixed import team_problem, with_fixed_teams
from placekit.solvers.generic.teams.partitions import partitions


@examples(30)
@given(teamed_problems(max_ops=4, max_devices=5))
def test_every_partition_comes_once(problem: pk.Problem) -> None:
    """Up to a renaming of devices of one kind with the same pins: those that there are by brute force."""
    kinds = problem.platform.kind_of_device.tolist()
    pins = [frozenset(problem.op_class[problem.pinned == d].tolist()) for d in range(len(kinds))]

    def shape(team: tuple[int, ...]) -> tuple[tuple[object, ...], ...]:
        teams = [[d for d, own in enumerate(team) if own == first] for first in sorted(set(team))]
        return tuple(sorted(tuple(sorted((kinds[d], tuple(sorted(pins[d]))) for d in members)) for members in teams))

    wanted = {
        shape(team)
        for team in set_partitions(len(kinds))
        if problem.objective.teams == "any" or all(kinds[d] == kinds[first] for d, first in enumerate(team))
    }
    found = [shape(tuple(team.tolist())) for team in partitions(problem)]
    assert len(found) == len(set(found))
    assert set(found) <= wanted
    if problem.contiguity is not pk.Contiguity.ACYCLIC and not (problem.pinned >= 0).any():
        assert set(found) == wanted


@examples(60)
@given(st.data())
def test_a_problem_with_fixed_teams_costs_the_same(data: st.DataObject) -> None:
    """Objective and feasibility of any placement on teams of equals, by the judge with teams and without."""
    equal = with_teams().filter(lambda objective: objective.teams == "equal")
    problem = data.draw(problems(objective=equal, names=TEAM_NAMES))
    kinds = problem.platform.kind_of_device.tolist()
    labels = [(kind, data.draw(st.integers(0, 2))) for kind in kinds]
    teams = np.array([labels.index(label) for label in labels])
    plain = team_problem(problem, teams)
    placement = data.draw(placements(plain))
    teamed = with_fixed_teams(problem, teams).up(placement)
    assert isinstance(teamed, pk.Placement)
    said, judged = pk.evaluate(plain, placement), pk.evaluate(problem, teamed)
    assert said.is_feasible == judged.is_feasible
    if said.objective is not None and judged.objective is not None:
        assert said.objective == pytest.approx(judged.objective, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("method", ["greedy", "local-search", "bound", "dpl", "auto", "random", "single"])
@examples(8)
@given(problem=teamed_problems(max_ops=5, max_devices=3, contiguity=st.sampled_from(["none", "acyclic"])))
def test_methods_stay_within_the_optimum(method: str, problem: pk.Problem) -> None:
    """No answer below it, no bound above it, no verdict against it; `auto` finds it, which it can enumerate."""
    if method == "dpl" and problem.contiguity is not pk.Contiguity.ACYCLIC:
        return
    best = team_brute_force(problem)
    params = {"local-search": {"max_cycles": 3}, "random": {"samples": 300}}.get(method)
    result = pk.solve(problem, method, params=params, stop=pk.MaxRuntime(5))
    if best is None:
        assert result.placement is None
        return
    assert result.status is not pk.Status.INFEASIBLE
    if result.objective is not None:
        assert result.objective >= best * (1 - 1e-9)
    if result.lower_bound is not None:
        assert result.lower_bound <= best * (1 + 1e-9)
    if method == "auto":
        assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-300)


@pytest.mark.slow
def test_search_finds_the_team_that_memory_asks_for() -> None:
    """Six equal ops on four devices that hold three each: two stages on teams of two, whatever the contiguity."""
    graph = pk.OpGraph.from_edges(list("abcdef"), list(zip("abcde", "bcdef", strict=True)))
    costs = pk.CostTable(("gpu",), np.ones((6, 1)), np.full((5, 1), 0.1), np.ones(6))
    platform = pk.Platform.of(gpu=4, memory_bytes={"gpu": 3.0})
    for contiguity, methods in (("acyclic", ["local-search", "greedy", "dp"]), ("none", ["local-search"])):
        problem = pk.Problem(graph, platform, costs, pk.Throughput(teams="equal"), pk.Contiguity(contiguity))
        for method in methods:
            result = pk.solve(problem, method, stop=pk.MaxRuntime(3))
            assert result.objective == pytest.approx(1.55, rel=1e-9), method
            assert result.placement is not None
            assert set(result.placement.as_dict().values()) == {"gpu.0+gpu.1", "gpu.2+gpu.3"}


@given(platforms(names=TEAM_NAMES))
def test_team_platforms_have_distinct_kinds(platform: pk.Platform) -> None:
    """Kinds of teams of different kinds or sizes differ."""
    graph = pk.OpGraph.from_edges(["a"], [])
    num_kinds = len(platform.kinds)
    costs = pk.CostTable(platform.kinds, np.ones((1, num_kinds)), np.zeros((0, num_kinds)), np.zeros(1))
    problem = pk.Problem(graph, platform, costs, pk.Throughput(teams="equal"))
    for teams in partitions(problem):
        plain = team_problem(problem, teams)
        assert plain.platform.num_devices == len(set(teams.tolist()))

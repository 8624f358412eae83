"""On many small awkward problems the checker agrees with the judge, and its proofs with enumeration by the judge."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from fuzz.optimum import enumerated_optimum
from fuzz.problems import OBJECTIVE_NAMES, random_problem
from makespan_optimum import best_makespan
from strategies import draws

import placekit as pk
from placekit.model.placement import Placement
from placekit.objectives.evaluate import evaluate
from placekit.verification import heads as heads_module
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.heads import around, longest_path
from placekit.verification.ideals import reaches_below
from placekit.verification.judge import broken_constraints, objective
from placekit.verification.prices import with_subgraphs
from placekit.verification.proofs import fastest_everywhere, largest_op, rounded_up, step_of


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_the_checker_scores_as_the_judge_does(name: str) -> None:
    """Random placements, mostly feasible, with steps now and then: the same objective and the same broken rules."""
    rng, num_scored = np.random.default_rng(3), 0
    for case in range(draws(8000)):
        problem = random_problem(63, case, name)
        exact = ExactProblem.of(problem)
        homes = [devices or list(range(exact.num_devices)) for devices in exact.allowed]
        device = [int(rng.choice(homes[group])) for group in exact.group_of]
        if rng.random() < 0.7:  # ops that must be together are
            device = [device[exact.groups[group][0]] for group in exact.group_of]
        step = rng.integers(0, 4, exact.num_ops).tolist() if rng.random() < 0.4 else None
        team = list(range(exact.num_devices))
        if problem.objective.team_rule != "off":
            for d in range(1, exact.num_devices):
                team[d] = team[int(rng.integers(0, d + 1))] if rng.random() < 0.6 else d
            device, step = [team[d] for d in device], None
        placement = Placement.of(problem, device, step, team if team != sorted(set(team)) else None)
        said = evaluate(problem, placement)
        teams = [members for members in placement.teams if len(members) > 1]
        broken = {constraint for constraint, _ in broken_constraints(exact, device, step, teams)}
        assert broken == {violation.constraint for violation in said.violations}, case
        if said.objective is not None and not broken & {"team", "support"}:
            value = objective(exact, device, step, teams)
            assert value is not None
            assert float(value) == pytest.approx(said.objective, rel=1e-12, abs=1e-300), case
            num_scored += 1
    assert num_scored > draws(8000) // 2


def optimum_of(problem: pk.Problem) -> float | None:
    """Return the optimum by enumeration; of a makespan from its definition, for which orders are enumerated quicker."""
    return best_makespan(problem) if isinstance(problem.objective, pk.Makespan) else enumerated_optimum(problem)


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_proofs_from_scratch_agree_with_the_optimum(name: str) -> None:
    """No proof is above it, all that is enumerated ends at it, and ideals say so on both sides of it."""
    for case in range(draws(1200)):
        problem = random_problem(64, case, name)
        if isinstance(problem.objective, pk.Makespan):
            problem = problem.replace(objective=pk.Makespan(problem.objective.order), contiguity="none")
            if problem.costs.blocks is not None:
                continue
        exact, best = ExactProblem.of(problem), optimum_of(problem)
        is_known = problem.objective.team_rule == "off"  # teams are not enumerated by the checker
        if best is None:
            assert not is_known or enumerate_all(exact, None).device is None, case
            continue
        best_s = Fraction(best)
        low, high = best_s * (1 - Fraction(1, 10**9)), best_s * (1 + Fraction(1, 10**9)) + Fraction(1, 10**200)
        below, above = enumerate_all(exact, low), enumerate_all(exact, high)
        assert below.device is None, case
        assert (below.is_complete, above.device is not None) == (is_known, is_known), case
        assert reaches_below(exact.without_links, low) is not True or exact.has_links, case
        assert reaches_below(exact.without_links, high) is not False, case
        for_bounds = exact.for_bounds
        values = [largest_op(for_bounds)]
        if name in ("makespan", "offload-latency"):
            values.append(for_bounds.seconds(longest_path(for_bounds)))
        if name == "serial-latency":
            values.append(with_subgraphs(for_bounds, fastest_everywhere(for_bounds)))
        values += [rounded_up(value, step_of(for_bounds)) for value in values]
        assert max(values) <= best_s * (1 + Fraction(1, 10**12)) + Fraction(1, 10**300), case


def test_plain_paths_are_never_above_those_that_share_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of ops heads come from direct predecessors alone: no larger, and no smaller than paths."""
    differ = 0
    for case in range(draws(2400)):
        problem = random_problem(65, case, "makespan", (2, 9))
        exact, again = ExactProblem.of(problem), ExactProblem.of(problem)
        if any(not devices for devices in exact.allowed):
            continue
        full = around(exact)
        with monkeypatch.context() as patched:
            patched.setattr(heads_module, "MAX_LOOKS", 0)
            plain = around(again)
        for rows, plain_rows in zip(full, plain, strict=True):
            for row, plain_row in zip(rows, plain_rows, strict=True):
                assert row.keys() == plain_row.keys()
                assert all(plain_row[d] <= row[d] for d in row), case
                differ += plain_row != row
        forward, backward = plain
        for u, v in exact.edges:
            assert min(forward[v].values()) >= min(forward[u].values()), case
            assert min(backward[u].values()) >= min(backward[v].values()), case
    assert differ

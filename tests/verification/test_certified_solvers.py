"""Bounds of solvers come with certificates that prove all of them, and that survive a file."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import numpy as np
import oracle
import pytest
from fuzz.optimum import enumerated_optimum
from fuzz.problems import random_problem
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from strategies import TIMES_S, examples, problems

import placekit as pk
from placekit.io.files.result_schema import CertificateModel
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.solve.certificates import certificate_from_dict
from placekit.solve.result import Status
from placekit.solvers.makespan.bounds.quick import quick_bounds
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.solvers.serial_latency.mincut import MinCut, MinCutParams
from placekit.verification.exact import ExactProblem
from placekit.verification.heads import longest_path
from placekit.verification.ideals import reaches_below
from placekit.verification.prices import NOTHING_FEASIBLE
from placekit.verification.proofs import proven
from placekit.verification.verify import BOUND_TOLERANCE, certifies, verify

SERIAL = st.builds(pk.SerialLatency, subgraph_cost_s=st.just(0.0) | TIMES_S)
CERTIFIED = {
    "minimum cut",
    "minimum cut per device",
    "minimum cuts by direction",
    "price on memory",
    "changes along paths",
    "changes along paths, per device",
}
"""Names of bounds that promise a certificate."""


def check(problem: Problem, *, fallback: bool = False) -> str | None:
    """Solve by cuts alone; the bound must be proven by its certificate, and be no more than the optimum."""
    result = pk.solve(problem, MinCut(MinCutParams(fallback=fallback)))
    found = verify(result, problem, max_steps=0)
    assert found.is_consistent, str(found)
    if result.status is Status.INFEASIBLE or result.bound_name not in CERTIFIED:
        return None
    assert result.certificate is not None
    assert result.lower_bound is not None
    assert certifies(result.certificate, result.lower_bound, problem), result.bound_name
    written = json.loads(json.dumps({"schema": "placekit/certificate/1", **result.certificate.to_dict()}))
    read = TypeAdapter(CertificateModel).validate_python(written).model_dump(by_alias=True)
    assert certificate_from_dict(read) == result.certificate
    best = oracle.brute_force(problem)
    value = proven(ExactProblem.of(problem), result.certificate)
    assert best is None or (value is not NOTHING_FEASIBLE and float(value) <= best * (1 + 1e-12) + 1e-300)
    return result.bound_name


@given(st.data())
@settings(parent=examples(40), phases=[Phase.generate])
def test_minimum_cuts_are_certified(data: st.DataObject) -> None:
    """Any kinds, pins, limits, colours and contiguity, with and without a cost per subgraph."""
    check(data.draw(problems(max_ops=6, max_kinds=3, max_devices=4, objective=SERIAL)))


@given(st.data())
@settings(parent=examples(40), phases=[Phase.generate])
def test_cuts_by_direction_are_certified(data: st.DataObject) -> None:
    """Two devices with an acyclic order."""
    acyclic = st.just(Contiguity.ACYCLIC)
    check(data.draw(problems(max_ops=7, max_kinds=2, max_devices=2, objective=SERIAL, contiguity=acyclic)))


@pytest.mark.slow
@given(st.data())
@settings(parent=examples(1500), phases=[Phase.generate])
def test_minimum_cuts_are_certified_at_length(data: st.DataObject) -> None:
    """Thousands of the same."""
    check(data.draw(problems(max_ops=6, max_kinds=3, max_devices=4, objective=SERIAL)))


@pytest.mark.slow
@given(st.data())
@settings(parent=examples(1000), phases=[Phase.generate])
def test_cuts_by_direction_are_certified_at_length(data: st.DataObject) -> None:
    """Thousands of the same."""
    acyclic = st.just(Contiguity.ACYCLIC)
    check(data.draw(problems(max_ops=7, max_kinds=2, max_devices=2, objective=SERIAL, contiguity=acyclic)))


def test_rounded_bounds_keep_their_certificate() -> None:
    """Whole milliseconds: a bound of 2.5 ms is one of 3 ms, and whoever checks it knows."""
    graph = pk.OpGraph.from_edges(list("abc"), [])
    costs = pk.CostTable(("gpu",), np.array([[2e-3], [2e-3], [1e-3]]), np.zeros((0, 1)), np.zeros(3))
    problem = Problem(graph, pk.Platform.of(gpu=2), costs, contiguity=Contiguity.NONE)
    result = pk.solve(problem, "bound")
    assert result.lower_bound == pytest.approx(3e-3)
    assert "certificate" in verify(result, problem, max_steps=0)["bound"].detail


@pytest.mark.parametrize("cases", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_quick_bounds_of_the_makespan_are_certified_or_found_again(cases: int) -> None:
    """Paths with the work between ops from scratch, shared work by its rows; with links, classes, pins and limits."""
    for problem in (random_problem(52, case, "makespan", (5, 20)) for case in range(cases)):
        exact, tasks = ExactProblem.of(problem), make_tasks(problem)
        if not all(exact.allowed) or not np.isfinite(tasks.time_s).any(axis=1).all():
            continue
        for bound_s, _, source in quick_bounds(tasks):
            certificate = source() if callable(source) else source
            value = exact.seconds(longest_path(exact)) if certificate is None else proven(exact, certificate)
            assert value * (1 + BOUND_TOLERANCE) >= Fraction(bound_s)


@pytest.mark.parametrize("cases", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_paths_know_direct_links_and_stay_below_the_optimum(cases: int) -> None:
    """Bounds of a makespan are of the problem with its links, which enumeration schedules."""
    drawn = (random_problem(53, case, "makespan") for case in itertools.count())
    for problem in itertools.islice((each for each in drawn if each.has_direct_links), cases):
        exact, best = ExactProblem.of(problem), enumerated_optimum(problem)
        if best is not None:
            assert float(exact.seconds(longest_path(exact))) <= best * (1 + 1e-12)
            tasks = make_tasks(problem)
            for _, _, source in quick_bounds(tasks):
                certificate = source() if callable(source) else source
                assert certificate is None or float(proven(exact, certificate)) <= best * (1 + 1e-12)


def check_ideals(problem: Problem) -> None:
    """Check that the program over ideals says no below the optimum, and never no above it."""
    best, exact = oracle.brute_force(problem), ExactProblem.of(problem)
    if best is None:
        return
    tick = Fraction(best) / 10**9
    assert reaches_below(exact, Fraction(best) - tick) is not True
    assert reaches_below(exact, Fraction(best) + tick + Fraction(1, 10**200)) is not False


THROUGHPUT = st.builds(pk.Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"]))


@given(st.data())
@settings(parent=examples(40), phases=[Phase.generate])
def test_ideals_agree_with_brute_force(data: st.DataObject) -> None:
    """More kinds and devices than elsewhere, zeros, memory, pins, backward ops."""
    acyclic = st.just(Contiguity.ACYCLIC)
    check_ideals(data.draw(problems(max_ops=6, max_kinds=3, max_devices=4, objective=THROUGHPUT, contiguity=acyclic)))


@pytest.mark.slow
@given(st.data())
@settings(parent=examples(4000), phases=[Phase.generate])
def test_ideals_agree_with_brute_force_at_length(data: st.DataObject) -> None:
    """Thousands of the same."""
    acyclic = st.just(Contiguity.ACYCLIC)
    check_ideals(data.draw(problems(max_ops=6, max_kinds=3, max_devices=4, objective=THROUGHPUT, contiguity=acyclic)))

"""Results of methods verify; results that were tampered with do not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forged import small
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from linked_problems import on_two_nodes
from strategies import examples, problems

import placekit as pk
from placekit.io.files.result_json import read_result, write_result
from placekit.model.errors import UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.solve.certificates import Certificate, NoDevice, Prices
from placekit.solve.result import Result, Status
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import objective
from placekit.verification.runs import runs_below
from placekit.verification.verify import Outcome, certifies, verify


@given(st.data())
@settings(parent=examples(150), phases=[Phase.generate])
def test_results_of_methods_verify(data: st.DataObject) -> None:
    """What `dp` and `bound` say of small throughput problems is consistent; bounds are checked, not trusted."""
    problem = data.draw(problems(max_ops=5, max_kinds=2, max_devices=3, objective=st.builds(pk.Throughput)))
    for method in ("single:" + problem.platform.device_names[0], "greedy"):
        result = pk.solve(problem, method=method)
        found = verify(result, problem)
        assert found.is_consistent, str(found)
        if result.lower_bound is not None:
            assert found["bound"].outcome is Outcome.CHECKED


@pytest.fixture
def solved(machines: Problem) -> Result:
    """Return a placement of two ops on two devices with the bound of the average load."""
    return with_bound(pk.solve(machines, method="single:gpu.0"), machines)


@pytest.fixture
def machines() -> Problem:
    """Return four ops of 1 s on two devices."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "c"), ("c", "d")], name="four")
    costs = pk.CostTable(("gpu",), np.ones((4, 1)), np.zeros((3, 1)), np.ones(4))
    return Problem(graph, pk.Platform.of(gpu=2, memory_bytes={"gpu": 4.0}), costs)


def with_bound(result: Result, problem: Problem) -> Result:
    """Return `result` with a bound of half the work, and its certificate."""
    average = Prices((0, 0), ((0.5,),), ((0.5,),), (0.0,))
    assert certifies(average, 2.0, problem)
    return dataclasses.replace(
        result, lower_bound=2.0, bound_name="average load", certificate=average, status=Status.FEASIBLE
    )


def test_certificate_travels_with_the_file(solved: Result, machines: Problem, tmp_path: Path) -> None:
    """Written on demand, read back equal, and checked."""
    path = tmp_path / "r.json"
    write_result(solved, path)
    assert read_result(path).certificate is None
    write_result(solved, path, certificate=True)
    back = read_result(path)
    assert back == solved
    assert back.certificate == solved.certificate
    assert verify(back, machines)["bound"].detail == "2.0 s (average load) by certificate: prices"


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "objective": (lambda d: d.update(objective=3.9), "objective"),
    "bound": (lambda d: d.update(lower_bound=2.5), "bound"),
    "weights": (lambda d: d["certificate"].update(work_weight=[[0.6]]), "bound"),
    "placement": (lambda d: d["placement"].update(d="gpu.1"), "objective"),
    "unknown op": (lambda d: d["placement"].update(e=d["placement"].pop("d")), "placement"),
    "hash": (lambda d: d.update(problem_hash="0" * 32), "problem"),
    "status": (lambda d: d.update(status="optimal"), "gap"),
    "another kind": (
        lambda d: d.update(certificate={"schema": "placekit/certificate/1", "kind": "no-device", "op": 0}),
        "bound",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_found(what: str, solved: Result, machines: Problem, tmp_path: Path) -> None:
    """Each change of the file makes the check that it concerns fail, and no other file is consistent."""
    path = tmp_path / "r.json"
    write_result(solved, path, certificate=True)
    document = json.loads(path.read_text())
    del document["placement_hash"]  # with it, the reader refuses a changed placement
    change, subject = TAMPERED[what]
    change(document)
    path.write_text(json.dumps(document))
    found = verify(read_result(path), machines)
    assert not found.is_consistent
    assert found[subject].outcome is Outcome.FAILED, str(found)


def test_wrong_bound_without_certificate_meets_a_placement(solved: Result, machines: Problem) -> None:
    """A bound of 3.5 s is refuted by runs or by ideals, and by enumeration where they do not apply."""
    claimed = dataclasses.replace(solved, certificate=None, lower_bound=3.5)
    assert "exists (all runs of the chain)" in verify(claimed, machines)["bound"].detail
    free = machines.replace(contiguity="none")
    other = dataclasses.replace(claimed, problem_hash=free.content_hash)
    assert "takes 3.0 s" in verify(other, free)["bound"].detail or "takes 2.0 s" in verify(other, free)["bound"].detail


def test_what_is_too_large_is_trusted() -> None:
    """Without a certificate and without steps to spend, the claimant is named; three ops on two devices take 2 s."""
    costs = pk.CostTable(("gpu",), np.ones((3, 1)), np.zeros((0, 1)), np.zeros(3))
    free = Problem(pk.OpGraph.from_edges(list("abc"), []), pk.Platform.of(gpu=2), costs).replace(contiguity="none")
    claimed = dataclasses.replace(pk.solve(free, "enumerate"), certificate=None, bound_name="CP-SAT bound")
    assert claimed.lower_bound == pytest.approx(2.0)
    assert verify(claimed, free)["bound"].outcome is Outcome.CHECKED
    found = verify(claimed, free, max_steps=3)
    assert found["bound"].outcome is Outcome.TRUSTED
    assert "CP-SAT bound" in found["bound"].detail
    assert found.is_consistent


def test_unrelated_machines_are_certified() -> None:
    """The multipliers of the linear program, with memory prices, prove its bound."""
    graph = pk.OpGraph.from_edges(list("abcdef"), [(a, b) for a, b in zip("abcde", "bcdef", strict=True)])
    times = [[1.0, 3.0], [2.0, 3.0], [1.5, 4.0], [1.0, 2.0], [3.0, 4.0], [2.0, 2.5]]
    memory = np.array([3.0, 2.0, 4.0, 1.0, 5.0, 2.0])
    costs = pk.CostTable(("gpu", "cpu"), np.array(times), np.array([[0.1, 0.0]] * 5), memory)
    problem = Problem(graph, pk.Platform.of(gpu=2, cpu=1, memory_bytes={"gpu": 5.0}), costs)
    from placekit.solvers.throughput.bounds.unrelated_machines import certified_machines

    found = certified_machines(problem)
    assert found is not None
    assert certifies(found[1], found[0], problem)
    assert not certifies(found[1], found[0] * 1.001, problem)


def infeasible(problem: Problem) -> tuple[Result, Certificate | None]:
    """Return what a heuristic says of a problem without a placement."""
    result = pk.solve(problem, method="greedy")
    assert result.status is Status.INFEASIBLE
    return result, result.certificate


def test_infeasibility_is_certified(machines: Problem) -> None:
    """Bytes in total, and an op larger than every device; a certificate of another kind proves nothing."""
    small = machines.replace(platform=pk.Platform.of(gpu=2, memory_bytes={"gpu": 1.5}))
    tiny = machines.replace(platform=pk.Platform.of(gpu=2, memory_bytes={"gpu": 0.5}))
    for problem in (small, tiny):
        result, certificate = infeasible(problem)
        assert certificate is not None
        assert "by certificate" in verify(result, problem)["infeasible"].detail
        assert certifies(certificate, 1e300, problem)  # where nothing is feasible, nothing is below any value
        without = dataclasses.replace(result, certificate=None)
        assert verify(without, problem)["infeasible"].outcome is Outcome.CHECKED
    wrong = dataclasses.replace(infeasible(small)[0], certificate=NoDevice(0))
    assert verify(wrong, small)["infeasible"].outcome is Outcome.FAILED
    said = dataclasses.replace(wrong, certificate=None, problem_hash=machines.content_hash)
    assert "is feasible" in verify(said, machines)["infeasible"].detail


def test_an_objective_without_a_formula_is_refused(machines: Problem) -> None:
    """The checker knows four objectives and scores nothing by guessing; a check that was not made is no check."""
    exact = ExactProblem.of(machines)
    energy: Any = SimpleNamespace(objective=SimpleNamespace(name="energy"))
    strange = dataclasses.replace(exact, problem=energy)
    with pytest.raises(UnsupportedProblemError, match="no formula for objective 'energy'"):
        objective(strange, [0, 0, 0, 0])
    with pytest.raises(KeyError, match="calls"):
        verify(pk.solve(machines, "greedy"), machines)["calls"]


def test_a_gap_is_never_below_zero() -> None:
    """A bound above the true objective by less than the tolerance is a gap of none."""
    problem = small(pk.Throughput(), [[1.0, 2.0], [2.0, 1.0]], contiguity="acyclic")
    result = pk.solve(problem, "dp")
    assert result.objective is not None
    above = result.objective * (1 + 1e-13)
    found = verify(dataclasses.replace(result, objective=above, lower_bound=above), problem)
    assert found.gap == 0.0
    assert found["gap"].outcome is Outcome.CHECKED


def test_a_bound_above_the_objective_fails_where_it_is_trusted() -> None:
    """Nobody enumerates three ops on two devices to refute 2.5 s: their placement does, which takes 2 s."""
    problem = small(pk.Throughput(), [[1.0]] * 3, counts=(2,))
    result = dataclasses.replace(pk.solve(problem, "enumerate"), certificate=None, objective=2.5, lower_bound=2.5)
    found = verify(result, problem, max_steps=3)
    assert found["bound"].outcome is Outcome.TRUSTED
    assert found["gap"].outcome is Outcome.FAILED
    assert found["gap"].detail == "the bound 2.5 s is above the objective"
    assert not found.is_consistent


def test_rules_that_a_placement_keeps_are_told(solved: Result, machines: Problem) -> None:
    """Those that the problem has, in words; a rule that it has not is not looked at."""
    assert verify(solved, machines)["contiguity"].detail == "the parts are acyclic"
    free = machines.replace(contiguity="none")
    other = dataclasses.replace(solved, problem_hash=free.content_hash)
    assert not {"contiguity", "colocation"} & {check.subject for check in verify(other, free).checks}


def test_a_search_without_direct_links_refutes_no_bound() -> None:
    """What it finds below the bound is not there with them: pieces of a chain with overlap, which need them."""
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    problem = on_two_nodes(edges, pk.Throughput(overlap=True), contiguity="acyclic")
    costs = problem.costs.replace(direct_time_s=np.tile([3.0, 9.0], (3, 1)), transfer_time_s=np.full((3, 1), 9.0))
    devices = tuple(device.replace(memory_bytes=1.0) for device in problem.platform.devices)
    costs = costs.replace(op_memory_bytes=np.ones(4))
    problem = problem.replace(platform=dataclasses.replace(problem.platform, devices=devices), costs=costs)
    result = pk.solve(problem, "enumerate")
    assert result.status is Status.OPTIMAL
    exact = ExactProblem.of(problem)
    assert result.objective is not None
    assert runs_below(exact.without_links, Fraction(result.objective) * (1 - Fraction(1, 10**9))) is True
    assert verify(result, problem).is_consistent

"""Certificates of segments in series: checked where they are true, refused where a number was changed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

import placekit as pk
from placekit.io.certificate_schema import CertificateModel
from placekit.io.result_json import read_result, write_result
from placekit.problem import Problem
from placekit.result import Result
from placekit.verification.certificates import Series, certificate_from_dict
from placekit.verification.exact import ExactProblem
from placekit.verification.proofs import proven
from placekit.verification.series import OpenCertificateError
from placekit.verification.verify import Outcome, certifies, verify


def diamonds(count: int, width: int = 3) -> Problem:
    """Return diamonds one after the other on a CPU and two GPUs: sums of segments beat paths and shared work."""
    edges, names = [], ["c0"]
    for at in range(count):
        inner = [f"d{at}{branch}" for branch in range(width)]
        names += [*inner, f"c{at + 1}"]
        edges += [edge for name in inner for edge in ((f"c{at}", name), (name, f"c{at + 1}"))]
    graph = pk.OpGraph.from_edges(names, edges)
    rng = np.random.default_rng(1)
    times = rng.integers(5, 40, (graph.num_ops, 2)) / 7
    costs = pk.CostTable(("cpu", "gpu"), times, np.full((graph.num_tensors, 2), 0.3), np.zeros(graph.num_ops))
    return Problem(graph, pk.Platform.of(cpu=1, gpu=2), costs, pk.Makespan())


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Return three diamonds."""
    return diamonds(3)


@pytest.fixture(scope="module")
def result(problem: Problem) -> Result:
    """Return an optimum whose bound is a sum over segments."""
    found = pk.solve(problem, "cpsat", stop=pk.MaxRuntime(20), seed=0)
    assert found.bound_name == "segments in series"
    return found


def test_the_sum_of_segments_is_checked(result: Result, problem: Problem, tmp_path: Path) -> None:
    """By its certificate, after a file, too, though the problem is too large to enumerate."""
    assert isinstance(result.certificate, Series)
    assert len(result.certificate.cuts) >= 2
    found = verify(result, problem)
    assert found.is_consistent, str(found)
    assert found["bound"].detail.endswith("by certificate: series")
    write_result(result, tmp_path / "r.json", certificate=True)
    assert read_result(tmp_path / "r.json").certificate == result.certificate
    bare = dataclasses.replace(result, certificate=None)
    assert verify(bare, problem, max_steps=1000)["bound"].outcome is Outcome.TRUSTED


def test_changed_numbers_are_refused(result: Result, problem: Problem) -> None:
    """More seconds than a segment takes, on any path that matters; fewer prove less than the bound says."""
    certificate = result.certificate
    assert isinstance(certificate, Series)
    assert result.lower_bound is not None
    changed = 0
    for at, (segment, first, last, seconds) in enumerate(certificate.cases):
        for factor in (0.5, 1.001, 2.0):
            cases = list(certificate.cases)
            cases[at] = segment, first, last, seconds * factor
            forged = dataclasses.replace(result, certificate=Series(certificate.cuts, tuple(cases)))
            outcome = verify(forged, problem)["bound"].outcome
            assert factor < 1 or outcome is Outcome.FAILED
            changed += outcome is not Outcome.CHECKED
    assert changed > 2 * len(certificate.cases)
    assert certifies(certificate, result.lower_bound, problem)
    assert not certifies(certificate, result.lower_bound * 1.001, problem)


@pytest.mark.parametrize(
    ("cuts", "cases", "says"),
    [
        ((3, 2), (), "nothing leads to cut 2"),
        ((4, 0), (), "nothing leads to cut 0"),
        ((4, 4), (), "nothing leads to cut 4"),
        ((99,), (), "99"),
        ((4,), ((2, None, None, 1.0),), "segment 2"),
        ((4,), ((0, None, 9, 1.0),), "segment 0"),
        ((4,), ((0, None, 0, float("inf")),), "segment 0"),
        ((4,), ((0, None, 0, 1.0), (0, None, 0, 2.0)), "segment 0"),
    ],
)
def test_what_is_no_series_is_refused(cuts: tuple[int, ...], cases: Any, says: str) -> None:
    """Cuts that do not follow each other, cases that are not there or are there twice."""
    with pytest.raises(pk.PlacekitError, match=says):
        proven(ExactProblem.of(diamonds(2)), Series(cuts, cases))


def test_only_a_makespan_has_segments(problem: Problem) -> None:
    """Other objectives do not add up."""
    other = problem.replace(objective=pk.SerialLatency())
    with pytest.raises(pk.PlacekitError, match="makespan only"):
        proven(ExactProblem.of(other), Series((0,), ()))


def test_a_segment_that_is_too_large_is_trusted(result: Result, problem: Problem) -> None:
    """Nothing is wrong with it, but it was not looked at."""
    found = verify(result, problem, max_steps=3)
    assert found["bound"].outcome is Outcome.TRUSTED
    assert "a segment of 5 ops takes too many steps" in found["bound"].detail
    with pytest.raises(OpenCertificateError):
        proven(ExactProblem.of(problem), result.certificate or Series((0,), ()), 3)
    assert not certifies(Series((0,), ((1, 0, None, 1e9),)), 1.0, diamonds(12, 4))


def test_the_form_of_a_series_is_checked(result: Result) -> None:
    """Columns of one length, at least one cut."""
    assert result.certificate is not None
    adapter: TypeAdapter[Any] = TypeAdapter(CertificateModel)
    valid = {"schema": "placekit/certificate/1", **result.certificate.to_dict()}
    read = adapter.validate_python(json.loads(json.dumps(valid))).model_dump(by_alias=True)
    assert certificate_from_dict(read) == result.certificate
    changes: list[dict[str, Any]] = [{"cuts": []}, {"seconds": [1.0]}, {"first": ["a"]}, {"extra": 1}]
    for change in changes:
        with pytest.raises(ValidationError):
            adapter.validate_python({**valid, **change})

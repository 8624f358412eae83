"""Forged fields of result files: whatever follows from the rest is compared, and a difference fails."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import examples, problems

import placekit as pk
from placekit.advice.verdict import with_verdict
from placekit.io.files.result_json import read_result, write_result
from placekit.model.errors import PlacekitError
from placekit.model.problem import Problem
from placekit.objectives import Makespan, SerialLatency, Throughput
from placekit.verification.derived import _differing
from placekit.verification.verify import Outcome, verify

FREE = (
    "model", "method", "bound_name", "runtime_s", "compile_s", "load_s", "evaluations", "seed", "info", "tolerance",
    "stop_reason", "placement_hash",
)  # fmt: skip
"""Fields that nothing in a result decides, and those that are refused as the file is read."""


def two_cards(**fields: object) -> Problem:
    """Return four ops on a CPU and two GPUs; the memory of a GPU holds two of them."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], name="diamond")
    times = np.array([[4.0, 1.0], [4.0, 2.0], [3.0, 1.0], [2.0, 1.5]]) * 1e-3
    costs = pk.CostTable(("cpu", "gpu"), times, np.full((3, 2), 1e-4) * [0, 1], np.full(4, 100.0))
    platform = pk.Platform.of(cpu=1, gpu=2, memory_bytes={"gpu": 250.0})
    return Problem(graph, platform, costs, **fields)  # type: ignore[arg-type]  # fields by name


PROBLEMS = {
    "throughput": two_cards(),
    "teams": two_cards(objective=Throughput(teams="any")).replace(contiguity="none"),
    "makespan": two_cards(objective=Makespan()),
    "serial": two_cards(objective=SerialLatency()),
    "error": two_cards().replace(costs=two_cards().costs.replace(provenance={"error": 0.08})),
}


def solved(problem: Problem) -> pk.Result:
    """Return an answer with a gap of 10 %, and with its verdict."""
    result = pk.solve(problem)
    assert result.objective is not None
    half = {"lower_bound": result.objective * 0.9, "status": pk.Status.FEASIBLE, "stop_reason": pk.StopReason.TIME}
    bounded = replace(result, **half, trace=(), certificate=None, info={})  # type: ignore[arg-type]  # fields by name
    return with_verdict(bounded, problem)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every number, text and truth value in a document, with the way to it."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path, value


def forged(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value * 1.01 + 1e-6
    return 0.25 if value is None else f"{value} 9x"


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_field_that_follows_from_others_can_be_forged(name: str, tmp_path: Any) -> None:
    """Every number, word and truth value of the file is changed in turn; the file is refused, or a check fails."""
    problem, path = PROBLEMS[name], tmp_path / "r.result.json"
    result = solved(problem)
    write_result(result, path)
    document = json.loads(path.read_text())
    assert verify(read_result(path), problem, document=document).is_consistent
    believed = []
    for where, value in list(leaves(document)):
        if where[0] in FREE or where in (("schema",), ("lower_bound",)):
            continue
        changed = copy.deepcopy(document)
        inner = changed
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = forged(value)
        path.write_text(json.dumps(changed))
        try:
            found = verify(read_result(path), problem, document=changed)
        except PlacekitError:
            continue
        if found.is_consistent:
            believed.append((where, value))
    # nothing tells an op's step where steps decide nothing
    assert not [each for each in believed if each[0][0] != "steps"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gap": 0.0}, "gap is 0.0, objective and bound give 0.1"),
        ({"gap": None}, "gap is None"),
        ({"status": "optimal"}, "called optimal"),
        ({"stop_reason": "proved"}, "stop_reason is proved, status is feasible"),
        ({"trace": [[0.1, 1e-4, None]]}, "trace[0] has the objective 0.0001"),
        ({"trace": [[0.1, None, 9.0]]}, "trace[0] has the bound 9.0"),
        ({"trace": [[0.2, None, None], [0.1, None, None]]}, "trace goes back in time"),
        ({"info": {"stages": [{"method": "dp", "objective_s": 1e-4, "bound_s": None}]}}, "info.stages[0]"),
        (
            {"info": {"stages": [{"method": "dp", "objective_s": None, "bound_s": 9.0}]}},
            "stages[0] has the bound 9",
        ),
        ({"objective_name": "makespan"}, "objective_name is 'makespan', the problem's is 'throughput'"),
        ({"device_loads": {"cpu.0": 0.0, "gpu.0": 0.0, "gpu.1": 0.0}}, "device_loads."),
    ],
)
def test_the_true_value_is_named(change: dict[str, Any], said: str, tmp_path: Any) -> None:
    """The line of a forged field has what it is and what follows; everything else still holds."""
    problem, path = PROBLEMS["throughput"], tmp_path / "r.result.json"
    write_result(solved(problem), path)
    document = json.loads(path.read_text()) | change
    path.write_text(json.dumps(document))
    found = verify(read_result(path), problem, document=document)
    failed = [check for check in found.checks if check.outcome is Outcome.FAILED]
    assert len(failed) == 1
    assert said in failed[0].detail


@examples(60)
@given(problems())
def test_what_solve_says_holds(problem: Problem) -> None:
    """No field of a true result contradicts another, with a verdict or without."""
    for method in ("auto", "greedy"):
        result = pk.solve(problem, method)
        for each in (result, with_verdict(result, problem)):
            assert verify(each, problem)["fields"].outcome is Outcome.CHECKED, verify(each, problem)["fields"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_schedule_may_be_left_out(name: str, tmp_path: Any) -> None:
    """Large ones are, since the placement says them."""
    problem, path = PROBLEMS[name], tmp_path / "r.result.json"
    write_result(solved(problem), path)
    document = json.loads(path.read_text()) | {"schedule": None}
    path.write_text(json.dumps(document))
    assert verify(read_result(path), problem, document=document).is_consistent


def test_lists_differ_by_their_entries() -> None:
    """Each but for rounding; lists of other lengths as a whole."""
    follows = [0.1, 0.2, 0.3]
    assert list(_differing("ends", [0.1, 0.2, 0.1 + 0.2], follows)) == []
    assert list(_differing("ends", [0.1, 0.25, 0.3], follows)) == ["ends[1] is 0.25, it follows 0.2"]
    assert list(_differing("ends", [0.1, 0.2], follows)) == ["ends is [0.1, 0.2], it follows [0.1, 0.2, 0.3]"]

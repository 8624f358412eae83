"""``placekit verify`` on forged result files: exit code 5 or 2, and the reason; never a traceback."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forged import prices, small

import placekit as pk
from placekit.io.files.problem_json import write_problem
from placekit.io.files.result_json import write_result
from placekit.solve.certificates import Certificate, Directions, NoDevice, OrderedPrices, Series, SharedWork
from placekit.solve.result import Status

Call = Callable[..., Any]
Document = dict[str, Any]

# four ops of 1 s in a row on two devices that hold all of them: at least 2 s, and 4 s on one device
PROBLEM = small(pk.Throughput(), [[1.0]] * 4, "ab bc cd", counts=(2,), size=1.0, memory={"p": 4.0})
RESULT = dataclasses.replace(
    pk.solve(PROBLEM, "single:p.0"),
    lower_bound=2.0,
    bound_name="average load",
    certificate=prices([0.5], [0.5], profile=(0, 0)),
    status=Status.FEASIBLE,
)


@pytest.fixture
def verify(call: Call, tmp_path: Path) -> Callable[[str], Any]:
    """Verify a result file with this text against the problem."""

    def run(text: str) -> Any:
        write_problem(PROBLEM, tmp_path / "four.problem.json")
        (tmp_path / "four.result.json").write_text(text)
        return call("verify", "four.result.json", "four.problem.json")

    return run


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the text of the honest result."""
    path = tmp_path_factory.mktemp("honest") / "four.result.json"
    write_result(RESULT, path, certificate=True)
    return path.read_text()


def certified(certificate: Certificate) -> dict[str, Any]:
    """Return the field of a certificate."""
    return {"certificate": {"schema": "placekit/certificate/1", **certificate.to_dict()}}


def duals(**fields: Any) -> dict[str, Any]:
    """Return the prices of the honest result with other fields."""
    assert RESULT.certificate is not None
    return {"certificate": {"schema": "placekit/certificate/1", **RESULT.certificate.to_dict(), **fields}}


NOWHERE: Document = {"placement": None, "placement_hash": None, "objective": None, "lower_bound": None, "gap": None}
INFEASIBLE = {**NOWHERE, "status": "infeasible", "bound_name": None}
ALL_ON_ONE = dict.fromkeys("abcd", "p.0")
MOVED = {"placement": ALL_ON_ONE | {"d": "p.1"}}

WRONG: dict[str, tuple[Document, str, str]] = {
    "an objective that is too good": ({"objective": 3.9}, "objective", "4.0 s; the result says 3.9 s"),
    "a huge objective": ({"objective": 1e308}, "objective", "4.0 s; the result says 1e+308 s"),
    "an objective of a huge integer": ({"objective": 10**300}, "objective", "4.0 s; the result says 1e+300 s"),
    "a bound that is too good": ({"lower_bound": 2.5}, "bound", "prices proves no more than 2.0 s"),
    "a huge bound": ({"lower_bound": 1e308, "objective": 1e308}, "bound", "prices proves no more than 2.0 s"),
    "a gap beyond floats": ({"lower_bound": -1e308, "status": "optimal"}, "gap", "called optimal, which means"),
    "a bound of huge prices": (
        duals(memory_price=[1e308], work_weight=[[0.0]]),
        "bound",
        "prices proves no more than -1.79",
    ),
    "a bound without proof": (
        {"lower_bound": 3.5, "certificate": None},
        "bound",
        "the placement [p.0, p.0, p.0, p.1] takes 3.0 s",
    ),
    "a status": ({"status": "optimal"}, "gap", "called optimal, which means at most"),
    "a status by a tolerance": ({"status": "optimal", "tolerance": 1e300}, "gap", "called optimal, which means"),
    "another placement": ({**MOVED, "placement_hash": None}, "objective", "3.0 s; the result says 4.0 s"),
    "an op too few": (
        {"placement": dict.fromkeys("abc", "p.0"), "placement_hash": None},
        "placement",
        "op 'd' is not in both",
    ),
    "an op too many": (
        {"placement": dict.fromkeys("abcde", "p.0"), "placement_hash": None},
        "placement",
        "op 'e' is not in both",
    ),
    "a team": (
        {"placement": dict.fromkeys("abcd", "p.0+p.1"), "placement_hash": None},
        "team",
        "may not be a team: teams are 'off'",
    ),
    "weights above 1": (duals(work_weight=[[0.6]]), "bound", "the weights add up to 1.2; at most 1 is allowed"),
    "huge weights": (duals(work_weight=[[1e308]]), "bound", "the weights add up to "),
    "an op of the certificate": (
        duals(op_weight={"op": [2**62], "weights": [[0.0]]}),
        "bound",
        f"names op {2**62}; the problem has 4",
    ),
    "another problem's prices": (certified(prices([0.3, 0.3, 0.3])), "bound", "must name one of 3 profiles"),
    "another problem's op": (certified(NoDevice(4)), "bound", "names op 4; the problem has 4"),
    "another problem's tensor": (
        duals(nets=[{"tensors": [7], "profile": [], "op": [], "seconds": []}]),
        "bound",
        "names tensor 7; the problem has 3",
    ),
    "a proof of nothing": (certified(NoDevice(0)), "bound", "no-device proves no more than 0.0 s"),
    "a series": (certified(Series((1,), ())), "bound", "segments in series bound the makespan only"),
    "shared work": (certified(SharedWork((((0,), (0,), 1.0),))), "bound", "shared work bounds the makespan only"),
    "directions": (
        certified(Directions((None, OrderedPrices(prices([0.5, 0.5]))))),
        "bound",
        "directions are cases of two devices under contiguity acyclic",
    ),
    "no placement, without proof": ({**INFEASIBLE, "certificate": None}, "infeasible", "the placement ["),
    "no placement, by prices": (INFEASIBLE, "infeasible", "certificate prices does not prove it"),
    "no placement, by an op": (
        {**INFEASIBLE, **certified(NoDevice(0))},
        "infeasible",
        "certificate no-device does not prove it",
    ),
    "no placement, by another problem's op": (
        {**INFEASIBLE, **certified(NoDevice(9))},
        "infeasible",
        "names op 9; the problem has 4",
    ),
}


def test_the_honest_result_is_checked(verify: Callable[[str], Any], honest: str) -> None:
    """Before anything is forged, every line says so."""
    done = verify(honest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"checked"}


@pytest.mark.parametrize("name", WRONG)
def test_a_forged_result_fails_its_check(verify: Callable[[str], Any], honest: str, name: str) -> None:
    """Exit code 5, and the check of what was forged says what is true."""
    change, subject, words = WRONG[name]
    done = verify(json.dumps(json.loads(honest) | change))
    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stderr == ""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{subject} ")]
    assert line.split()[1] == "failed"
    assert words in line


ANOTHER_HASH = {"problem_hash": "0" * 32, "problem_terms": None}
MALFORMED: dict[str, tuple[Document, str]] = {
    "a negative objective": ({"objective": -1.0}, "objective is -1.0; it should be greater than or equal to 0"),
    "an objective in words": ({"objective": "4.0"}, "objective is '4.0'"),
    "an objective of truth": ({"objective": True}, "objective is True"),
    "no objective": ({"objective": None}, "objective"),
    "an objective of nothing": ({"objective": 0.0}, "lower bound 2.0 above the objective 0.0"),
    "a bound above the objective": ({"lower_bound": 1e308}, "lower bound 1e+308 above the objective 4.0"),
    "an objective that no float is": ({"objective": 10**400}, "objective"),
    "an unknown status": ({"status": "proven"}, "status is 'proven'; it should be one of"),
    "a hash that is not the placement's": (MOVED, "placement_hash is"),
    "a hash of no placement": ({**INFEASIBLE, "placement_hash": "0" * 32}, "placement_hash is"),
    "another problem's hash": (ANOTHER_HASH, "the result is of problem 000"),
    "a hash that is a path": ({**ANOTHER_HASH, "problem_hash": "../../etc/passwd"}, "the result is of problem ../../"),
    "an unknown device": ({"placement": ALL_ON_ONE | {"d": "q.0"}}, "names device 'q.0'"),
    "a team with itself": ({"placement": dict.fromkeys("abcd", "p.0+p.0")}, "p.0"),
    "an unknown kind of certificate": ({"certificate": {"schema": "placekit/certificate/1", "kind": "magic"}}, "magic"),
    "a certificate of another version": (duals(schema="placekit/certificate/2"), "schema is"),
    "a certificate without prices": (
        {"certificate": {"schema": "placekit/certificate/1", "kind": "prices"}},
        "missing",
    ),
    "a field that no certificate has": (duals(trust=True), "trust is an unknown field"),
    "a negative weight": (duals(work_weight=[[-1.0]]), "work_weight[0][0] is -1.0"),
    "a negative price of memory": (duals(memory_price=[-1.0]), "memory_price[0] is -1.0"),
    "a weight that no float is": (duals(work_weight=[[10**400]]), "work_weight"),
    "a profile that is no number": (duals(profile_of_device=["0", 0]), "profile_of_device[0] is '0'"),
    "a negative profile": (duals(profile_of_device=[0, -1]), "profile_of_device[1] is -1"),
    "a huge op": (duals(op_weight={"op": [2**63], "weights": [[0.0]]}), "op_weight.op[0] is 9223372036854775808"),
    "columns of two lengths": (duals(op_weight={"op": [0], "weights": []}), "weights has 0 entries; there must be 1"),
    "one direction": (
        {"certificate": {"schema": "placekit/certificate/1", "kind": "directions", "cases": [None]}},
        "cases",
    ),
    "a series without cuts": (certified(Series((), ())), "cuts is []; it must not be empty"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_result_is_bad_input(verify: Callable[[str], Any], honest: str, name: str) -> None:
    """Exit code 2, and one line that names the file and what is wrong."""
    change, words = MALFORMED[name]
    told = one_line(verify(json.dumps(json.loads(honest) | change)))
    assert words in told


TEXTS: dict[str, tuple[str, str, str]] = {
    "NaN": ('"lower_bound": 2.0', '"lower_bound": NaN', "NaN is no JSON number"),
    "infinity": ('"lower_bound": 2.0', '"lower_bound": Infinity', "Infinity is no JSON number"),
    "minus infinity": ('"lower_bound": 2.0', '"lower_bound": -Infinity', "-Infinity is no JSON number"),
    "a number beyond floats": ('"lower_bound": 2.0', '"lower_bound": 1e999', "lower_bound is inf"),
    "an objective beyond floats": ('"objective": 4.0', '"objective": 1e999', "objective is inf"),
    "a weight beyond floats": ('"memory_price": [', '"memory_price": [1e999, ', "memory_price[0] is inf"),
    "a bound twice": ('"lower_bound": 2.0', '"lower_bound": 2.0, "lower_bound": 4.0', "'lower_bound' appears twice"),
    "an op twice": ('"a": "p.0"', '"a": "p.1", "a": "p.0"', "key 'a' appears twice"),
    "a kind twice": ('"kind": "prices"', '"kind": "no-device", "kind": "prices"', "key 'kind' appears twice"),
    "an integer of 5,000 digits": ('"lower_bound": 2.0', f'"lower_bound": {"9" * 5000}', "integer"),
    "deep nesting": ('"lower_bound": 2.0', f'"lower_bound": {"[" * 200_000}', "nested too deeply"),
    "half a file": ('"lower_bound": 2.0', '"lower_bound"', "not JSON: line"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_no_json_is_bad_input(verify: Callable[[str], Any], honest: str, name: str) -> None:
    """Numbers that are none, and keys that other readers would drop silently."""
    before, after, words = TEXTS[name]
    assert honest.count(before) >= 1, honest
    assert words in one_line(verify(honest.replace(before, after, 1)))


def one_line(done: Any) -> str:
    """Return the only line that a refused file prints, without its breaks."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "four.result.json" in done.stderr
    return str(done.stderr)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"schema": "placekit/training-plan/1"}, "a training-plan file is no result"),
        ({"schema": "placekit/problem/1"}, "a problem file is no result"),
        ({"schema": "placekit/result/2"}, ""),
        ({"schema": "placekit/certificate/1", "kind": "no-device", "op": 0}, ""),
        ([], ""),
        (1e308, ""),
    ],
)
def test_what_is_no_result_is_bad_input(verify: Callable[[str], Any], document: Any, words: str) -> None:
    """A plan, a problem, a bare certificate or a later format: nothing of it is looked at."""
    assert words in one_line(verify(json.dumps(document)))

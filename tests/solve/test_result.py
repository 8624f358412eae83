"""Results: fields that contradict each other, their JSON values, what tells another problem, and text for people."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement, Violation
from placekit.solve.certificates import NoDevice
from placekit.solve.result import Incumbent, Result
from placekit.solve.stop import StopReason


def result(problem: pk.Problem, device: list[int] | None, **changes: Any) -> Result:
    """Return a result that knows half of the objective as a bound; of nothing found without a placement."""
    placement = None if device is None else Placement.of(problem, device)
    said = None if placement is None else pk.evaluate(problem, placement)
    objective = None if said is None else said.objective
    fields: dict[str, Any] = {
        "method": "test",
        "problem_name": problem.name,
        "objective_name": problem.objective.name,
        "status": pk.Status.UNKNOWN if said is None else pk.Status.FEASIBLE,
        "stop_reason": StopReason.TIME,
        "placement": placement,
        "objective": objective,
        "lower_bound": None if objective is None else objective / 2,
        "bound_name": "half",
        "device_loads": () if said is None else said.device_loads,
        "violations": (),
        "trace": (Incumbent(0.5, objective, None),),
        "runtime_s": 0.25,
        "evaluations": 3,
        "seed": 5,
        "info": {"nodes": 12},
        "problem_hash": problem.content_hash,
        "problem_terms": problem.terms,
    }
    return Result(**fields | changes)


@pytest.mark.parametrize(
    ("device", "changes", "message"),
    [
        ([1] * 4, {"objective": None}, "placement and objective must be given together, or neither"),
        (None, {"objective": 1.0}, "placement and objective must be given together, or neither"),
        ([1] * 4, {"lower_bound": 4.5}, r"lower bound 4\.5 above the objective 4\.0"),
        ([1] * 4, {"status": pk.Status.UNKNOWN}, "status unknown contradicts the placement"),
        ([1] * 4, {"status": pk.Status.INFEASIBLE}, "status infeasible contradicts the placement"),
        (None, {"status": pk.Status.OPTIMAL}, "status optimal contradicts the placement"),
        (None, {"status": pk.Status.FEASIBLE}, "status feasible contradicts the placement"),
    ],
)
def test_fields_may_not_contradict(
    diamond: pk.Problem, device: list[int] | None, changes: dict[str, Any], message: str
) -> None:
    """Whoever makes a result hears of it at once."""
    with pytest.raises(InvalidProblemError, match=f"result: {message}"):
        result(diamond, device, **changes)


def test_gaps(diamond: pk.Problem) -> None:
    """Relative to the objective; none without one, and 0 where the bound is met."""
    assert result(diamond, [1] * 4).gap == 0.5
    assert result(diamond, [1] * 4, lower_bound=4.0, status=pk.Status.OPTIMAL).gap == 0
    assert result(diamond, [1] * 4, lower_bound=None).gap is None
    assert result(diamond, None, lower_bound=3.0).gap is None
    assert result(diamond, None, status=pk.Status.INFEASIBLE).objective is None


def test_json_values(diamond: pk.Problem) -> None:
    """Every field has its name in the file; certificates are written when they are asked for."""
    why = Violation("memory", "too much", None, "acc.0", 2.0)
    made = result(diamond, [0, 1, 1, 2], certificate=NoDevice(3), violations=(why,), compile_s=1.5, load_s=0.75)
    told = made.to_dict()
    assert told["placement"] == {"a": "cpu.0", "b": "acc.0", "c": "acc.0", "d": "acc.1"}
    assert told["device_loads"] == {load.device: load.load_s for load in made.device_loads}
    assert told["devices"] == [load.to_dict() for load in made.device_loads]
    assert made.placement is not None
    expected = {
        "schema": "placekit/result/1", "model": "diamond", "method": "test", "objective_name": "throughput",
        "objective": made.objective, "lower_bound": made.lower_bound, "bound_name": "half", "gap": 0.5,
        "status": "feasible", "stop_reason": "time", "runtime_s": 0.25, "tolerance": 1e-9, "compile_s": 1.5,
        "load_s": 0.75, "evaluations": 3, "seed": 5, "info": {"nodes": 12}, "steps": None, "schedule": None,
        "trace": [[0.5, made.objective, None]], "problem_hash": diamond.content_hash,
        "problem_terms": dict(diamond.terms), "placement_hash": made.placement.content_hash,
        "violations": [
            {"constraint": "memory", "message": "too much", "op": None, "device": "acc.0", "amount": 2.0, "unit": "ops"}
        ],
    }  # fmt: skip
    assert {name: value for name, value in told.items() if name in expected} == expected
    assert told.keys() == expected.keys() | {"placement", "device_loads", "devices"}
    proof = {"schema": "placekit/certificate/1", **NoDevice(3).to_dict()}
    assert made.to_dict(with_certificate=True) == {**told, "certificate": proof}
    bare = dataclasses.replace(made, certificate=None, problem_terms=None, problem_hash=None)
    assert bare.to_dict(with_certificate=True) == {**told, "problem_terms": None, "problem_hash": None}
    again = Result.from_dict(made.to_dict(with_certificate=True))
    assert again == made
    assert again.certificate == NoDevice(3)


def test_what_follows_from_the_placement_is_no_difference(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedule, certificate and verdict; a schedule is written if it has no more events than a file takes."""
    clocked = diamond.replace(objective=pk.Makespan(), contiguity="none")
    made = result(clocked, [1, 1, 2, 1])
    assert made.placement is not None
    score = pk.evaluate(clocked, made.placement).score
    assert score is not None
    schedule = score.schedule
    assert schedule is not None
    more = dataclasses.replace(made, schedule=schedule, certificate=NoDevice(0), verdict=pk.verdict(clocked, made))
    assert more == made
    assert more != dataclasses.replace(more, seed=6)
    told = more.to_dict()
    assert told["schedule"] == schedule.to_dict()
    assert told["verdict"]["sentence"].startswith("Do not split: acc.0 alone is 2.8x faster")
    assert Result.from_dict(told).verdict == more.verdict
    assert "certificate" not in told
    for most, is_written in ((len(schedule), True), (len(schedule) - 1, False)):
        monkeypatch.setattr(import_module("placekit.solve.result"), "MOST_EVENTS", most)
        assert (more.to_dict()["schedule"] is not None) == is_written


def test_older_files_had_less(diamond: pk.Problem) -> None:
    """One tolerance for all, no seconds of kernels, and no word on which problem it was."""
    told = result(diamond, None).to_dict()
    assert (told["placement"], told["steps"], told["placement_hash"], told["gap"]) == (None, None, None, None)
    newer = ("tolerance", "compile_s", "load_s", "problem_hash", "problem_terms")
    old = Result.from_dict({name: value for name, value in told.items() if name not in newer})
    assert (old.tolerance, old.compile_s, old.load_s, old.problem_hash, old.problem_terms) == (1e-6, 0, 0, None, None)
    assert (old.placement, old.certificate, old.verdict) == (None, None, None)


def test_what_tells_another_problem(diamond: pk.Problem) -> None:
    """At most three differences, those of the problem first; without terms the objective, else the hashes."""
    solved = result(diamond, [1] * 4)
    assert solved.mismatch(diamond) is None
    other = diamond.replace(objective=pk.SerialLatency(), contiguity="none").pin({"a": "acc.0"})
    told = solved.mismatch(other)
    assert told is not None
    assert told.split("; ")[:2] == [
        "objective is throughput in the result, serial-latency in the problem",
        "objective subgraph_cost_s is not given in the result, 0.0 in the problem",
    ]
    assert len(told.split("; ")) == 3
    assert result(other, None).mismatch(diamond) != told
    pinned = result(diamond.pin({"a": "acc.0"}), None).mismatch(diamond)
    assert pinned == "pin of a is acc.0 in the result, not given in the problem"
    old = dataclasses.replace(solved, problem_hash=None, problem_terms=None)
    assert old.mismatch(diamond) is None
    assert old.mismatch(other) == "objective is throughput in the result, serial-latency in the problem"
    hashed = dataclasses.replace(solved, problem_terms=None, problem_hash="0" * 16)
    assert hashed.mismatch(diamond) == f"the result is of problem {'0' * 16}, this one is {diamond.content_hash}"


def test_text_for_people(diamond: pk.Problem) -> None:
    """Milliseconds, the bound with its name, a line for every device, and what is broken."""
    lines = result(diamond, [1] * 4).summary().splitlines()
    assert lines[:2] == [
        "diamond: throughput by test: feasible (time)",
        "  objective 4000.0000 ms, bound 2000.0000 ms (half), gap 50.00%, 0.25 s",
    ]
    assert [line.split() for line in lines[2:]] == [
        [name, ms, "ms", count, "ops"]
        for name, ms, count in zip(
            diamond.platform.device_names, ("0.0000", "4000.0000", "0.0000"), ("0", "4", "0"), strict=True
        )
    ]
    assert len({line.index(" ms") for line in lines[2:]}) == 1
    why = Violation("memory", "too much", None, "acc.0", 2.0)
    empty = result(diamond, None, bound_name=None, violations=(why,))
    assert str(empty).splitlines() == [
        "diamond: throughput by test: unknown (time)",
        "  objective unknown, bound unknown, gap unknown, 0.25 s",
        f"  {why}",
    ]
    assert repr(empty) == ("Result('diamond': throughput by test, unknown, objective None s, bound None s, None)")


def test_teams_are_named_and_read(diamond: pk.Problem) -> None:
    """Every member says which team it is in, and the file has the team of every op."""
    shared = diamond.replace(objective=pk.Throughput(teams="equal"))
    team = Placement.of(shared, [1] * 4, team_of_device=np.array([0, 1, 1]))
    said = pk.evaluate(shared, team)
    made = dataclasses.replace(
        result(shared, [1] * 4), placement=team, objective=said.objective, lower_bound=1.0,
        device_loads=said.device_loads,
    )  # fmt: skip
    told = made.to_dict()
    assert set(told["placement"].values()) == {"acc.0+acc.1"}
    assert Result.from_dict(told) == made
    assert sum(line.endswith("in team acc.0+acc.1") for line in made.summary().splitlines()) == 2
    steps = dataclasses.replace(made, placement=Placement.of(shared, [1] * 4, step_of_op=[3, 0, 1, 2]))
    assert steps.to_dict()["steps"] == {"a": 3, "b": 0, "c": 1, "d": 2}
    assert Result.from_dict(steps.to_dict()) == steps


def test_a_result_of_solve_holds_its_problem(diamond: pk.Problem) -> None:
    """Explain, verdict and verify need the result alone; one from a file says that its problem is to be given."""
    solved = pk.solve(diamond, "enumerate")
    assert solved.problem is diamond
    assert pk.explain(solved, time_limit_s=0).objective_s == solved.objective
    assert pk.verdict(solved).objective == solved.objective
    assert pk.verify(solved).is_consistent
    read = Result.from_dict(solved.to_dict())
    assert read == solved
    for ask in (pk.explain, pk.verdict, pk.verify):
        with pytest.raises(pk.errors.InvalidProblemError, match="does not hold its problem: give the problem"):
            ask(read)


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.Makespan()])
def test_results_draw_themselves(diamond: pk.Problem, objective: pk.Objective) -> None:
    """`plot` has loads and progress, `gantt` the pipeline or the schedule."""
    pytest.importorskip("matplotlib")
    solved = pk.solve(diamond.replace(objective=objective, contiguity="none"), "enumerate")
    loads, progress, gap = solved.plot().axes
    assert len(loads.patches) > 0
    assert len(progress.lines) == 2
    assert gap.get_yscale() == "log"
    (chart,) = solved.gantt().axes
    assert "time" in chart.get_xlabel()

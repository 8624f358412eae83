"""Result files: exact round trips and named errors."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements, problems

from placekit.io.files.detect import kind_of_file
from placekit.io.files.result_json import read_result, write_result
from placekit.model.errors import InvalidFileError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Schedule
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import SOLVER_TOLERANCE, Incumbent, Result, Status
from placekit.solve.stop import StopReason


def judged(problem: Problem, placement: Placement) -> Result:
    """Return the result of a method that found `placement`, or nothing if it is not feasible."""
    evaluation = evaluate(problem, placement)
    objective = evaluation.objective if evaluation.is_feasible else None
    return Result(
        method="test",
        objective_name=problem.objective.name,
        problem_name=problem.name,
        status=Status.UNKNOWN if objective is None else Status.FEASIBLE,
        stop_reason=StopReason.TIME,
        placement=None if objective is None else placement,
        objective=objective,
        lower_bound=None if objective is None else objective / 3,
        bound_name=None if objective is None else "third",
        device_loads=evaluation.device_loads,
        violations=evaluation.violations,
        trace=(Incumbent(0.1, None, 0.0), Incumbent(0.25, objective, None)),
        runtime_s=0.3,
        evaluations=2,
        seed=7,
        info={"nodes": 12, "log": ["a", None]},
    )


def test_steps_and_schedule_come_back_exactly(
    tmp_path: Path, diamond: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of a device's work and the events of a schedule survive the file, unless there are too many."""
    schedule = Schedule(
        device=np.array([0, 0, 1]),
        op=np.array([0, 0, 1]),
        start_s=np.array([0.0, 0.1, 0.3]),
        finish_s=np.array([0.1, 0.3, 0.1 + 0.2]),
        is_transfer=np.array([False, True, False]),
        peer=np.array([-1, 1, -1]),
        peak_memory_bytes=np.array([1.0, 2.0, 0.0]),
    )
    placement = Placement.of(diamond, [0] * 4, step_of_op=[3, 1, 2, 0])
    result = dataclasses.replace(judged(diamond, placement), schedule=schedule)
    path = tmp_path / "result.json"
    write_result(result, path)
    again = read_result(path)
    assert again.placement == placement
    assert again.placement != Placement.of(diamond, [0] * 4)
    assert again.schedule is not None
    assert again.schedule.to_dict() == schedule.to_dict()
    assert len(again.schedule) == 3
    monkeypatch.setattr(sys.modules["placekit.solve.result"], "MOST_EVENTS", 2)
    write_result(result, path)
    assert read_result(path).schedule is None
    assert read_result(path).placement == placement


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device", [9, 0, 0], "device has index 9"),
        ("start_s", [0.0], "start_s has 1 entries"),
        ("peer", [-2, 0, 0], "peer"),
    ],
)
def test_broken_schedule_is_refused(
    tmp_path: Path, diamond: Problem, field: str, value: list[float], message: str
) -> None:
    """Indices out of range and lists of different lengths are named."""
    lists = {"device": [0] * 3, "op": [0] * 3, "start_s": [0.0] * 3, "finish_s": [0.0] * 3}
    data = judged(diamond, Placement.of(diamond, [0] * 4)).to_dict()
    data["schedule"] = lists | {"is_transfer": [False] * 3, "peer": [-1] * 3} | {field: value}
    path = tmp_path / "result.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidFileError, match=message):
        read_result(path)


@given(data=st.data())
def test_result_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """read(write(r)) == r, feasible or not, and its printed form too."""
    problem = data.draw(problems())
    result = judged(problem, data.draw(placements(problem)))
    path = tmp_path_factory.getbasetemp() / "result.json"
    write_result(result, path)
    again = read_result(path)
    assert again == result
    assert again.to_dict() == result.to_dict()
    assert str(again) == str(result)
    assert kind_of_file(path) == "result"


@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (("status",), "great", "status is 'great'; it should be one of optimal, feasible"),
        (("stop_reason",), "bored", "stop_reason is 'bored'; it should be one of proved"),
        (("status",), "infeasible", "status infeasible contradicts the placement"),
        (("lower_bound",), 1e9, "lower bound 1000000000.0 above the objective"),
        (("objective",), None, "placement and objective must be given together"),
        (("objective",), -1.0, "objective is -1.0; it should be greater"),
        (("placement", "a"), "TPU", "placement of op 'a' names device 'TPU'; devices are cpu.0, acc.0, acc.1"),
        (("device_loads",), {}, "device_loads names"),
        (("devices", 0, "load_s"), "1", r"devices\[0\] \(device 'cpu\.0'\)\.load_s is '1'"),
        (("trace",), [[1.0, 2.0]], r"trace\[0\]"),
        (("trace",), [[None, 2.0, 1.0]], r"trace\[0\] has no time"),
        (("evaluations",), 1.5, "evaluations is 1.5"),
        (("extra",), 1, "extra is an unknown field"),
    ],
)
def test_broken_result_is_a_named_error(
    tmp_path: Path, diamond: Problem, steps: tuple[Any, ...], value: Any, message: str
) -> None:
    """The message names the file, the place, the value and the bound."""
    path = tmp_path / "result.json"
    write_result(judged(diamond, Placement.of(diamond, np.zeros(4, dtype=np.int64))), path)
    data = json.loads(path.read_text())
    place = data
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_result(path)
    assert str(path) in str(caught.value)


def test_tolerance_is_in_the_file(tmp_path: Path, diamond: Problem) -> None:
    """What "optimal" means is read back; files from before it was written mean 1e-6."""
    path = tmp_path / "result.json"
    write_result(dataclasses.replace(judged(diamond, Placement.of(diamond, [0] * 4)), tolerance=1e-9), path)
    data = json.loads(path.read_text())
    assert data["tolerance"] == 1e-9
    assert read_result(path).tolerance == 1e-9
    del data["tolerance"]
    path.write_text(json.dumps(data))
    assert read_result(path).tolerance == SOLVER_TOLERANCE
    path.write_text(json.dumps(data | {"tolerance": -1.0}))
    with pytest.raises(InvalidFileError, match=r"tolerance is -1\.0"):
        read_result(path)

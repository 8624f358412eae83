"""Placement files of both shapes: exact round trips, defaults, named errors."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements, problems, teamed_placements

from placekit.io.files.detect import kind_of_file
from placekit.io.files.placement_json import read_placement, write_placement
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.placement import Placement
from placekit.model.problem import Problem


@given(data=st.data(), is_plain=st.booleans())
def test_placement_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, is_plain: bool
) -> None:
    """read(write(p)).for_problem(problem) == p, in either shape and for every name."""
    problem = data.draw(problems())
    placement = data.draw(placements(problem))
    path = tmp_path_factory.getbasetemp() / "placement.json"
    write_placement(placement, path, problem=problem, is_plain=is_plain)
    file = read_placement(path)
    assert file.for_problem(problem) == placement
    if not is_plain:
        assert file.devices == problem.platform.device_names
        assert file.model_hash == problem.graph.content_hash
        assert kind_of_file(path) == "placement"


@given(data=st.data())
def test_the_hash_is_that_of_the_sorted_content(data: st.DataObject) -> None:
    """Devices or teams and steps by op, as JSON with sorted keys: what files of earlier versions say."""
    placement = data.draw(teamed_placements(data.draw(problems())))
    steps = data.draw(st.none() | st.permutations(range(len(placement))))
    placement = replace(placement, step_of_op=None if steps is None else np.array(steps, dtype=np.int64))
    told = json.dumps([placement.as_dict(), placement.steps_as_dict()], sort_keys=True)
    assert placement.content_hash == hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def write(folder: Path, data: Any) -> Path:
    """Write a JSON value."""
    path = folder / "placement.json"
    path.write_text(json.dumps(data))
    return path


def full(**changes: Any) -> dict[str, Any]:
    """Return a placement file for the diamond."""
    return {
        "schema": "placekit/placement/1",
        "model": {"name": "diamond", "hash": None},
        "devices": ["cpu.0", "acc.0"],
        "default_device": "cpu.0",
        "ops": {"a": "acc.0"},
    } | changes


def test_default_device_takes_the_ops_that_are_not_listed(tmp_path: Path, diamond: Problem) -> None:
    """What a HETERO fallback would do."""
    placement = read_placement(write(tmp_path, full())).for_problem(diamond)
    assert dict(placement) == {"a": "acc.0", "b": "cpu.0", "c": "cpu.0", "d": "cpu.0"}


def test_placement_of_another_version_is_accepted_with_a_warning(
    tmp_path: Path, diamond: Problem, caplog: pytest.LogCaptureFixture
) -> None:
    """Op names decide; the hash only warns."""
    path = write(tmp_path, full(model={"name": "diamond", "hash": "0123"}))
    with caplog.at_level(logging.WARNING):
        read_placement(path).for_problem(diamond)
    assert "made for another version of model 'diamond'" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "places no ops"),
        ([], "the file is "),
        ({"a": 1}, "op 'a' has device 1; it should be the name of a device"),
        ({"a": ""}, "op 'a' has device ''"),
        (full(schema="placekit/placement/9"), "schema is 'placekit/placement/9'"),
        (full(extra=1), "extra is an unknown field"),
        (full(devices=[]), r"devices is \[\]"),
        (full(devices=["x", "x"]), "devices names a device twice"),
        (full(default_device="x"), "default_device names device 'x'; devices are cpu.0, acc.0"),
        (full(ops={"a": "x"}), "op 'a' names device 'x'; devices are cpu.0, acc.0"),
        (full(ops=["a"]), r"ops is \['a'\]"),
    ],
)
def test_broken_placement_is_a_named_error(tmp_path: Path, data: Any, message: str) -> None:
    """The message names the file, the op, the device and the devices there are."""
    with pytest.raises(InvalidFileError, match=message):
        read_placement(write(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": "acc.0"}, "no device for op 'b', and no default device"),
        ({"z": "acc.0"}, "placement names op 'z', which 'diamond' does not have"),
        (dict.fromkeys("abcd", "TPU"), "no device 'TPU' on this platform"),
    ],
)
def test_placement_that_does_not_fit_names_the_file(
    tmp_path: Path, diamond: Problem, data: dict[str, str], message: str
) -> None:
    """Unknown and missing ops, unknown devices."""
    with pytest.raises(InvalidFileError, match=rf"placement\.json: .*{message}"):
        read_placement(write(tmp_path, data)).for_problem(diamond)


def test_op_listed_twice_is_a_named_error(tmp_path: Path) -> None:
    """A JSON reader would silently keep the last."""
    path = tmp_path / "placement.json"
    path.write_text('{"a": "cpu.0", "a": "acc.0"}')
    with pytest.raises(InvalidFileError, match="key 'a' appears twice"):
        read_placement(path)


def test_unknown_default_device_is_not_written(tmp_path: Path, diamond: Problem) -> None:
    """The message lists the devices."""
    placement = Placement.of(diamond, [0, 0, 0, 0])
    with pytest.raises(UnknownNameError, match=r"no device 'x' in the placement; devices are cpu\.0"):
        write_placement(placement, tmp_path / "p.json", default_device="x")


def test_steps_come_back(tmp_path: Path, diamond: Problem) -> None:
    """The order in which a device works is part of a placement file; ops without a step are named."""
    placement = Placement.of(diamond, [0] * 4, step_of_op=[3, 1, 2, 0])
    path = tmp_path / "placement.json"
    write_placement(placement, path, problem=diamond)
    assert read_placement(path).for_problem(diamond) == placement
    steps = placement.steps_as_dict()
    assert steps is not None
    missing = diamond.graph.op_names[2]
    del steps[missing]
    with pytest.raises(InvalidProblemError, match=f"none for op '{missing}'"):
        Placement.from_mapping(diamond, dict(placement), steps=steps)

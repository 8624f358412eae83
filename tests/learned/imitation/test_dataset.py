"""Drawn problems and data sets: splits, labels, shards that are resumed, shards of strangers."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.benchmarks.generators.drawn import OBJECTIVES, TEST_FAMILIES, TRAIN_FAMILIES, draw_problem
from placekit.benchmarks.labelling import Labelling, generate_dataset, label, label_shard
from placekit.learned.imitation.dataset import read_dataset, read_shard, shard_path, write_shard
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.platform import Platform


def test_splits_share_no_family_and_no_problem() -> None:
    """Every test problem is of a family that training never had, by its name; same arguments, same problem."""
    assert not set(TRAIN_FAMILIES) & set(TEST_FAMILIES)
    drawn = {split: [draw_problem(split, 3, number, max_ops=80) for number in range(30)] for split in ("train", "test")}
    for split, families in (("train", TRAIN_FAMILIES), ("test", TEST_FAMILIES)):
        for problem in drawn[split]:
            assert any(problem.name.startswith(family) for family in families)
            assert problem.contiguity == "none"
    assert {problem.objective.name for problem in drawn["train"]} == set(OBJECTIVES)
    assert {problem.platform.num_devices for problem in drawn["test"]} & {8, 9}
    assert not {problem.platform.num_devices for problem in drawn["train"]} & {8, 9}
    assert any(problem.platform.devices[0].memory_bytes is not None for problem in drawn["test"])
    assert draw_problem("train", 3, 7, max_ops=80) == drawn["train"][7]
    assert draw_problem("train", 4, 7, max_ops=80) != drawn["train"][7]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("all", 0, 0), UnknownNameError, "no split 'all'; splits are train, test"),
        (("train", 0, -1), InvalidProblemError, "drawn problems: number is -1; it must be >= 0"),
    ],
)
def test_wrong_draws_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    """With value and bound."""
    with pytest.raises(error, match=re.escape(message)):
        draw_problem(*arguments)
    with pytest.raises(InvalidProblemError, match="max_ops is 20; it must be >= 40"):
        draw_problem("train", 0, 0, max_ops=20)


def test_labels_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Placement, order, objective, bound: judged on the way in."""
    problems = [draw_problem("train", 1, number, max_ops=40) for number in range(4)]
    problems = [problem.replace(platform=_roomy(problem)) for problem in problems]
    labelled = [label(problem, "greedy+bound", 2.0, 0) for problem in problems]
    path = shard_path(tmp_path, 0)
    write_shard(path, [each for each in labelled if each is not None])
    for before, after in zip(labelled, read_shard(path), strict=True):
        assert before is not None
        assert after.problem == before.problem
        assert np.array_equal(after.device_of_op, before.device_of_op)
        assert (after.objective_s, after.bound_s) == (before.objective_s, before.bound_s)
        assert after.gap >= -1e-9


def test_a_data_set_is_resumed_by_shards(tmp_path: Path) -> None:
    """A shard that is missing is made, the same as before; those that are there stay."""
    labelling = Labelling(max_ops=40, method="greedy", label_s=20.0, per_shard=2, seed=2)
    told: list[tuple[int, int]] = []
    assert generate_dataset(labelling, tmp_path, 3, on_shard=lambda done, total: told.append((done, total))) == 2
    assert told == [(1, 2), (2, 2)]
    names = [each.problem.name for each in read_dataset(tmp_path)]
    shard_path(tmp_path, 0).unlink()
    kept = shard_path(tmp_path, 1).read_bytes()
    assert label_shard(labelling, tmp_path, 0) == len(list(read_shard(shard_path(tmp_path, 0))))
    assert [each.problem.name for each in read_dataset(tmp_path)] == names
    assert shard_path(tmp_path, 1).read_bytes() == kept
    with pytest.raises(InvalidFileError, match=re.escape("a data set with seed 2, not 1; take another folder")):
        generate_dataset(replace(labelling, seed=1), tmp_path, 3)


def test_damaged_and_lying_shards_are_refused(tmp_path: Path) -> None:
    """Torn, not JSON, a label that is no placement or worth something else."""
    problem = draw_problem("train", 1, 0, max_ops=40)
    found = label(problem.replace(platform=_roomy(problem)), "greedy", 20.0, 0)
    assert found is not None
    path = shard_path(tmp_path, 0)
    write_shard(path, [found])
    good = path.read_bytes()
    record = json.loads(gzip.decompress(good))
    with pytest.raises(InvalidFileError, match=re.escape("dataset.json")):
        list(read_dataset(tmp_path))
    for content, message in (
        (good[: len(good) // 2], "cannot be unpacked"),
        (gzip.compress(b"{}\n"), "not a problem with its label"),
        (_changed(record, objective_s=record["label"]["objective_s"] * 2), "the judge"),
        (_changed(record, device_of_op=[0]), "a label that is none"),
        (_changed(record, device_of_op=None), "a label that is none"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidFileError, match=message):
            list(read_shard(path))


def _roomy(problem: pk.Problem) -> Platform:
    """Return the platform without limits of memory, so that every method has an answer."""
    devices = tuple(device.replace(memory_bytes=None) for device in problem.platform.devices)
    return problem.platform.replace(devices=devices)


def _changed(record: dict[str, Any], **changes: Any) -> bytes:
    return gzip.compress(json.dumps(record | {"label": record["label"] | changes}).encode() + b"\n")

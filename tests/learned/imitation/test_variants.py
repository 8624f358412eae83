"""Trainings with one part of the loss, and policies as parameters of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import placekit as pk
from placekit.benchmarks.labelling import Labelling, generate_dataset
from placekit.learned.checkpoint import read_checkpoint
from placekit.learned.imitation.dataset import LabelledProblem, read_dataset, shard_path, write_manifest, write_shard
from placekit.learned.imitation.train import ImitationParams, steps_done, train
from placekit.learned.method import PRETRAINED
from placekit.model.errors import InvalidProblemError

SMALL = ImitationParams(hidden=8, steps=4, states=600, least_rounds=2, most_rounds=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of a dozen problems; labels have no bound."""
    folder = tmp_path_factory.mktemp("labelled")
    generate_dataset(Labelling(max_ops=40, method="greedy", label_s=20.0, per_shard=12, seed=9), folder, 12)
    return folder


def weights_of(data: Path, folder: Path, params: ImitationParams) -> Mapping[str, Tensor]:
    """Return the weights after a training."""
    train(data, folder / "policy.pt", params)
    return read_checkpoint(folder / "policy.pt").transferable


def are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Return whether two networks are the same, up to rounding."""
    return all(torch.allclose(value, second[name], atol=1e-5) for name, value in first.items())


def other_data(folder: Path, labelled: list[LabelledProblem]) -> Path:
    """Return a data set of these problems."""
    write_manifest(folder, {})
    write_shard(shard_path(folder, 0), labelled)
    return folder


@pytest.mark.slow
def test_only_imitation_needs_labels(data: Path, tmp_path: Path) -> None:
    """Labels of single devices teach all else the same as those of a better method; imitation learns otherwise."""
    better, worse = [], []
    for each in read_dataset(data):
        found = pk.solve(each.problem, "single")
        if found.placement is not None and found.objective is not None:  # there may be too little memory
            devices = found.placement.device_of_op
            worse.append(replace(each, device_of_op=devices, step_of_op=None, objective_s=found.objective))
            better.append(each)
    data, others = other_data(tmp_path / "better", better), other_data(tmp_path / "worse", worse)
    for params, is_same in ((replace(SMALL, imitation=0.0), True), (replace(SMALL, relaxed=0.0), False)):
        assert are_equal(weights_of(data, tmp_path, params), weights_of(others, tmp_path, params)) == is_same


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"imitation": 0.0, "relaxed": 0.0}, "imitation \\+ relaxed is 0.0; it must be finite"),
        ({"imitation": -1.0}, "imitation is -1.0; it must be >= 0"),
    ],
)
def test_wrong_parameters_are_refused(changes: dict[str, float], message: str) -> None:
    """With value and bound."""
    with pytest.raises(InvalidProblemError, match=message):
        replace(SMALL, **changes)  # type: ignore[arg-type]  # one name each


def test_a_method_takes_a_policy_as_a_parameter(data: Path, tmp_path: Path) -> None:
    """A policy that goes on from the shipped one stays near it; a suite names its file as a parameter."""
    path = tmp_path / "tuned-0.pt"
    train(data, path, ImitationParams(steps=1, learning_rate=5e-4), seed=0, policy=PRETRAINED)
    assert steps_done(path) == 1
    tuned, shipped = (read_checkpoint(each).transferable for each in (path, PRETRAINED))
    changes = [(value - shipped[name]).abs().max() for name, value in tuned.items()]
    assert 0 < max(changes) < 1e-3  # one small step
    problem = next(iter(read_dataset(data))).problem
    named = {"policy": str(path), "updates": 0}
    found = pk.solve(problem, "imitation", params=named).placement
    assert found == pk.solve(problem, f"imitation:{path}", params={"updates": 0}).placement
    with pytest.raises(InvalidProblemError, match="it must be one path, given once"):
        pk.solve(problem, "imitation:pretrained", params=named)

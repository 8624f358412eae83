"""Trainings of other data and losses: which labels count, what a part of the loss needs, policies of both in suites."""

from __future__ import annotations

import math
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
from placekit.learned.imitation.inputs import collate
from placekit.learned.imitation.losses import policy_gradient_loss, relaxed_objective
from placekit.learned.imitation.network import StateNetwork
from placekit.learned.imitation.targets import example_of
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


def test_the_first_labels_are_a_data_set_of_their_own(data: Path, tmp_path: Path) -> None:
    """So many labels of a large data set, or all of a small one: the same policy."""
    few = other_data(tmp_path / "few", list(read_dataset(data))[:7])
    assert are_equal(weights_of(data, tmp_path, replace(SMALL, labels=7)), weights_of(few, tmp_path, SMALL))
    assert not are_equal(weights_of(data, tmp_path, SMALL), weights_of(few, tmp_path, SMALL))


def test_only_labels_within_a_gap_are_learned_from(data: Path, tmp_path: Path) -> None:
    """Proven ones alone; none of them is an error with the bound."""
    with pytest.raises(InvalidProblemError, match="2 problems, and one of them within most_gap"):
        train(data, tmp_path / "policy.pt", replace(SMALL, most_gap=0.0))
    labelled = [
        replace(each, bound_s=each.objective_s if at < 7 else None) for at, each in enumerate(read_dataset(data))
    ]
    proven = weights_of(other_data(tmp_path / "proven", labelled), tmp_path, replace(SMALL, most_gap=0.0))
    assert are_equal(proven, weights_of(other_data(tmp_path / "few", labelled[:7]), tmp_path, SMALL))


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
    gradient = replace(SMALL, imitation=0.0, relaxed=0.0, gradient=1.0)
    for params, is_same in (
        (replace(SMALL, imitation=0.0), True),
        (gradient, True),
        (replace(SMALL, relaxed=0.0), False),
    ):
        assert are_equal(weights_of(data, tmp_path, params), weights_of(others, tmp_path, params)) == is_same


def test_the_policy_gradient_is_that_of_the_expected_objective(data: Path) -> None:
    """For serial latency the relaxed objective is the expectation: many samples point where its gradient does."""
    network, generator = StateNetwork(hidden=8), torch.Generator().manual_seed(0)
    examples = [each for each in map(example_of, read_dataset(data)) if each.inputs.objective == 0]
    assert examples
    for example in examples:
        batch = collate([example.inputs])
        scores = network(batch, 3)
        (exact,) = torch.autograd.grad(
            relaxed_objective(batch, scores.log_probs).sum(), scores.log_probs, retain_graph=True
        )
        (sampled,) = torch.autograd.grad(policy_gradient_loss([example], scores, 20_000, generator), scores.log_probs)
        # what the mean over the devices of an op does to log-probabilities changes no probability
        probs = scores.log_probs.detach().exp()
        first, second = (_among_devices(each, probs, example.inputs.num_devices) for each in (exact, sampled))
        assert torch.cosine_similarity(first, second, dim=0) > 0.95


def _among_devices(gradient: Tensor, probs: Tensor, num_devices: int) -> Tensor:
    """Return the gradient by the scores before the softmax."""
    rows, weights = gradient.reshape(-1, num_devices), probs.reshape(-1, num_devices)
    return (rows - weights * rows.sum(dim=1, keepdim=True)).flatten()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": -1}, "labels is -1; it must be >= 0"),
        ({"most_gap": math.nan}, "most_gap is nan; it must be >= 0"),
        ({"imitation": 0.0, "relaxed": 0.0}, "imitation \\+ relaxed \\+ gradient is 0.0; it must be finite"),
        ({"gradient": -1.0}, "gradient is -1.0; it must be >= 0"),
        ({"samples": 1}, "samples is 1; it must be >= 2"),
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

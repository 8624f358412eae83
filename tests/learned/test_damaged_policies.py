"""Policies of strangers: damaged, lying, or made to run code; and the journal of a training that was killed."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import placekit as pk
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.method import Session
from placekit.learned.training.checkpoint import read_checkpoint
from placekit.learned.training.journal import Journal
from placekit.learned.training.loop import Metrics
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError

QUICK = {"hidden": 8, "steps": 2, "samples": 4, "patience": 0}


def train(problem: pk.Problem, updates: int, **files: Any) -> pk.Result:
    """Train HSDAG for so many updates."""
    method = Hsdag.from_params(None, {**QUICK, "updates": updates})
    method.session = Session(**files)
    return pk.solve(problem, method, seed=5)


@pytest.fixture
def policy(toy: pk.Problem, tmp_path: Path) -> Path:
    """Return a policy of two updates."""
    path = tmp_path / "toy.pt"
    train(toy, 2, checkpoint=path)
    return path


def apply(problem: pk.Problem, path: Path) -> None:
    """Do all that reads a policy; errors that are ours are what is asked for."""
    uses: tuple[Callable[[], object], ...] = (
        lambda: pk.solve(problem, f"policy:{path}", params={"rollouts": 1}),
        lambda: train(problem, 3, resume=path),
        lambda: train(problem, 1, policy=path),
    )
    for use in uses:
        try:
            use()
        except PlacekitError as error:
            assert 0 < len(str(error)) < 2000  # noqa: PT017  # every error is one of these
            assert "weights_only" not in str(error)  # noqa: PT017


def mangled(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one change."""
    at = rng.randrange(len(content))
    change = rng.randrange(4)
    if change == 0:
        return content[:at]
    if change == 1:
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    if change == 2:
        return content[:at] + content[at + rng.randrange(1, 100) :]
    return content[:at] + rng.randbytes(20) + content[at:]


@pytest.mark.parametrize("count", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_bytes_are_refused_by_name(toy: pk.Problem, policy: Path, tmp_path: Path, count: int) -> None:
    """Whatever is damaged, the file is refused, or is what it was."""
    content, path = policy.read_bytes(), tmp_path / "mutated.pt"
    refused = 0
    for seed in range(count):
        path.write_bytes(mangled(content, random.Random(seed)))
        try:
            read_checkpoint(path)
        except InvalidFileError as error:
            refused += 1
            assert "weights_only" not in str(error)  # noqa: PT017
        else:
            apply(toy, path)
    assert refused > count * 0.9


ODD: list[Any] = [None, True, -1, 0, 10**30, float("nan"), "x", "\x1b[2J", [], {}, {"": 0}, b"x"]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything in nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in ((*at, key), *places(item, (*at, key)))]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_other_values_are_refused_by_name(toy: pk.Problem, policy: Path, tmp_path: Path, count: int) -> None:
    """A well-formed file with one value of another type, shape or size: named, or harmless."""
    path = tmp_path / "mutated.pt"
    for seed in range(count):
        rng = random.Random(seed)
        values = torch.load(policy, weights_only=True)
        *to, key = rng.choice(places(values))
        parent = values
        for step in to:
            parent = parent[step]
        if rng.random() < 0.2:
            del parent[key]
        elif isinstance(parent[key], torch.Tensor) and rng.random() < 0.7:
            other = parent[key]
            parent[key] = rng.choice(
                [other[None], other.flatten()[:1], other.double(), other.to_sparse(), torch.zeros(1).expand(10**6)]
            )
        else:
            parent[key] = rng.choice(ODD)
        torch.save(values, path)
        apply(toy, path)


def test_what_is_larger_than_the_file_is_refused(policy: Path, toy: pk.Problem) -> None:
    """A tensor of a terabyte takes four bytes with strides of 0; parameters can ask for a network of any size."""
    values = torch.load(policy, weights_only=True)
    name = next(iter(values["transferable"]))
    torch.save(values | {"transferable": {name: torch.zeros(1).expand(1 << 38)}}, policy)
    with pytest.raises(InvalidFileError, match="is more than the file holds"):
        read_checkpoint(policy)
    torch.save(values | {"params": values["params"] | {"hidden": 10**9}}, policy)
    with pytest.raises(InvalidFileError, match="parameter 'hidden' is 1000000000; the limit is"):
        pk.solve(toy, f"policy:{policy}")
    torch.save(values | {"method": f"policy:{policy}"}, policy)
    with pytest.raises(InvalidFileError, match="no learned method"):
        pk.solve(toy, f"policy:{policy}")


class Payload:
    """Would make a folder where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.mkdir, (self.path,)


def test_code_in_a_policy_does_not_run_and_no_advice_is_given_to_let_it(tmp_path: Path) -> None:
    """Neither in a file of torch nor in a bare pickle."""
    for save in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        save({"schema": "placekit/policy/1", "x": Payload(tmp_path / "ran")}, tmp_path / "evil.pt")
        with pytest.raises(InvalidFileError, match="cannot be read as a policy") as raised:
            read_checkpoint(tmp_path / "evil.pt")
        told = str(raised.value).replace(str(tmp_path), "")  # the folder may have any name
        assert "weights_only" not in told
        assert "trust" not in told
        assert not (tmp_path / "ran").exists()


def test_a_resumed_journal_has_every_update_once(toy: pk.Problem, tmp_path: Path) -> None:
    """Killed five updates after its checkpoint, in the middle of a line: what comes again is not there twice."""
    checkpoint, folder = tmp_path / "toy.pt", tmp_path / "log"
    train(toy, 3, checkpoint=checkpoint, log_dir=folder)
    path = folder / "metrics.jsonl"
    with path.open("a") as file:
        for update in range(4, 9):
            file.write(json.dumps({"update": update, "x": 1.0}) + "\n")
        file.write('{"update": 9, "los')
    train(toy, 6, checkpoint=checkpoint, resume=checkpoint, log_dir=folder)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all("x" not in line for line in lines)


def test_a_journal_keeps_what_it_does_not_understand(tmp_path: Path) -> None:
    """But for a line without an end, which the next one would be glued to."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('hello\n{"update": 1}\n[1]\n{"update": 2}\n{"up')
    with Journal(tmp_path) as journal:
        journal(Metrics(1, {}))
    assert path.read_text() == 'hello\n{"update": 1}\n[1]\n{"update": 2}\n{"update": 1}\n'
    with Journal(tmp_path, resumed_at=1):
        pass
    assert path.read_text() == 'hello\n{"update": 1}\n[1]\n'
    with pytest.raises(PlacekitError, match="cannot write"):
        Journal(path / "below")


def test_checkpoints_come_as_often_as_asked(toy: pk.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every update for 0 s, at the end for many."""
    saved: list[int] = []
    monkeypatch.setattr(
        "placekit.learned.method.write_checkpoint", lambda _, made: saved.append(made.training["update"])
    )
    train(toy, 3, checkpoint=tmp_path / "toy.pt", checkpoint_every_s=0.0)
    assert saved == [1, 2, 3, 3]
    saved.clear()
    train(toy, 3, checkpoint=tmp_path / "toy.pt", checkpoint_every_s=1e6)
    assert saved == [3]
    with pytest.raises(InvalidProblemError, match="checkpoint interval is nan s"):
        Session(checkpoint_every_s=float("nan"))

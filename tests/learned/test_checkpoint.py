"""Checkpoints: exact resume, atomic files, no code in them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from strategies import ALL

import placekit as pk
from placekit.learned import environment
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.method import Session
from placekit.learned.training.checkpoint import problem_digest, read_checkpoint, write_checkpoint
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnsupportedProblemError
from placekit.solve.registry import get_method
from placekit.solve.stop import Progress, Stop, StopReason

QUICK = {"hidden": 8, "steps": 2, "samples": 4, "patience": 0}


def trained(problem: pk.Problem, updates: int, session: Session, **params: object) -> pk.Result:
    """Train HSDAG for so many updates."""
    method = Hsdag.from_params(None, {**QUICK, **params, "updates": updates})
    method.session = session
    return pk.solve(problem, method, seed=5)


@pytest.mark.parametrize("fidelity", ["placekit", "paper"])
def test_resumed_training_equals_an_uninterrupted_one(toy: pk.Problem, tmp_path: Path, fidelity: str) -> None:
    """Bit for bit: weights, optimiser, random state, the best placement, and the answer."""
    whole, half = tmp_path / "whole.pt", tmp_path / "half.pt"
    params = {"fidelity": fidelity} | ({} if fidelity == "placekit" else {"samples": 1})
    one = trained(toy, 8, Session(checkpoint=whole), **params)
    trained(toy, 3, Session(checkpoint=half), **params)
    two = trained(toy, 8, Session(checkpoint=half, resume=half), **params)
    assert one.placement == two.placement
    first, second = read_checkpoint(whole).training, read_checkpoint(half).training
    assert first is not None
    assert second is not None
    assert first["update"] == second["update"] == 8
    assert first["evaluations"] == second["evaluations"]
    assert first["policy"].keys() == second["policy"].keys()
    for name, weight in first["policy"].items():
        assert torch.equal(weight, second["policy"][name]), name
    assert torch.equal(first["generator"], second["generator"])


def test_checkpoints_of_something_else_are_refused(toy: pk.Problem, diamond: pk.Problem, tmp_path: Path) -> None:
    """Another problem, other parameters and files without training state are named."""
    path = tmp_path / "toy.pt"
    trained(toy, 1, Session(checkpoint=path))
    with pytest.raises(InvalidProblemError, match="made for another problem than 'diamond'"):
        trained(diamond, 2, Session(resume=path))
    with pytest.raises(InvalidProblemError, match="made with hidden = 8, not with 16"):
        trained(toy, 2, Session(resume=path), hidden=16)
    write_checkpoint(path, replace(read_checkpoint(path), training=None))
    with pytest.raises(InvalidProblemError, match="a policy without training state"):
        trained(toy, 2, Session(resume=path))


def test_a_policy_is_a_method(toy: pk.Problem, diamond: pk.Problem, tmp_path: Path) -> None:
    """It answers for the problem it was trained on and for others with as many devices, the same for the same seed."""
    path = tmp_path / "toy.pt"
    trained(toy, 20, Session(checkpoint=path), has_residual=False, samples=32)
    first = pk.solve(toy, f"policy:{path}")
    assert first.placement is not None
    assert first.placement == pk.solve(toy, f"policy:{path}").placement
    other = toy.replace(objective=pk.Makespan())
    assert pk.solve(other, f"policy:{path}", params={"rollouts": 0}).status is pk.Status.FEASIBLE
    with pytest.raises(UnsupportedProblemError, match="chooses among 2 devices, the problem has 3"):
        pk.solve(diamond, f"policy:{path}")
    tuned = trained(toy, 1, Session(policy=path), has_residual=False, samples=32)
    assert tuned.objective is not None
    with pytest.raises(InvalidProblemError, match=r"shape|has \(8"):
        trained(toy, 1, Session(policy=path), hidden=16)


def test_bad_policy_files_are_explained(tmp_path: Path) -> None:
    """No file, no checkpoint, code instead of weights, another schema, no argument."""
    with pytest.raises(InvalidFileError, match=r"nowhere\.pt: no such file"):
        read_checkpoint("nowhere.pt")
    path = tmp_path / "x.pt"
    path.write_bytes(b"hello")
    with pytest.raises(InvalidFileError, match="cannot be read as a policy"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps(Path("x"), protocol=2))
    with pytest.raises(InvalidFileError, match="cannot be read as a policy"):
        read_checkpoint(path)
    torch.save({"schema": "other"}, path)
    with pytest.raises(InvalidFileError, match="not a policy file of schema"):
        read_checkpoint(path)
    torch.save({"schema": "placekit/policy/1", "method": "hsdag"}, path)
    with pytest.raises(InvalidFileError, match="parts missing"):
        read_checkpoint(path)
    with pytest.raises(InvalidProblemError, match="policy:PATH"):
        get_method("policy")


def test_the_digest_tells_problems_apart(toy: pk.Problem) -> None:
    """Objective, pins and costs all count."""
    others = [
        toy.replace(objective=pk.Makespan()),
        toy.pin({"a": "cpu.0"}),
        toy.replace(costs=toy.costs.replace(op_time_s=toy.costs.op_time_s * 2)),
    ]
    assert len({problem_digest(problem) for problem in (toy, *others)}) == 4
    assert problem_digest(toy) == problem_digest(toy.replace())


class _Asked:
    """A stop criterion that says stop when it is asked for the n-th time, and never again: a torn update."""

    time_limit_s = gap = None

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, progress: Progress) -> StopReason | None:  # noqa: ARG002
        self.left -= 1
        return StopReason.TIME if self.left < 0 else None


@pytest.mark.parametrize(
    "method", ["rnn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gdp", "placeto", "hsdag"))]
)
def test_an_update_that_was_stopped_has_not_been(
    method: str, toy: pk.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a limit ends a training, also in the middle of a batch: it goes on bit for bit."""
    monkeypatch.setattr(environment, "ROWS_AT_ONCE", 3)
    params = {"updates": 6, "patience": 0}
    whole, half = tmp_path / "whole.pt", tmp_path / "half.pt"

    def train(session: Session, stop: Stop | None = None) -> dict[str, object]:
        learned = get_method(method, params)
        learned.session = session  # type: ignore[attr-defined]
        pk.solve(toy, learned, stop=stop, seed=5)
        assert session.checkpoint is not None
        training = read_checkpoint(session.checkpoint).training
        assert training is not None
        return dict(training)

    one = train(Session(checkpoint=whole))
    for number in range(2, 20, 1 if ALL else 4):
        train(Session(checkpoint=half), _Asked(number))
        two = train(Session(checkpoint=half, resume=half))
        assert one["update"] == two["update"] == 6
        for name, weight in one["policy"].items():  # type: ignore[attr-defined]
            assert torch.equal(weight, two["policy"][name]), (number, name)  # type: ignore[index]
        assert torch.equal(one["generator"], two["generator"])  # type: ignore[arg-type]

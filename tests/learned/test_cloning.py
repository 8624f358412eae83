"""Behaviour cloning: every policy learns the warm start, stops where it is told, resumes exactly."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from states import same
from strategies import examples, problems

import placekit as pk
from placekit.cli.progress import LearnLine
from placekit.learned.checkpoint import read_checkpoint, write_checkpoint
from placekit.learned.doppler.method import Doppler
from placekit.learned.environment import Environment
from placekit.learned.gdp import Gdp
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.learner import permitted
from placekit.learned.method import LearnedMethod, Session, seeded_learner
from placekit.learned.placeto import Placeto
from placekit.learned.rnn import Rnn
from placekit.learned.training import Metrics, Training, train
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.solve.stop import Progress, StopReason

PLACERS: list[type[LearnedMethod]] = [Hsdag, Gdp, Rnn, Placeto, Doppler]
SMALL: dict[type[LearnedMethod], dict[str, Any]] = {
    Hsdag: {"hidden": 8, "samples": 4},
    Gdp: {"hidden": 16, "samples": 8, "segment": 3, "rounds": 2},
    Rnn: {"hidden": 16, "samples": 8, "groups_per_device": 2},
    Placeto: {"episodes": 4, "width": 6, "rounds": 2, "refresh": 2, "trained_blocks": 2},
    Doppler: {"hidden": 8, "samples": 4},
}
ODD = np.array([1, 0, 1, 1, 0, 1])
"""A placement of the toy that no reward leads to."""

anyone = pytest.mark.parametrize("placer", PLACERS, ids=lambda placer: placer.name)


def small(placer: type[LearnedMethod], session: Session | None = None, **params: Any) -> LearnedMethod:
    """Return the method with small networks."""
    return placer(placer.params_type(**SMALL[placer] | params), session)


def wanting(placer: type[LearnedMethod], problem: pk.Problem, placement: Any, **params: Any) -> Training:
    """Return a training that has not begun, wants `placement`, and ends after `clone` updates of cloning."""
    environment = Environment(problem)
    method = small(placer, **{"clone_deviations": 0.0, "updates": 0} | params)
    training = Training.begin(seeded_learner(method, environment, 0), environment, method.params, 0)
    training.learner.prefer(np.asarray(placement))
    training.wanted = np.asarray(placement)[None]
    return training


@anyone
def test_cloning_makes_the_placement_likely(placer: type[LearnedMethod], toy: pk.Problem) -> None:
    """From weights that know nothing of it, for a placement that is worse than the optimum."""
    free = {"deviations": 0.05} if placer is Hsdag else {}  # else its logits are bounded
    training = wanting(placer, toy, ODD, clone=60, learning_rate=0.01, **free)
    heard: list[Metrics] = []
    assert train(training, lambda: None, heard.append) is StopReason.ITERATIONS
    assert [metrics.update for metrics in heard] == list(range(1, training.cloned + 1))
    first, last = heard[0].values, heard[-1].values
    assert last["cloning/cross_entropy"] < 0.5 * first["cloning/cross_entropy"]
    assert last["cloning/deviations"] < min(1.5, first["cloning/deviations"])
    assert training.update == 0
    with torch.no_grad():
        decoded = training.learner.decode()
    assert (decoded == ODD).all(axis=1).any() or placer is Placeto  # Placeto decodes from the best placement met


@anyone
def test_a_warm_start_is_cloned_before_rewards(placer: type[LearnedMethod], toy: pk.Problem, tmp_path: Path) -> None:
    """The journal tells both phases apart, one after the other; without a warm start there is only the second."""
    for start, cloned in ((pk.Placement.of(toy, ODD), 5), (None, 0)):
        folder = tmp_path / str(cloned)
        method = small(placer, Session(log_dir=folder), updates=2, patience=0, clone=5, clone_deviations=0.0)
        result = pk.solve(toy, method, warm_start=start)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["update"] for line in lines] == [*range(1, cloned + 1), 1, 2]
        assert ["cloning/deviations" in line for line in lines] == [True] * cloned + [False] * 2
        assert result.info["updates"] == 2


class AfterSteps:
    """Stops after so many updates of either phase, of which `count` has to be told."""

    time_limit_s = gap = None

    def __init__(self, steps: int) -> None:
        self.left = steps

    def count(self, _: Metrics) -> None:
        """Count down."""
        self.left -= 1

    def __call__(self, progress: Progress) -> StopReason | None:  # noqa: ARG002
        """Return whether it is enough."""
        return StopReason.USER if self.left <= 0 else None


@pytest.mark.slow
@anyone
@pytest.mark.parametrize("steps", [3, 5, 7])
def test_resumed_cloning_equals_an_uninterrupted_one(
    placer: type[LearnedMethod], steps: int, toy: pk.Problem, tmp_path: Path
) -> None:
    """Stopped while cloning, just behind it and later: the end is the same bit for bit, the warm start given or not."""
    whole, half, rest = (tmp_path / name for name in ("whole.pt", "half.pt", "rest.pt"))
    start = pk.Placement.of(toy, ODD)
    until = {"clone": 5, "clone_deviations": 0.0, "updates": 4, "patience": 0}
    pk.solve(toy, small(placer, Session(checkpoint=whole), **until), seed=2, warm_start=start)
    stop = AfterSteps(steps)
    session = Session(checkpoint=half, on_update=stop.count)
    pk.solve(toy, small(placer, session, **until), seed=2, warm_start=start, stop=stop)
    stopped = read_checkpoint(half).training
    assert stopped is not None
    assert stopped["cloned"] + stopped["update"] == steps
    for again in (start, None):
        pk.solve(toy, small(placer, Session(checkpoint=rest, resume=half), **until), seed=2, warm_start=again)
        expected, found = read_checkpoint(whole).training, read_checkpoint(rest).training
        assert expected is not None
        assert found is not None
        assert (expected["cloned"], expected["update"]) == (5, 4)
        assert [name for name in expected if not same(expected[name], found[name])] == []


def test_without_cloning_the_warm_start_is_only_preferred(toy: pk.Problem, tmp_path: Path) -> None:
    """With ``clone=0`` no cloning is journalled, and the answer is the same for the same seed."""
    start = pk.Placement.of(toy, ODD)
    answers = []
    for number in range(2):
        method = small(Gdp, Session(log_dir=tmp_path / str(number)), updates=2, clone=0)
        answers.append(pk.solve(toy, method, warm_start=start, seed=3))
        assert "cloning" not in (tmp_path / str(number) / "metrics.jsonl").read_text()
    assert answers[0].placement == answers[1].placement


def test_cloning_obeys_the_stop(toy: pk.Problem) -> None:
    """It is asked before every update; what is left is done by the next call; then there is nothing to do."""
    training = wanting(Gdp, toy, ODD, clone=4)
    answers = iter([None, None, StopReason.TIME, None, None, None])
    assert train(training, lambda: next(answers), lambda _: None) is StopReason.TIME
    assert training.cloned == 2
    assert train(training, lambda: next(answers), lambda _: None) is StopReason.ITERATIONS
    assert training.cloned == 4
    assert training.wanted is None
    assert train(training, lambda: StopReason.TIME, lambda _: None) is StopReason.TIME


@anyone
def test_cloning_ends_where_something_is_left_to_explore(placer: type[LearnedMethod], toy: pk.Problem) -> None:
    """Before its last update, once so few groups are elsewhere; then nothing is wanted, and the optimiser is new."""
    bounded = {"deviations": 0.05} if placer is Hsdag else {}
    training = wanting(placer, toy, ODD, clone=300, learning_rate=0.02, clone_deviations=2.0, **bounded)
    heard: list[Metrics] = []
    train(training, lambda: None, heard.append)
    assert 0 < training.cloned < 300
    assert all(metrics.values["cloning/deviations"] > 0.6 for metrics in heard)  # a tenth of the groups is fewer than 2
    assert training.wanted is None
    assert not training.optimiser.state_dict()["state"]


def test_trainings_of_earlier_versions_say_what_to_do(toy: pk.Problem, tmp_path: Path) -> None:
    """A checkpoint that knows no stages cannot go on; its weights are a policy all the same."""
    path = tmp_path / "old.pt"
    pk.solve(toy, small(Gdp, Session(checkpoint=path), updates=2, patience=0), seed=1)
    checkpoint = read_checkpoint(path)
    assert checkpoint.training is not None
    state = {name: value for name, value in checkpoint.training.items() if name != "stage"}
    write_checkpoint(path, type(checkpoint)(**{**vars(checkpoint), "training": state}))
    with pytest.raises(InvalidProblemError, match=r"of an earlier version of placekit.*--policy FILE"):
        pk.solve(toy, small(Gdp, Session(resume=path), updates=4, patience=0), seed=1)
    assert pk.solve(toy, small(Gdp, Session(policy=path), updates=1, patience=0), seed=1).info["updates"] == 1
    weights = {name: value for name, value in checkpoint.transferable.items() if "lin_l" not in name}
    write_checkpoint(path, type(checkpoint)(**{**vars(checkpoint), "transferable": weights}))
    with pytest.raises(InvalidProblemError, match=r"nothing for weight 'updates.*train it again"):
        pk.solve(toy, f"policy:{path}")


@anyone
@given(problem=problems(contiguity=st.just(pk.Contiguity.NONE)), seed=st.integers(0, 9))
@examples(10)
def test_any_placement_can_be_cloned(placer: type[LearnedMethod], problem: pk.Problem, seed: int) -> None:
    """Whatever constraints it breaks: losses are finite, and so are the weights behind them."""
    rng = np.random.default_rng(seed)
    try:
        training = wanting(
            placer, problem, rng.integers(problem.platform.num_devices, size=problem.graph.num_ops), clone=2
        )
    except UnsupportedProblemError:
        return
    heard: list[Metrics] = []
    train(training, lambda: None, heard.append)
    assert all(np.isfinite(value) for metrics in heard for value in metrics.values.values())
    assert all(torch.isfinite(weight).all() for weight in training.learner.policy.state_dict().values())


def test_what_a_mask_forbids_does_not_count() -> None:
    """Impossible entries are left out; nothing at all is certain."""
    assert permitted(torch.tensor([[-1.0, -torch.inf], [-2.0, -3.0]])).tolist() == [-1.0, -2.0, -3.0]
    assert permitted(torch.tensor([-torch.inf])).tolist() == [0.0]


def test_several_placements_share_the_policy(toy: pk.Problem) -> None:
    """Where they agree the policy becomes sure, where they differ it stays undecided."""
    training = wanting(Gdp, toy, ODD, clone=150, learning_rate=0.01)
    other = ODD.copy()
    other[0] = 0
    training.wanted = np.stack([ODD, other])
    train(training, lambda: None, lambda _: None)
    with torch.no_grad():
        placements = training.learner.rollout(torch.Generator().manual_seed(0)).placements
    assert (placements[:, 1:] == ODD[1:]).all(axis=1).mean() > 0.7
    assert 0 < placements[:, 0].mean() < 1


def test_methods_in_a_row_clone_what_they_get(toy: pk.Problem) -> None:
    """The learner is no worse than the method before it, and gets its turn unless that one proved the optimum."""
    params = {"hsdag.updates": 2, "hsdag.clone": 3, "hsdag.samples": 4}
    problem = toy.replace(objective=pk.Throughput(), contiguity=pk.Contiguity.ACYCLIC)
    result = pk.solve(problem, "dpl+hsdag", params=params)
    stages = [line["objective_s"] for line in result.info["stages"]]
    assert len(stages) == 2
    assert all(after <= before for before, after in pairwise(stages))
    proven = pk.solve(toy, "mincut+hsdag", params=params)
    assert proven.status is pk.Status.OPTIMAL
    assert [line["method"] for line in proven.info["stages"]] == ["mincut"]


def test_cloning_parameter_is_checked() -> None:
    """By name and bound."""
    with pytest.raises(InvalidProblemError, match="'clone' is -1; it must be >= 0"):
        Gdp.params_type(clone=-1)


def test_the_line_of_progress_tells_of_cloning() -> None:
    """Its metrics are others than those of learning from rewards."""
    line = LearnLine()
    line.take(Metrics(7, {"cloning/cross_entropy": 0.5, "cloning/deviations": 12.3, "cloning/grad_norm": 1.0}))
    assert "cloning the warm start  update 7  about 12 groups elsewhere  3 s" in str(line.render(3.0))

"""DOPPLER: the compiled episodes and the network agree, and its three stages do what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from numpy.typing import NDArray
from states import same
from strategies import MAKESPANS, examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.learned.doppler.episodes import FEATURES, FOLLOWS, SAMPLES
from placekit.learned.doppler.method import Doppler, DopplerLearner, DopplerParams
from placekit.learned.doppler.network import select_log_probs
from placekit.learned.environment import Environment
from placekit.learned.method import Session, seeded_learner
from placekit.learned.training.checkpoint import read_checkpoint
from placekit.learned.training.loop import Metrics, Training, TrainingStage, train
from placekit.learned.training.threads import one_thread
from placekit.model.errors import UnsupportedProblemError
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_steps
from placekit.solve.stop import MaxIterations

SMALL = {"hidden": 8, "samples": 4}


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    """As in every training that `solve` begins: a team of threads is far slower on a busy machine."""
    with one_thread():
        yield


def makespan(family: str, num_ops: int, **more: Any) -> pk.Problem:
    """Return a generated makespan problem of four unequal accelerators and a host."""
    params = {"num_devices": 4, "equal": False, "transfer_ratio": 0.5, **more}
    problem = generate(family, num_ops, **params)
    return problem.replace(objective=pk.Makespan(), contiguity=pk.Contiguity.NONE)


def learner_of(problem: pk.Problem, seed: int = 0, **params: Any) -> DopplerLearner:
    """Return a small learner with seeded weights."""
    learner = seeded_learner(Doppler(DopplerParams(**SMALL | params)), Environment(problem), seed)
    assert isinstance(learner, DopplerLearner)
    return learner


free = problems(contiguity=st.just(pk.Contiguity.NONE), objective=st.sampled_from(MAKESPANS))


@given(problem=free, seed=st.integers(0, 9))
@examples(40)
def test_episodes_are_schedules(problem: pk.Problem, seed: int) -> None:
    """Every op once, after its producers, where it may go; the teacher is right somewhere, and only there."""
    try:
        learner = learner_of(problem, seed)
    except UnsupportedProblemError:
        reject()
    played = learner._play(np.array([SAMPLES, FOLLOWS]), learner._anything(2), torch.Generator().manual_seed(seed))
    instance = instance_of(problem)
    num_ops, num_devices = instance.num_ops, instance.num_devices
    assert played.seen.shape == (2, num_ops, num_devices, FEATURES)
    assert torch.isfinite(played.seen).all()
    for row in range(2):
        op_of_step, device = played.op_of_step[row].numpy(), played.device_of_op[row].numpy()
        assert sorted(op_of_step.tolist()) == list(range(num_ops))
        step = np.empty(num_ops, dtype=np.int64)
        step[op_of_step] = np.arange(num_ops)
        assert (step[problem.graph.senders] < step[problem.graph.receivers]).all()
        assert (played.ready_from[row].numpy() <= step).all()
        went = played.may[row, torch.from_numpy(step), torch.from_numpy(device)]
        assert went.all()
        assert instance.allowed[np.arange(num_ops), device].all()
        assert not (played.is_right[row] & ~played.may[row]).any()
        assert played.is_right[row].any(dim=1).all()


@given(problem=free, seed=st.integers(0, 9))
@examples(40)
def test_ops_in_gaps_end_when_the_judge_says(problem: pk.Problem, seed: int) -> None:
    """The end of the schedule, and so the reward, is what the judge finds for the same devices and steps."""
    try:
        learner = learner_of(problem.replace(objective=pk.Makespan()), seed)
    except UnsupportedProblemError:
        reject()
    rollout = learner.rollout(torch.Generator().manual_seed(seed))
    for row in rollout.placements:
        steps = learner.simulator.reward.steps(row)  # type: ignore[attr-defined]
        if steps is None:
            continue
        run = simulate_steps(instance_of(problem), row, steps)
        assert not isinstance(run, int)
        scored = float(learner.simulator.reward(row[None])[0])
        assert scored <= run.makespan_s
        if learner.environment.infeasibility(row[None])[0] == 0:
            evaluation = pk.evaluate(learner.environment.problem, learner.environment.answer(row))
            assert evaluation.objective == pytest.approx(scored)


@given(problem=free, seed=st.integers(0, 9))
@examples(30)
def test_the_network_repeats_what_the_kernel_drew_from(problem: pk.Problem, seed: int) -> None:
    """SELECT's sums over ready ops are those of a naive loop; a greedy episode takes PLACE's most probable devices."""
    try:
        learner = learner_of(problem, seed)
    except UnsupportedProblemError:
        reject()
    learner.policy.double()
    learner.graph = replace(learner.graph, features=learner.graph.features.double())
    played = learner._play(np.array([2, SAMPLES]), learner._anything(2), torch.Generator().manual_seed(seed))
    with torch.no_grad():
        score = learner._embedded.score.detach()
        total, entropy = select_log_probs(score, played.op_of_step, played.ready_from)
        places = learner._place(played)
    num_ops = len(score)
    for row in range(2):
        left = set(range(num_ops))
        for step, op in enumerate(played.op_of_step[row].tolist()):
            ready = [v for v in left if played.ready_from[row, v] <= step]
            probability = torch.softmax(score[ready], dim=0)
            assert float(total[row, step]) == pytest.approx(float(score[ready].logsumexp(0)), abs=1e-6)
            assert float(entropy[row, step]) == pytest.approx(float(-(probability * probability.log()).sum()), abs=1e-5)
            if row == 0:
                assert float(score[op]) == pytest.approx(float(score[ready].max()))
                went = places[0, step, played.device_of_op[0, op]]
                assert float(went) == pytest.approx(float(places[0, step].max()), abs=1e-9)
            left.remove(op)


def test_draws_follow_the_probabilities() -> None:
    """Of 4,000 episodes, the share with the first op picked, and with it on each device, within four deviations."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "c"), ("b", "c")])
    times = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]])
    costs = pk.CostTable(("cpu", "gpu"), times, np.full((2, 2), 0.1), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1), costs, pk.Makespan())
    learner = learner_of(problem, seed=3, samples=4000)
    with torch.no_grad():
        learner._embedded = learner.policy(learner.graph)
    rollout = learner.rollout(torch.Generator().manual_seed(0))
    played = learner._play(np.full(4000, SAMPLES), learner._anything(4000), torch.Generator().manual_seed(1))
    with torch.no_grad():
        places = learner._place(played).exp()
    first = torch.softmax(learner._embedded.score[:2].detach(), dim=0)
    share = (played.op_of_step[:, 0] == 0).double().mean()
    assert abs(float(share - first[0])) < 4 * 0.5 / 4000**0.5
    is_a = played.op_of_step[:, 0] == 0
    went = (played.device_of_op[is_a, 0] == 1).double().mean()
    assert abs(float(went - places[is_a, 0, 1][0])) < 4 * 0.5 / float(is_a.sum()) ** 0.5
    assert rollout.log_probs.shape == (2 * 3 * 4000,)


def test_devices_may_be_renamed_and_times_be_scaled() -> None:
    """The same episode, most probable decisions, with devices in another order, and with every time a thousandfold."""
    problem = makespan("inception", 30, seed=5)
    learner = learner_of(problem, seed=1)
    costs = problem.costs
    scaled = replace(costs, op_time_s=costs.op_time_s * 1000, transfer_time_s=costs.transfer_time_s * 1000)
    again = learner_of(problem.replace(costs=scaled), seed=1)
    assert (learner.decode() == again.decode()).all()
    devices = problem.platform.devices
    turned = problem.replace(platform=replace(problem.platform, devices=devices[::-1]))
    assert (len(devices) - 1 - learner_of(turned, seed=1).decode() == learner.decode()).all()


def test_imitation_alone_improves() -> None:
    """Without a single reward the policy's own placement goes from worse than one device to near the teacher's."""
    problem = makespan("inception", 40, seed=2)
    teacher = pk.solve(problem, "heft").objective
    assert teacher is not None
    params = DopplerParams(imitation=80, deviations=0.0, updates=80, patience=0)
    before, after = [], []
    for seed in range(3):
        environment = Environment(problem)
        learner = seeded_learner(Doppler(params), environment, seed)
        before.append(float(environment.evaluate(learner.decode())[0]))
        training = Training.begin(learner, environment, params, seed)
        scored = environment.evaluations
        assert train(training, lambda: None, lambda _: None) is pk.StopReason.ITERATIONS
        assert environment.evaluations == scored
        after.append(float(environment.evaluate(learner.decode())[0]))
    assert np.mean(after) < 0.75 * np.mean(before)
    assert np.mean(after) < 1.15 * teacher


@pytest.mark.slow
def test_doppler_beats_random_search_at_equal_evaluations() -> None:
    """In the mean over five seeds, by a fifth, and list scheduling as well."""
    problem = makespan("inception", 40, seed=2)
    evaluations = 600
    found, drawn = [], []
    for seed in range(5):
        ours = pk.solve(problem, Doppler(DopplerParams(patience=0)), stop=MaxIterations(evaluations), seed=seed)
        theirs = pk.solve(problem, f"random:{ours.evaluations}", seed=seed)
        assert ours.objective is not None
        assert theirs.objective is not None
        assert ours.evaluations < evaluations + 40
        found.append(ours.objective)
        drawn.append(theirs.objective)
    heft = pk.solve(problem, "heft").objective
    assert heft is not None
    assert np.mean(found) < 0.8 * np.mean(drawn)
    assert np.mean(found) <= heft


def test_memory_is_respected_while_there_is_room() -> None:
    """With limits that leave a quarter free, every sample of an untrained policy fits."""
    problem = makespan("layered", 40, seed=1)
    total = float(problem.costs.op_memory_bytes.sum())
    devices = [replace(device, memory_bytes=1.25 * total / 5) for device in problem.platform.devices]
    tight = problem.replace(platform=replace(problem.platform, devices=tuple(devices)))
    learner = learner_of(tight, samples=16)
    placements = learner.rollout(torch.Generator().manual_seed(0)).placements
    assert (learner.environment.infeasibility(placements) == 0).all()
    result = pk.solve(tight, Doppler(DopplerParams(**SMALL, updates=10)), seed=0)
    assert result.placement is not None
    assert pk.evaluate(tight, result.placement).is_feasible


def real_system(row: NDArray[np.int64]) -> float:
    """Seconds on a machine that the judge does not know: a second per op, but e is free on the GPU, f on the CPU."""
    return float(6 - (row[4] == 1) - (row[5] == 0))


def three_stage_training(toy: pk.Problem, seed: int, asked: list[int]) -> Training:
    """Return a training on a stub clock: two updates of imitation, three in the simulator, then the clock."""

    def clock(placements: NDArray[np.int64]) -> NDArray[np.float64]:
        asked.append(len(placements))
        return np.array([real_system(row) for row in placements])

    params = DopplerParams(**SMALL, imitation=2, simulation=3, deviations=0.0, updates=20, patience=0)
    environment = Environment(toy, clock)
    learner = seeded_learner(Doppler(params), environment, seed)
    return Training.begin(learner, environment, params, seed)


def test_the_third_stage_is_rewarded_by_the_clock(toy: pk.Problem) -> None:
    """Nothing is timed in the first two stages; the best simulated placement is timed first; then the clock decides."""
    asked: list[int] = []
    training, told = three_stage_training(toy, 0, asked), list[Metrics]()
    timed: list[int] = []

    def note(metrics: Metrics) -> None:
        told.append(metrics)
        timed.append(len(asked))

    train(training, lambda: None, note)
    stages = [int(metrics.values["charts/stage"]) for metrics in told]
    assert stages == [TrainingStage.IMITATION] * 2 + [TrainingStage.REWARDS] * 3 + [TrainingStage.MEASURED] * 15
    assert timed[4] == 0
    assert timed[5] > 0
    assert [metrics.update for metrics in told] == list(range(1, 21))
    assert training.environment.best_objective == 4.0
    learner = training.learner
    assert isinstance(learner, DopplerLearner)
    assert learner.simulator.best_objective is not None
    assert learner.simulator.best_objective > 4.0


@pytest.mark.parametrize("kept", [1, 4, 9])
def test_a_training_goes_on_in_any_stage(kept: int, toy: pk.Problem) -> None:
    """From the state after an update of each stage, bit for bit as an uninterrupted training does."""
    whole, rest = three_stage_training(toy, 1, []), three_stage_training(toy, 1, [])
    told: list[Metrics] = []
    states: list[Any] = []

    def save(metrics: Metrics) -> None:
        if metrics.update == kept:
            states.append(torch_copy(whole.state()))

    train(whole, lambda: None, save)
    rest.restore(states[0])
    train(rest, lambda: None, told.append)
    assert told[0].update == kept + 1
    expected, found = whole.state(), rest.state()
    assert [name for name in expected if name != "evaluations" and not same(expected[name], found[name])] == []


def torch_copy(state: Any) -> Any:
    """Return a deep copy of nested tensors."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    return {key: torch_copy(value) for key, value in state.items()} if isinstance(state, dict) else state


def test_the_order_of_the_best_placement_survives_a_checkpoint(tmp_path: Path) -> None:
    """A training that goes on answers with the makespan that it had found, not with another order of its devices."""
    problem = makespan("inception", 30, seed=2)
    half, rest = tmp_path / "half.pt", tmp_path / "rest.pt"
    params: dict[str, Any] = {"imitation": 60, "patience": 0}
    first = pk.solve(problem, Doppler(DopplerParams(**params, updates=80), Session(checkpoint=half)), seed=0)
    kept = read_checkpoint(half).training
    assert kept is not None
    again = pk.solve(
        problem, Doppler(DopplerParams(**params, updates=81), Session(checkpoint=rest, resume=half)), seed=0
    )
    assert first.objective is not None
    assert again.objective is not None
    assert again.objective <= first.objective * (1 + 1e-12)
    assert first.objective <= kept["best_objective"] * (1 + 1e-12)


def test_a_policy_serves_another_number_of_devices(tmp_path: Path) -> None:
    """Trained on five devices, applied to three: better than without training."""
    path = tmp_path / "doppler.pt"
    trained = Doppler(DopplerParams(updates=120, imitation=100, patience=0), Session(checkpoint=path))
    pk.solve(makespan("inception", 30, seed=2), trained, seed=0)
    other = makespan("layered", 40, seed=9, num_devices=2)
    applied = pk.solve(other, f"policy:{path}", params={"rollouts": 0}, seed=0).objective
    untrained = float(Environment(other).evaluate(learner_of(other, hidden=32).decode())[0])
    assert applied is not None
    assert applied < untrained


def test_the_journal_tells_the_stages(tmp_path: Path, toy: pk.Problem) -> None:
    """One line per update of any stage, numbered through."""
    method = Doppler(DopplerParams(**SMALL, updates=6, patience=0, imitation=2), Session(log_dir=tmp_path))
    pk.solve(toy, method, seed=0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, 7))
    assert [line["charts/stage"] for line in lines] == [1, 1, 2, 2, 2, 2]
    assert "imitation/deviations" in lines[0]
    assert "charts/episodic_return" in lines[2]

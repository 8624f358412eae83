"""Measured rewards: what is counted, kept, refused, and answered; on a pretended machine, and on a real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import openvino as ov
import pytest
from contenders import Process
from numpy.typing import NDArray
from openvino import opset13 as opset

import placekit as pk
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.measuring import measuring
from placekit.cost_models.openvino.devices import core_groups
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.learned.environment import INFEASIBLE_COST, Environment
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.hsdag.params import HsdagParams
from placekit.learned.measured_reward import SMALL_BATCHES, MeasuredReward
from placekit.learned.method import Session
from placekit.learned.rewards import RewardStopped
from placekit.model.errors import ExecutionError, InvalidProblemError, ProfileError, UnsupportedProblemError
from placekit.model.platform import Platform
from placekit.objectives import Makespan
from placekit.runtime.timing.contenders import Contender, PlacedContender
from placekit.runtime.timing.measurements import Measurements, Timings
from placekit.runtime.timing.timed_process import Burst
from placekit.runtime.timing.timing import Timing, TimingSettings
from placekit.solve.registry import get_method
from placekit.solve.stop import StopReason

SMALL = HsdagParams(hidden=8, **SMALL_BATCHES["hsdag"])


class Machine:
    """Stands for `Timing`: knows how long every placement takes, and remembers what it has measured.

    Parameters
    ----------
    seconds
        From ``[num_ops]`` devices to seconds per sample; it may raise.
    """

    def __init__(self, seconds: Callable[[NDArray[np.int64]], float]) -> None:
        self.seconds = seconds
        self.kept: set[bytes] = set()
        self.asked: list[list[str]] = []

    def measure(self, source: object, contenders: Sequence[Contender], **_: object) -> Timings:  # noqa: ARG002
        """Return three rounds without noise."""
        self.asked.append([each.name for each in contenders])
        series, is_cached = [], True
        for each in contenders:
            assert isinstance(each, PlacedContender)
            row = each.placement.device_of_op
            is_cached = is_cached and row.tobytes() in self.kept
            found = Measurements(each.name)
            for number in range(3):
                seconds = np.full(3, self.seconds(row))
                burst = Burst(seconds, 1 / float(seconds[0]))
                found = found.with_round(number, {"latency": burst}, 0.0)
            self.kept.add(row.tobytes())
            series.append(found)
        return Timings(tuple(series), 0.1, 1.0, is_cached)


def source_of(problem: pk.Problem) -> ModelSource:
    """Return what stands for the model of a problem."""
    told = SimpleNamespace(name=problem.name, graph=problem.graph, require_static=lambda: None)
    return cast("ModelSource", told)


def measured(problem: pk.Problem, machine: Machine, **more: Any) -> MeasuredReward:
    """Return a reward that asks `machine`."""
    timing = cast("Timing", machine)
    return MeasuredReward(source_of(problem), problem, timing=timing, final_timing=timing, **more)


def odd_one_out(row: NDArray[np.int64]) -> float:
    """Seconds on a machine that the judge does not know: one second per op, but e is free on the GPU, f on the CPU."""
    return float(6 - (row[4] == 1) - (row[5] == 0))


def test_only_new_placements_are_measured(toy: pk.Problem) -> None:
    """Repeated ones cost nothing, in one batch and over batches; what the disk knew is no measurement either."""
    machine = Machine(odd_one_out)
    heard: list[int] = []
    reward = measured(toy, machine, on_measured=lambda told: heard.append(told.measurements))
    rows = np.array([[0] * 6, [1] * 6, [0] * 6])
    assert reward(rows).tolist() == [5.0, 5.0, 5.0]
    assert reward(rows[:1]).tolist() == [5.0]
    assert (reward.asked, reward.measurements, heard) == (4, 2, [1, 2])
    again = measured(toy, machine)
    assert again(rows).tolist() == [5.0, 5.0, 5.0]
    assert (again.measurements, again.counts()["cache_hits"]) == (0, 3)


def test_placements_that_cannot_run_cost_as_if_infeasible(toy: pk.Problem) -> None:
    """The environment needs no price for them; the reason is told, and they are not tried twice."""

    def seconds(row: NDArray[np.int64]) -> float:
        if row[0] != row[1]:
            raise ExecutionError("stage 1: out of memory")
        return odd_one_out(row)

    reward = measured(toy, Machine(seconds))
    environment = Environment(toy, reward)
    rows = np.array([[0, 1, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])
    assert environment.costs(rows).tolist() == [INFEASIBLE_COST, 1.0, INFEASIBLE_COST]
    assert environment.best_objective == 5.0
    told = reward.counts()
    assert (told["failures"], told["last_error"]) == (1, "stage 1: out of memory")


def test_errors_that_are_no_placement_s_fault_are_raised(toy: pk.Problem) -> None:
    """Such as a lock file that cannot be opened."""

    def seconds(row: NDArray[np.int64]) -> float:
        raise ProfileError("the lock file cannot be opened")

    with pytest.raises(ProfileError, match="the lock file"):
        measured(toy, Machine(seconds))(np.zeros((1, 6), dtype=np.int64))


def test_the_budget_ends_a_batch_in_the_middle(toy: pk.Problem) -> None:
    """After exactly so many measurements; and so does whoever is asked whether to stop."""
    reward = measured(toy, Machine(odd_one_out), max_measurements=2)
    rows = np.array([[0] * 6, [0, 0, 0, 0, 1, 0], [1] * 6])
    with pytest.raises(RewardStopped) as stopped:
        reward(rows)
    assert (stopped.value.reason, reward.measurements, reward.best_s) == (StopReason.ITERATIONS, 2, 4.0)
    reward = measured(toy, Machine(odd_one_out))
    reward.should_stop = lambda: StopReason.USER
    with pytest.raises(RewardStopped, match="user"):
        reward(rows)


def test_training_answers_with_the_best_measured_placement(toy: pk.Problem) -> None:
    """Though the judge knows a better one; the judge's objective of it stands in the result, the times beside it."""
    machine = Machine(odd_one_out)
    reward = measured(toy, machine, max_measurements=64)
    result = pk.solve(toy, Hsdag(SMALL, Session(measured=reward, bound_s=1.0)), seed=1)
    assert result.placement is not None
    best = result.placement.device_of_op
    assert odd_one_out(best) == 4.0
    assert result.objective == pk.evaluate(toy, result.placement).objective
    assert result.lower_bound is not None
    told = result.info["measured"]
    assert (told["sample_s"], told["best_single_s"], told["speedup"]) == (4.0, 5.0, 1.25)
    assert told["measurements"] + told["cache_hits"] == told["evaluations"] == result.evaluations - 1
    assert told["measurements"] <= 64
    assert len(machine.asked[-1]) == 5  # three placements in turns with two single devices
    json.dumps(result.to_dict())


def test_a_single_device_is_the_answer_where_nothing_is_faster(toy: pk.Problem) -> None:
    """It is not measured against itself."""
    machine = Machine(lambda row: 1.0 + float((row != 1).sum()))
    result = pk.solve(toy, Hsdag(SMALL, Session(measured=measured(toy, machine, max_measurements=20))))
    assert result.placement is not None
    assert set(result.placement.as_dict().values()) == {toy.platform.device_names[1]}
    assert result.info["measured"]["speedup"] == 1.0
    assert len(machine.asked[-1]) == len(set(machine.asked[-1])) == 4


def test_luck_in_training_does_not_beat_a_single_device(toy: pk.Problem) -> None:
    """Where the comparison at the end says otherwise, the device alone is the answer."""

    def seconds(row: NDArray[np.int64]) -> float:
        return 2.0 if len(set(row.tolist())) == 1 else 1.0

    lucky, sober = Machine(seconds), Machine(lambda row: 3.0 - seconds(row))
    reward = measured(toy, lucky, max_measurements=20)
    reward.final_timing = cast("Timing", sober)
    result = pk.solve(toy, Hsdag(SMALL, Session(measured=reward)))
    assert result.placement is not None
    assert len(set(result.placement.as_dict().values())) == 1
    assert (result.info["measured"]["best_s"], result.info["measured"]["speedup"]) == (1.0, 1.0)


def test_an_interrupted_training_answers_at_once(toy: pk.Problem) -> None:
    """With the best so far, without the comparison at the end."""
    machine = Machine(odd_one_out)
    reward = measured(toy, machine)
    run = pk.Run(toy)

    def interrupt(told: MeasuredReward) -> None:
        if told.measurements == 5:
            run.interrupted.set()

    reward.on_measured = interrupt
    assert Hsdag(SMALL, Session(measured=reward)).run(run) is StopReason.USER
    assert run.placement is not None
    assert odd_one_out(run.placement.device_of_op) == reward.best_s
    assert run.info["measured"]["speedup"] is None
    assert (reward.measurements, len(machine.asked)) == (5, 5)


def test_a_training_goes_on_where_the_budget_ended_it(toy: pk.Problem, tmp_path: Path) -> None:
    """From the last whole update; what the broken one had measured is known. But not on times of another kind."""
    machine, path = Machine(odd_one_out), tmp_path / "p.pt"
    first = measured(toy, machine, max_measurements=12)
    pk.solve(toy, Hsdag(SMALL, Session(checkpoint=path, measured=first)))
    second = measured(toy, machine, max_measurements=12)
    resumed = pk.solve(toy, Hsdag(SMALL, Session(checkpoint=path, resume=path, measured=second)))
    whole = measured(toy, Machine(odd_one_out), max_measurements=24)
    uninterrupted = pk.solve(toy, Hsdag(SMALL, Session(measured=whole)))
    assert resumed.info["updates"] == uninterrupted.info["updates"]
    assert resumed.placement == uninterrupted.placement
    with pytest.raises(InvalidProblemError, match=r"reward 'measured, serial', not on 'judge'; apply it as a policy"):
        pk.solve(toy, Hsdag(SMALL, Session(resume=path)))


def test_what_cannot_be_measured_is_refused(toy: pk.Problem, diamond: pk.Problem) -> None:
    """Objectives without an executor, other models, no measurement at all."""
    machine = Machine(odd_one_out)
    with pytest.raises(UnsupportedProblemError, match=r"'makespan' cannot be measured; .* serial-latency, throughput"):
        measured(toy.replace(objective=Makespan()), machine)
    with pytest.raises(InvalidProblemError, match="different ops"):
        MeasuredReward(source_of(diamond), toy)
    with pytest.raises(InvalidProblemError, match="max_measurements is 0; it must be >= 1"):
        measured(toy, machine, max_measurements=0)


def test_small_batches_are_parameters_of_the_learners() -> None:
    """So that no name goes stale."""
    for name, params in SMALL_BATCHES.items():
        made = get_method(name, params).params
        assert {field.name for field in fields(made)} >= set(params)


@pytest.fixture
def chain(tmp_path: Path) -> ModelSource:
    """Return a chain of three small matrix products."""
    rng = np.random.default_rng(0)
    x = node = opset.parameter([1, 64], ov.Type.f32, name="x")
    for at in range(3):
        weights = opset.constant(rng.standard_normal((64, 64), dtype=np.float32))
        node = opset.relu(opset.matmul(node, weights, False, False, name=f"matmul{at}"), name=f"relu{at}")
    ov.save_model(ov.Model([node], [x], "chain"), tmp_path / "chain.xml", compress_to_fp16=False)
    return read_model(tmp_path / "chain.xml")


def problem_of(source: ModelSource, objective: pk.Objective) -> pk.Problem:
    """Place it on two devices that share one core: the numbers mean nothing, but every machine has it."""
    device = core_groups(1, threads=[1]).devices[0]
    platform = Platform((device.replace(name="A"), device.replace(name="B")))
    num_ops, num_tensors = source.graph.num_ops, source.graph.num_tensors
    kinds = platform.kinds
    costs = pk.CostTable(
        kinds, np.full((num_ops, len(kinds)), 1e-3), np.full((num_tensors, len(kinds)), 1e-4), np.ones(num_ops)
    )
    return pk.Problem(source.graph, platform, costs, objective)


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
def test_measurements_outlive_the_process_even_where_the_machine_is_busy(
    chain: ModelSource, objective: pk.Objective, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disturbed ones are kept for rewards, but not taken by whoever wants undisturbed ones."""
    monkeypatch.setattr("placekit.runtime.timing.timing.TimedProcess", Process)
    problem = problem_of(chain, objective)
    settings = TimingSettings(rounds=3, max_rounds=3, max_foreign_load=0.0)
    timing = Timing(settings, ProfileCache(tmp_path / "cache"), tmp_path / "lock", keeps_noisy=True)
    rows = np.zeros((1, chain.graph.num_ops), dtype=np.int64)
    Process.bursts = 0
    first = MeasuredReward(chain, problem, timing=timing)
    assert first(rows).tolist() == [2e-3]
    assert (first.measurements, Process.bursts > 0) == (1, True)
    Process.bursts = 0
    again = MeasuredReward(chain, problem, timing=timing)
    assert again(rows).tolist() == [2e-3]
    assert (again.measurements, Process.bursts) == (0, 0)


def test_waiting_for_another_measurement_ends_when_time_is_up(chain: ModelSource, tmp_path: Path) -> None:
    """The training is over then, as between two measurements."""
    reward = MeasuredReward(chain, problem_of(chain, pk.SerialLatency()), timing=Timing(lock=tmp_path / "lock"))
    asked: list[bool] = []
    reward.should_stop = lambda: StopReason.TIME if len(asked) > 1 else asked.append(True)
    rows = np.zeros((1, chain.graph.num_ops), dtype=np.int64)
    with measuring("another", path=tmp_path / "lock"), pytest.raises(RewardStopped, match="time"):
        reward(rows)


@pytest.mark.slow
def test_a_real_model_is_learned_on_the_devices(chain: ModelSource, tmp_path: Path) -> None:
    """Serially: processes start, times are positive, and the answer stands beside the best single device."""
    problem = problem_of(chain, pk.SerialLatency())
    settings = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0, latency_s=0.01, throughput_s=0)
    timing = Timing(settings, ProfileCache(tmp_path / "cache"), tmp_path / "lock", keeps_noisy=True)
    reward = MeasuredReward(chain, problem, timing=timing, final_timing=timing, max_measurements=3)
    told = pk.solve(problem, Hsdag(SMALL, Session(measured=reward))).info["measured"]
    assert (told["measurements"], told["failures"]) == (3, 0)
    assert told["sample_s"] > 0
    assert told["best_single_s"] > 0

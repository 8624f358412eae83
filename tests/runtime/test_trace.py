"""Traces of stages, measured beside predicted, and a placement timed with its prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.analytic import Analytic
from placekit.cost_models.measured.splits import split_placement
from placekit.cost_models.measured.stage_costs import StageCosts
from placekit.cost_models.openvino.devices import core_groups
from placekit.io.models.model import ModelSource
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.runtime.pipelines.pipeline import UNKNOWN_MEMBER
from placekit.runtime.timing.compare import PLACEMENT, PlacementTiming, time_placement
from placekit.runtime.timing.splits import measure_splits
from placekit.runtime.timing.timing import Timing, TimingSettings
from placekit.runtime.timing.trace import predicted_stage_times, timing_trace

QUICK = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0.01, latency_s=0.02, throughput_s=0.05, timeout_s=60)


def chain(*devices: int) -> StageCosts:
    """Return stages in a chain, on these devices."""
    count = len(devices)
    return StageCosts(
        stage=np.arange(count),
        device=np.array(devices),
        kind=np.zeros(count, dtype=np.int64),
        op_time_s=np.ones(count),
        transfer_s=np.zeros(count),
        moved_bytes=np.zeros(count),
        hand_over_s=np.zeros(count),
        producers=((), *((stage,) for stage in range(count - 1))),
    )


def test_predicted_pipeline_is_paced_by_its_slowest_stage() -> None:
    """Stages of 1 s and 3 s: a sample every 3 s, the first after 4 s."""
    times, _ = predicted_stage_times(chain(0, 1), np.array([1.0, 3.0]), 6, is_serial=False)
    assert times[:, 1, 1].tolist() == [4.0, 7.0, 10.0, 13.0, 16.0, 19.0]
    assert (times[:, 1, 0] >= times[:, 0, 1]).all()
    # queues are bounded: the first stage is not through with everything before the second has begun with much
    assert times[5, 0, 0] >= times[1, 1, 1]


def test_predicted_serial_samples_follow_each_other() -> None:
    """One stage at a time: 4 s per sample."""
    times, _ = predicted_stage_times(chain(0, 1), np.array([1.0, 3.0]), 3, is_serial=True)
    assert times.reshape(-1, 2).tolist() == [[0, 1], [1, 4], [4, 5], [5, 8], [8, 9], [9, 12]]


def test_predicted_device_runs_one_stage_at_a_time() -> None:
    """A device with two turns works on other samples while it waits, and never on two at once."""
    times, _ = predicted_stage_times(chain(0, 1, 0), np.array([1.0, 2.0, 1.0]), 8, is_serial=False)
    mine = times[:, [0, 2]].reshape(-1, 2)
    mine = mine[np.argsort(mine[:, 0])]
    assert (mine[1:, 0] >= mine[:-1, 1]).all()
    assert np.diff(times[:, 2, 1])[-3:].max() == pytest.approx(2.0)


def test_predicted_team_shares_the_samples() -> None:
    """Members of 2 s and 4 s take three samples in 4 s, and the faster one two of them."""
    team = StageCosts(
        stage=np.zeros(2, dtype=np.int64),
        device=np.array([0, 1]),
        kind=np.array([0, 1]),
        op_time_s=np.array([2.0, 4.0]),
        transfer_s=np.zeros(2),
        moved_bytes=np.zeros(2),
        hand_over_s=np.zeros(2),
        producers=((),),
    )
    times, members = predicted_stage_times(team, team.op_time_s, 6, is_serial=False)
    assert times[:, 0, 1].max() == 8.0
    assert np.bincount(members[:, 0]).tolist() == [4, 2]


def test_trace_shows_which_member_ran_a_sample() -> None:
    """A stage of a team has a row on every member; a slice stands on the one that ran it."""
    measured = np.array([[[0.0, 2.0]], [[0.0, 3.0]], [[2.0, 4.0]]]), np.array([[0], [1], [0]])
    events = timing_trace(["0:a+b"], [["a", "b"]], measured, None)["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        "measured: a",
        "measured: b",
    ]
    assert [event["pid"] for event in events if event["ph"] == "X"] == [0, 1, 0]


def test_trace_does_not_say_which_member_ran_a_sample_where_that_is_not_known() -> None:
    """Members that share a model are one process, with a row for each sample at once; what is predicted stays."""
    measured = np.array([[[0.0, 2.0]], [[0.0, 3.0]], [[2.0, 4.0]]]), np.full((3, 1), UNKNOWN_MEMBER)
    predicted = measured[0], np.array([[0], [1], [0]])
    events = timing_trace(["0:a+b"], [["a", "b"]], measured, predicted)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["measured: a+b", "predicted: a", "predicted: b"]
    rows = [(event["pid"], event["tid"]) for event in events if event["ph"] == "X"]
    assert rows == [(0, 0), (0, 1), (0, 0), (1, 0), (2, 0), (1, 0)]


def test_trace_has_a_row_per_stage_measured_and_predicted() -> None:
    """Slices stand in microseconds from the first; devices are processes, twice."""
    measured = np.array([[[10.0, 10.5], [10.5, 11.0]], [[10.5, 11.0], [11.0, 12.0]]])
    first = np.zeros((2, 2), dtype=np.int64)
    events = timing_trace(["0:a", "1:b"], [["a"], ["b"]], (measured, first), (measured - 5, first))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["measured: a", "measured: b", "predicted: a", "predicted: b"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 8
    assert {(each["pid"], each["tid"]) for each in slices} == {(0, 0), (1, 1), (2, 0), (3, 1)}
    assert (slices[3]["ts"], slices[3]["dur"]) == (1e6, 1e6)


def test_trace_without_a_prediction_or_measurement_is_empty_there() -> None:
    """What is not known leaves no rows."""
    first = np.zeros((1, 1), dtype=np.int64)
    known = np.array([[[0.0, 1.0]]]), first
    for measured, predicted, what in ((known, None, "measured"), ((np.zeros((0, 1, 2)), first), known, "predicted")):
        events = timing_trace(["0:a"], [["a"]], measured, predicted)["traceEvents"]
        assert {event["cat"] for event in events if event["ph"] == "X"} == {what}


@pytest.fixture
def problem(saved: Callable[..., ModelSource], make_convnet: Callable[[], Any]) -> tuple[ModelSource, Problem]:
    """Return a small model on two devices that are one core, with analytic costs."""
    source = saved(make_convnet())
    device = core_groups(1, threads=[1]).devices[0]
    platform = Platform((device.replace(name="A"), device.replace(name="B")))
    return source, source.problem(platform, Analytic().cost_table(source, platform))


@pytest.mark.slow
def test_timed_placement_stands_beside_its_prediction(problem: tuple[ModelSource, Problem], tmp_path: Path) -> None:
    """Stages have measured and predicted seconds; the speedup is over the better device."""
    source, mine = problem
    placement = split_placement(mine, [0, 1], [0.5, 0.5])
    timed = time_placement(
        source, mine, placement, executor="threads", with_baselines=False, timing=Timing(QUICK, None, tmp_path / "lock")
    )
    told = timed.to_dict()
    assert [each["name"] for each in told["contenders"]] == [PLACEMENT, "single A", "single B"]
    best = max(told["contenders"][1:], key=lambda each: float(each["throughput_per_s"]))["name"]
    assert best == f"single {told['best_single_device']}"
    ratio = timed.timings.ratio(PLACEMENT, best)
    assert ratio is not None
    assert told["speedup"] == ratio.median
    assert told["prediction_error"] == pytest.approx(told["predicted_throughput_per_s"] / told["throughput_per_s"] - 1)
    assert [stage["name"] for stage in told["stages"]] == ["0:A", "1:B"]
    assert all(stage["measured_s"] > 0 and stage["predicted_s"] > 0 for stage in told["stages"])
    assert timed.trace()["traceEvents"]


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_measured_splits_carry_what_calibration_needs(
    problem: tuple[ModelSource, Problem], tmp_path: Path, executor: Any
) -> None:
    """Seconds per sample, busy seconds of every stage, and how it was measured."""
    source, mine = problem
    placements = {"half": split_placement(mine, [0, 1], [0.5, 0.5])}
    measured = measure_splits(source, mine, placements, executor, Timing(QUICK, None, tmp_path / "lock"))
    (split,) = measured.splits
    assert split.is_serial == (executor == "serial")
    assert len(split.busy_s) == 2
    assert split.busy_s.min() > 0
    # the two are medians over different samples, and other processes work meanwhile: this tells units, not noise
    assert split.sample_s > split.busy_s.max() / 20
    assert measured.circumstances()["executor"] == executor


@pytest.mark.slow
def test_example_on_the_page_about_timing_runs(
    problem: tuple[ModelSource, Problem], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The Python of docs/timing.md does what it says."""
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path))
    monkeypatch.setattr("placekit.runtime.timing.timing.lock_path", lambda: tmp_path / "lock")
    page = (Path(__file__).parents[2] / "docs" / "timing.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    source, mine = problem
    names = {"source": source, "problem": mine, "placement": split_placement(mine, [0, 1], [0.5, 0.5])}
    exec(compile(code, "timing.md", "exec"), names)
    timed = names["timed"]
    assert isinstance(timed, PlacementTiming)
    assert timed.best_single_device in ("A", "B")


def test_no_splits_are_refused(problem: tuple[ModelSource, Problem]) -> None:
    """There is nothing to calibrate from."""
    with pytest.raises(InvalidProblemError, match="'convnet': no splits to measure"):
        measure_splits(*problem, {}, "threads")

"""Timing: the lock, the numbers, processes that crash or hang, and contenders measured in turns."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.measuring import measuring
from placekit.cost_models.openvino.devices import core_groups
from placekit.io.models.model import ModelSource
from placekit.model.errors import (
    ExecutionError,
    InvalidProblemError,
    ProfileError,
    UnknownNameError,
)
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.timing.baselines import openvino_baselines
from placekit.runtime.timing.contenders import (
    Contender,
    PlacedContender,
    Whole,
    on_one_device,
    singles,
)
from placekit.runtime.timing.measurements import Estimate, Measurements, Timings
from placekit.runtime.timing.timed_process import Burst, TimedProcess, steady_rate, tree_cpu_s
from placekit.runtime.timing.timing import Timing, TimingSettings

QUICK = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0.01, latency_s=0.02, throughput_s=0.05, timeout_s=30)
HOLDER = """
import sys
from pathlib import Path
from placekit.cost_models.measured.measuring import measuring
with measuring("model 'other'", path=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def source(saved: Callable[..., ModelSource], make_convnet: Callable[[], Any]) -> ModelSource:
    """Return the small convolutional model."""
    return saved(make_convnet())


@pytest.fixture
def platform() -> Platform:
    """Two devices on one core: the numbers mean nothing, but every machine has it."""
    device = core_groups(1, threads=[1]).devices[0]
    return Platform((device.replace(name="A"), device.replace(name="B")))


def halves(source: ModelSource, platform: Platform) -> Placement:
    """Return the first half of the ops on the first device, the others on the second."""
    graph = source.graph
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[graph.order] = np.arange(graph.num_ops)
    return Placement(graph.op_names, platform.device_names, rank * 2 // graph.num_ops)


def hold(path: Path) -> subprocess.Popen[str]:
    """Return a process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    """A holder that was killed leaves its file, and no lock."""
    path = tmp_path / "lock"
    holder = hold(path)
    told = rf"model 'mine' was not measured: it gave up waiting for model 'other' \(process {holder.pid}\)"
    with pytest.raises(ProfileError, match=told), measuring("model 'mine'", gives_up=lambda: True, path=path):
        pass
    holder.kill()
    holder.wait()
    beside = path.with_name("lock.json")
    assert json.loads(beside.read_text())["pid"] == holder.pid
    with measuring("model 'mine'", gives_up=lambda: True, path=path):
        assert json.loads(beside.read_text())["pid"] == os.getpid()


def test_waiting_for_the_lock_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names who is waited for; the lock comes when the holder ends."""
    path = tmp_path / "lock"
    holder = hold(path)
    threading.Timer(0.3, holder.communicate).start()
    with caplog.at_level(logging.WARNING), measuring("model 'mine'", path=path):
        pass
    assert "model 'mine' waits: model 'other'" in caplog.text


def test_lock_is_free_after_an_error(tmp_path: Path) -> None:
    """An error in the block lets go of the lock."""
    with pytest.raises(KeyError), measuring("first", path=tmp_path / "lock"):
        raise KeyError
    with measuring("second", gives_up=lambda: True, path=tmp_path / "lock"):
        pass


def test_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A folder that does not exist is an error with the path."""
    with pytest.raises(ProfileError, match=r"none.lock"), measuring("it", path=tmp_path / "no" / "none.lock"):
        pass


def test_steady_rate_leaves_out_filling_and_draining() -> None:
    """Neither the slow first samples nor the quick last ones count."""
    done = np.array([5.0, 6.0, 7.0, 7.5, 8.0, 8.5, 9.0, 9.1, 9.2])
    assert steady_rate(done, last_begun_s=9.0, num_in_flight=2) == pytest.approx(2.0)


@pytest.mark.parametrize("last", [8.0, 9.0])
@pytest.mark.parametrize("skipped", [2, 3])
def test_steady_rate_of_members_in_step(last: float, skipped: int) -> None:
    """Two members that end their samples at the same time: hardly more or less, wherever the window begins."""
    done = np.repeat(np.arange(1.0, 11.0), 2)
    assert steady_rate(done, last, skipped) == pytest.approx(2.0, rel=0.02)


def test_steady_rate_of_few_samples_uses_all() -> None:
    """A burst shorter than the pipeline still has a rate."""
    assert steady_rate(np.array([1.0, 2.0, 3.0]), last_begun_s=0.5, num_in_flight=6) == pytest.approx(1.0)


def series(name: str, rates: list[float], foreign: list[float] | None = None) -> Measurements:
    """Return a series of rounds with these throughputs; latencies are their inverse."""
    made = Measurements(name)
    for number, rate in enumerate(rates):
        bursts = {"latency": Burst(np.full(4, 1 / rate), rate), "throughput": Burst(np.zeros(0), rate)}
        made = made.with_round(number, bursts, foreign[number] if foreign else 0.0)
    return made


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that slows both contenders down leaves their ratio alone."""
    timings = Timings((series("a", [20.0, 10.0, 4.0]), series("b", [10.0, 5.0, 2.0])), 0.1, 1.0)
    assert timings.ratio("a", "b") == Estimate(2.0, 0.0)
    assert timings.ratio("a", "b", "latency") == Estimate(2.0, 0.0)
    assert timings.best(("a", "b")) == timings.best(("a", "b"), "latency") == "a"


@pytest.mark.slow
def test_the_best_of_several_is_not_chosen_by_its_luck() -> None:
    """Against four contenders that are as fast as itself, all noisy, one is as fast as the best; and no fool's best."""
    rng = np.random.default_rng(0)
    names, found, naive = ("b", "c", "d", "e"), [], []
    for _ in range(200):
        timings = Timings(tuple(series(each, rng.normal(10, 0.5, 7).tolist()) for each in ("a", *names)), 0.1, 1.0)
        over, ratio = timings.over_best("a", names), timings.ratio("a", str(timings.best(names)))
        assert over is not None
        assert ratio is not None
        found.append(over.median)
        naive.append(ratio.median)
    assert np.mean(found) == pytest.approx(1, abs=0.005)
    assert np.mean(naive) < 0.99
    rates = {"a": [10.0] * 4, "b": [5.0] * 4, "c": [8.0] * 4}
    timings = Timings(tuple(series(name, each) for name, each in rates.items()), 0.1, 1.0)
    assert timings.over_best("a", ("b", "c")) == Estimate(1.25, 0.0)
    assert timings.over_best("a", ("b",)) == Estimate(2.0, 0.0)
    assert timings.over_best("a", ()) is None
    once = Timings((series("a", [10.0]), series("b", [5.0])), 0.1, 1.0)
    assert once.over_best("a", ("b",)) == Estimate(2.0, 0.0)


def test_disturbed_rounds_do_not_count_where_three_are_quiet() -> None:
    """A round in which other load disturbed anyone is left out for all."""
    disturbed = series("a", [10.0, 1.0, 10.0, 10.0], [0.0, 0.9, 0.0, 0.0])
    timings = Timings((disturbed, series("b", [5.0, 9.0, 5.0, 5.0])), 0.1, 1.0)
    assert not timings.is_noisy
    assert timings["a"].throughput == Estimate(10.0, 0.0)
    assert timings["b"].throughput == Estimate(5.0, 0.0)
    assert len(timings["b"].latency_s) == 12
    assert timings.flags() == ()


def test_noise_spread_and_drift_are_flagged() -> None:
    """Everything that makes a number doubtful is said, with its value."""
    timings = Timings((series("a", [10.0, 15.0, 20.0], [0.5, 0.5, 0.0]),), 0.1, 1.0)
    assert timings.is_noisy
    told = " ".join(timings.flags())
    for text in ("2 of 3 rounds", "median up to 50%", "throughput is spread by 33%", "drifted by +100%"):
        assert text in told


def test_contender_that_was_not_measured_has_no_numbers() -> None:
    """None stands for what is not known, also in ratios and in the summary."""
    timings = Timings((series("a", [1.0, 1.0, 1.0]), Measurements("b", error="it broke")), 0.1, 1.0)
    assert timings.ratio("a", "b") is None
    assert timings.best(("b",)) is None
    assert timings["b"].to_dict()["throughput_per_s"] is None
    assert timings["b"].to_dict()["error"] == "it broke"
    json.dumps([each.to_dict() for each in timings.used], allow_nan=False)
    with pytest.raises(UnknownNameError, match="'c'; contenders are a, b"):
        timings["c"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 2}, "rounds is 2"),
        ({"rounds": 20}, "max_rounds is 15"),
        ({"latency_s": -1.0}, "latency_s is -1"),
        ({"latency_s": 0.0, "throughput_s": 0.0}, "nothing to measure"),
        ({"max_foreign_load": 2.0}, "share, 0 to 1"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    """A setting outside its range is an error with its value."""
    with pytest.raises(InvalidProblemError, match=message):
        TimingSettings(**change)


def test_baselines_use_the_platform_s_cores_and_precision(source: ModelSource) -> None:
    """f32 wins where precisions differ, and nothing runs outside of the groups' cores."""
    cpu: dict[str, Any] = {"is_host": True, "openvino": "CPU"}
    platform = Platform(
        (
            Device("a", "x", cores=(0,), properties={"INFERENCE_PRECISION_HINT": "bf16"}, **cpu),
            Device("b", "y", cores=(1,), properties={"INFERENCE_PRECISION_HINT": "f32"}, **cpu),
        )
    )
    assert all(each.cores == (0, 1) for each in openvino_baselines(source.graph, platform))
    found = {each.name: each for each in openvino_baselines(source.graph, platform) if isinstance(each, Whole)}
    assert list(found) == ["AUTO:CPU", "MULTI:CPU", "all cores", "all cores, streams"]
    # what OpenVINO cannot be asked for: a copy on each group, in its own precision
    (copies,) = (each for each in openvino_baselines(source.graph, platform) if isinstance(each, PlacedContender))
    assert (copies.name, copies.platform, copies.placement.teams) == ("MULTI of groups", platform, ((0, 1),))
    assert found["all cores"].latency_properties["INFERENCE_PRECISION_HINT"] == "f32"
    assert found["AUTO:CPU"].latency_properties["DEVICE_PROPERTIES"] == {"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}
    gpu = Platform((Device("GPU.0", "GPU", openvino="GPU.0"), Device("CPU", "c", **cpu)))
    own = openvino_baselines(source.graph, gpu)
    assert [each.target for each in own if isinstance(each, Whole)] == ["AUTO:GPU,CPU", "AUTO:GPU,CPU"]
    assert len(own) == 2


def test_unknown_executor_is_named(source: ModelSource, platform: Platform) -> None:
    """The message lists the executors."""
    with pytest.raises(UnknownNameError, match="executors are serial, threads"):
        PlacedContender("x", on_one_device(source.graph, platform, 0), platform, "rayon")  # type: ignore[arg-type]  # that is the point


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["serial", pytest.param("threads", marks=pytest.mark.slow)])
def test_placement_is_measured_against_single_devices(
    source: ModelSource, platform: Platform, tmp_path: Path, executor: Any
) -> None:
    """Every contender gets latency and throughput, stages their times; a baseline that cannot run is excused."""
    graph = source.graph
    first = np.zeros(graph.num_ops, dtype=int)
    everywhere = Placement(graph.op_names, platform.device_names, first, None, np.zeros(2, dtype=int))
    contenders: list[Contender] = [
        PlacedContender("placement", halves(source, platform), platform, executor),
        *singles(source.graph, platform, executor)[:1],
        PlacedContender("copies", everywhere, platform),
        Whole("nowhere", "NOWHERE"),
    ]
    labels: list[str] = []
    timings = Timing(QUICK, None, tmp_path / "lock").measure(
        source, contenders, progress=lambda _done, _total, label: labels.append(label)
    )
    placed, single, copies, nowhere = timings.series
    for each in (placed, single, copies):
        assert each.error is None
        assert len(each.round) == 3
        assert each.latency is not None
        assert each.latency.median > 0
        assert each.throughput is not None
        assert each.throughput.median > 0
    assert len(placed.stage_busy_s) == 2
    assert (placed.stage_busy_s > 0).all()
    assert "NOWHERE" in (nowhere.error or "")
    assert "starting placement" in labels
    assert labels[-1] == "rounds"


def test_measurement_is_kept_by_content(
    source: ModelSource, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question is answered from the cache without a process; another placement is not."""
    settings = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0, latency_s=0.01, throughput_s=0, max_foreign_load=1)
    timing = Timing(settings, ProfileCache(tmp_path / "cache"), tmp_path / "lock")
    mine = [PlacedContender("placement", halves(source, platform), platform)]
    first = timing.measure(source, mine)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("placekit.runtime.timing.timing.TimedProcess", refuse)
    second = timing.measure(source, mine)
    assert second.is_cached
    assert second.series[0].to_dict() == first.series[0].to_dict()
    np.testing.assert_array_equal(second.series[0].stage_times_s, first.series[0].stage_times_s)
    with pytest.raises(AssertionError, match="measured again"):
        timing.measure(source, [PlacedContender("placement", on_one_device(source.graph, platform, 1), platform)])


def test_first_contender_s_error_is_raised(source: ModelSource, tmp_path: Path) -> None:
    """What the placement cannot do is not hidden in a table."""
    with pytest.raises(ExecutionError, match="only: the model does not run on 'NOWHERE'"):
        Timing(QUICK, None, tmp_path / "lock").measure(source, [Whole("only", "NOWHERE")])


def test_contenders_need_names_of_their_own(source: ModelSource) -> None:
    """Two of one name, or none at all, are refused."""
    for contenders in ([], [Whole("x", "CPU"), Whole("x", "CPU")]):
        with pytest.raises(InvalidProblemError, match="names of their own"):
            Timing(QUICK, None).measure(source, contenders)


def test_crash_of_the_process_is_an_error(source: ModelSource) -> None:
    """A contender whose process is killed says so, with the signal."""
    with TimedProcess(source, Whole("it", "CPU")) as process:
        assert process.burst("latency", 0.0).throughput_per_s > 0
        os.kill(process.pid, signal.SIGSEGV)
        with pytest.raises(ExecutionError, match="it: its process was ended by SIGSEGV"):
            process.burst("latency", 0.0)


def test_process_that_hangs_is_killed(source: ModelSource) -> None:
    """A contender that does not answer in time is killed and reported."""
    with TimedProcess(source, Whole("it", "CPU"), timeout_s=20.0) as process:
        process._timeout_s = 0.3
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ExecutionError, match=r"it had 0\.3 s to run for 0 s and did not end; it was killed"):
            process.burst("latency", 0.0)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_cpu_time_of_children_counts() -> None:
    """The CPU seconds of a process include those of its living children."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("CPU times of other processes are only read on Linux")
    before = tree_cpu_s(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert tree_cpu_s(os.getpid()) - before > 0.2
    child.communicate(b"\n")

"""Teams that run: several devices share the samples of a stage, in threads, from a bundle, checked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from pipelines import (
    F32,
    alternating_plan,
    chain,
    chain_value,
    placed_plan,
    slow_model,
    start_threads,
    team_plan,
    whole,
)

from placekit import runtime
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.exports.hetero_sidecar import hetero_devices
from placekit.io.models.model import ModelSource
from placekit.machine import usable_cpus
from placekit.model.errors import ExecutionError, UnsupportedProblemError
from placekit.runtime.bundles.bundle import MANIFEST, read_bundle, write_bundle
from placekit.runtime.output_check import check_placement, require_equal_outputs
from placekit.runtime.pipelines.pipeline import UNKNOWN_MEMBER, Pipeline
from placekit.runtime.pipelines.serial import SerialExecutor
from placekit.runtime.stages.openvino_stages import compile_openvino_plan
from placekit.runtime.stages.plans import compile_plan
from placekit.runtime.stages.stage_plan import StagePlan


@pytest.fixture
def plan(saved: Callable[[ov.Model], ModelSource]) -> StagePlan:
    """Return four stages in turn on a team of two and on a third device."""
    return team_plan(saved(chain([2, 8])))


@pytest.fixture
def slow(saved: Callable[[ov.Model], ModelSource]) -> StagePlan:
    """Return the whole of a model of some milliseconds on a team of three."""
    source = saved(slow_model())
    return placed_plan(source, [0] * source.graph.num_ops, 3, [0, 0, 0])


@pytest.fixture
def unequal(slow: StagePlan) -> StagePlan:
    """Return the same on a team whose members are compiled in different ways."""
    return with_members(slow, [{**F32, "PERF_COUNT": "YES"}, F32, F32])


def with_members(plan: StagePlan, properties: Sequence[dict[str, str]]) -> StagePlan:
    """Give the members of the team of the only stage these properties."""
    (stage,) = plan.stages
    members = tuple(device.replace(properties=each) for device, each in zip(stage.members, properties, strict=True))
    return replace(plan, stages=(replace(stage, members=members),))


def filled(value: float) -> list[Any]:
    """Return the inputs of a chain."""
    return [np.full((2, 8), value, dtype=np.float32)]


def test_stages_name_their_team(plan: StagePlan) -> None:
    """A stage knows its members; devices come team by team."""
    assert [stage.name for stage in plan.stages] == ["0:cpu0+cpu2", "1:cpu1", "2:cpu0+cpu2", "3:cpu1"]
    assert [[device.name for device in team] for team in plan.teams] == [["cpu0", "cpu2"], ["cpu1"]]
    assert [device.name for device in plan.devices] == ["cpu0", "cpu2", "cpu1"]
    assert "on cpu0+cpu2, cpu1" in repr(plan)


@pytest.mark.parametrize("queue_size", [1, 3])
def test_every_future_gets_its_own_sample_in_order(queue_size: int, plan: StagePlan) -> None:
    """Hundreds of samples shared by members come out in the order of submission, each with its own value."""
    with start_threads(plan, queue_size=queue_size) as pipe:
        futures = [pipe.submit(filled(i)) for i in range(300)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(10)["y"], chain_value(filled(i)[0]))
        for i, outputs in enumerate(pipe.stream(filled(i) for i in range(100))):
            np.testing.assert_array_equal(outputs["y"], chain_value(filled(i)[0]))


def test_all_members_work_and_are_recorded(unequal: StagePlan) -> None:
    """In a stream every member takes samples, at the same time, and the record says which."""
    x = np.ones((256, 256), dtype=np.float32)
    with start_threads(unequal, record=60) as pipe:
        list(pipe.stream([[x]] * 60))
        times_s, members = pipe.stage_times_s, pipe.stage_members
    assert members.shape == (60, 1)
    assert set(members[:, 0].tolist()) == {0, 1, 2}
    for member in range(3):  # one sample at a time each
        mine = times_s[members[:, 0] == member, 0]
        mine = mine[np.argsort(mine[:, 0])]  # of two that wait for a member either may be the first
        assert (mine[1:, 0] >= mine[:-1, 1]).all()
    assert (times_s[1:, 0, 0] < times_s[:-1, 0, 1]).any()  # but several on different ones


def test_random_teams_compute_what_the_model_does(
    saved: Callable[[ov.Model], ModelSource], make_convnet: Callable[[], ov.Model]
) -> None:
    """A random placement on a team of two and one of one, with branches and two outputs."""
    source = saved(make_convnet())
    placed = np.random.default_rng(5).integers(0, 2, source.graph.num_ops)
    plan = placed_plan(source, placed, 3, [0, 1, 1])
    samples = [[tensor.data.copy() for tensor in random_inputs(plan.model, seed)] for seed in range(8)]
    with start_threads(plan) as pipe:
        results = list(pipe.stream(samples))
    for inputs, outputs in zip(samples, results, strict=True):
        for output, expected in zip(outputs.values(), whole(plan.model, inputs), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_slow_member_gets_fewer_samples(unequal: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next sample goes to the next free member: one that sleeps has few, and the order stays."""
    with Pipeline(compile_plan(unequal), record=60) as pipe:
        run = pipe._runners[0][1].run

        def sleepy(*arguments: Any) -> Any:
            time.sleep(0.3)
            return run(*arguments)

        monkeypatch.setattr(pipe._runners[0][1], "run", sleepy)
        list(pipe.stream([[np.ones((256, 256), dtype=np.float32)]] * 40))
        counts = np.bincount(pipe.stage_members[:, 0], minlength=3)
    assert counts[1] < counts[0]
    assert counts[1] < counts[2]


def test_a_member_that_fails_is_named(plan: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which device of the team it was; later submits say the same."""

    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    with Pipeline(compile_plan(plan)) as pipe:
        monkeypatch.setattr(pipe._runners[2][1], "run", fail)
        with pytest.raises(ExecutionError, match=r"stage '2:cpu0\+cpu2' failed on device 'cpu2': out of luck"):
            list(pipe.stream(filled(1) for _ in range(200)))
        with pytest.raises(ExecutionError, match="failed on device 'cpu2'"):
            pipe.submit(filled(1))


def test_equal_members_of_one_stage_share_a_compiled_model(
    slow: StagePlan, unequal: StagePlan, plan: StagePlan
) -> None:
    """A model with a stream per member; not where members differ, say how many streams, or have several stages."""

    def num_models(cut: StagePlan) -> int:
        return len({id(each) for models in compile_openvino_plan(cut).compiled for each in models})

    (shared,) = compile_openvino_plan(slow).compiled
    assert len(shared) == 3
    assert num_models(slow) == 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert shared[0].get_property("NUM_STREAMS") == min(3, usable)  # OpenVINO makes no more
    assert "THROUGHPUT" in str(shared[0].get_property("PERFORMANCE_HINT"))
    assert num_models(unequal) == 3
    assert num_models(with_members(slow, [{**F32, "NUM_STREAMS": "1"}] * 3)) == 3
    assert num_models(with_members(slow, [{"INFERENCE_PRECISION_HINT": "f32"}] * 3)) == 3
    assert num_models(plan) == 6


def test_members_that_share_a_model_compute_what_it_computes(slow: StagePlan) -> None:
    """Each sample its own outputs, in order; as many at once as there are members, and nobody knows which it was."""
    rng = np.random.default_rng(0)
    samples = [[rng.standard_normal((256, 256)).astype(np.float32)] for _ in range(40)]
    with Pipeline(compile_plan(slow), record=40) as pipe:
        results = list(pipe.stream(samples))
        times_s, members = pipe.stage_times_s[:, 0], pipe.stage_members
    for inputs, outputs in zip(samples, results, strict=True):
        np.testing.assert_allclose(outputs["y"], whole(slow.model, inputs)[0], rtol=1e-5, atol=1e-5)
    assert (members == UNKNOWN_MEMBER).all()
    at_once = [int(((times_s[:, 0] <= begin) & (times_s[:, 1] > begin)).sum()) for begin in times_s[:, 0]]
    assert 1 < max(at_once) <= 3


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="two cores")
def test_threads_of_a_shared_model_use_the_cores_of_all_members(slow: StagePlan) -> None:
    """No thread is bound to the cores of one member."""
    cores = usable_cpus()[:2]
    (stage,) = slow.stages
    members = tuple(device.replace(cores=(core,)) for device, core in zip(stage.members[:2], cores, strict=True))
    with Pipeline(compile_plan(replace(slow, stages=(replace(stage, members=members),)))) as pipe:
        pipe([np.ones((256, 256), dtype=np.float32)])
        assert [os.sched_getaffinity(worker.native_id or 0) for worker in pipe._workers] == [set(cores)] * 4


def test_a_shared_model_that_fails_names_the_team(slow: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which member it was is not known."""

    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    with Pipeline(compile_plan(slow)) as pipe:
        monkeypatch.setattr(pipe._runners[0][0], "run", fail)
        with pytest.raises(ExecutionError, match=r"failed on a member of team 'cpu0\+cpu1\+cpu2': out of luck"):
            pipe([np.ones((256, 256), dtype=np.float32)])


def test_closing_cancels(slow: StagePlan) -> None:
    """Leaving by an exception ends at once; no future is left open."""
    x = np.ones((256, 256), dtype=np.float32)
    futures: list[Future[Any]] = []

    def leave_early() -> None:
        with start_threads(slow, queue_size=4) as pipe:
            futures.extend(pipe.submit([x]) for _ in range(8))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        leave_early()
    assert all(future.done() for future in futures)
    assert any("was closed before" in str(future.exception()) for future in futures)


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow(count: int, plan: StagePlan) -> None:
    """After a warm-up, thousands of samples add nothing that stays."""
    with start_threads(plan) as pipe:
        for _ in pipe.stream(filled(i) for i in range(500)):
            pass
        before = resident_bytes()
        for i, outputs in enumerate(pipe.stream(filled(i) for i in range(count))):
            assert outputs["y"][0, 0] == chain_value(filled(i)[0])[0, 0]
        assert resident_bytes() - before < 8 << 20
        assert all(len(ended) <= 20 for ended in pipe._flow._ended)


def test_every_member_is_checked(plan: StagePlan, saved: Callable[[ov.Model], ModelSource]) -> None:
    """Each tensor of a team's stage is compared on each member, and the members are named."""
    check = check_placement(compile_plan(plan))
    check.require_equal()
    assert [each.stage for each in check.cuts if each.name == "op0:0"] == [
        "0:cpu0+cpu2 on cpu0",
        "0:cpu0+cpu2 on cpu2",
    ]
    assert [each.stage for each in check.cuts if each.name == "op1:0"] == ["1:cpu1"]
    require_equal_outputs(compile_plan(plan), "threads")


def test_a_member_that_computes_something_else_is_found(plan: StagePlan) -> None:
    """One member whose model is another one: the mismatch names stage and member."""
    compiled = compile_openvino_plan(plan)
    other = compile_openvino_plan(replace(plan, stages=(replace(plan.stages[0], model=_wrong(plan)), *plan.stages[1:])))
    first = (compiled.compiled[0][0], other.compiled[0][1], *compiled.compiled[0][2:])
    mismatch = check_placement(replace(compiled, compiled=(first, *compiled.compiled[1:]))).first_mismatch
    assert mismatch is not None
    assert (mismatch.name, mismatch.stage) == ("op0:0", "0:cpu0+cpu2 on cpu2")


def _wrong(plan: StagePlan) -> ov.Model:
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    return ov.Model([opset.result(opset.add(x, opset.constant(3.0, ov.Type.f32)))], [x], plan.stages[0].name)


def test_a_bundle_runs_its_teams(plan: StagePlan, tmp_path: Path) -> None:
    """The manifest lists members, one file serves them all, and what is loaded runs as what was written."""
    write_bundle(plan, tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").glob("*.xml")) == ["0.xml", "1.xml", "2.xml", "3.xml"]
    read = read_bundle(tmp_path / "b")[0]
    assert [stage.members for stage in read.stages] == [stage.members for stage in plan.stages]
    with runtime.load(tmp_path / "b", record=40) as pipe:
        for i, outputs in enumerate(pipe.stream(filled(i) for i in range(40))):
            np.testing.assert_array_equal(outputs["y"], chain_value(filled(i)[0]))


def test_a_bundle_without_teams_of_the_first_version_is_read(
    saved: Callable[[ov.Model], ModelSource], tmp_path: Path
) -> None:
    """A manifest that gives every stage one device is what was written before there were teams."""
    import json

    plan = alternating_plan(saved(chain([2, 8])))
    write_bundle(plan, tmp_path / "b")
    manifest = json.loads((tmp_path / "b" / MANIFEST).read_text())
    assert manifest["schema"] == "placekit/bundle/3"
    manifest["schema"] = "placekit/bundle/1"
    for stage in manifest["stages"]:
        (stage["device"],) = stage.pop("members")
    (tmp_path / "b" / MANIFEST).write_text(json.dumps(manifest))
    assert [stage.name for stage in read_bundle(tmp_path / "b")[0].stages] == [stage.name for stage in plan.stages]


def test_what_runs_one_sample_at_a_time_refuses_teams(plan: StagePlan) -> None:
    """Stages one after another and HETERO say why, and name the team."""
    with pytest.raises(UnsupportedProblemError, match=r"one sample at a time, so that team 'cpu0\+cpu2' of stage '0:"):
        SerialExecutor(compile_plan(plan))
    with pytest.raises(UnsupportedProblemError, match=r"HETERO runs one sample at a time, so that team"):
        hetero_devices(plan)


def test_a_model_with_state_refuses_teams(saved: Callable[[ov.Model], ModelSource]) -> None:
    """Members would each remember something else."""
    x = opset.parameter([1], ov.Type.f32, name="x")
    total = opset.add(opset.read_value(x, "v", name="read"), x, name="sum")
    source = saved(ov.Model([opset.result(total)], [opset.assign(total, "v", name="write")], [x], "state"))
    placed: Sequence[int] = [0] * source.graph.num_ops
    with pytest.raises(UnsupportedProblemError, match=r"team cpu0\+cpu1 keeps variable 'v' between inferences"):
        placed_plan(source, placed, 2, [0, 0])

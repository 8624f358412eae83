"""What is special about pipelines of threads: dynamic shapes, errors of OpenVINO, other device names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from pipelines import F32, SLOW_INPUT, alternating_plan, chain, chain_value, pinned_model_ended, slow_model

from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.machine import usable_cores
from placekit.io.models.model import ModelSource
from placekit.model.errors import ExecutionError, InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.stages.openvino_stages import compile_openvino_plan
from placekit.runtime.stages.plans import compile_plan, plan_stages

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_time_s(thread: int) -> float:
    """Return the processor time of a thread of this process."""
    fields = Path(f"/proc/self/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def test_threads_take_dynamic_shapes(saved: Callable[[ov.Model], ModelSource]) -> None:
    """A dynamic dimension may differ from sample to sample, and slots do not keep old shapes."""
    plan = alternating_plan(saved(chain(["?", 8])))
    with Pipeline(compile_plan(plan)) as pipe:
        arrays = [np.full((1 + i % 5, 8), i, dtype=np.float32) for i in range(40)]
        for array, outputs in zip(arrays, pipe.stream([[each] for each in arrays]), strict=True):
            np.testing.assert_array_equal(outputs["y"], chain_value(array))
        with pytest.raises(InvalidProblemError, match=r"input 'x' has .* shape \[2, 7\]"):
            pipe([np.ones((2, 7), dtype=np.float32)])


def test_a_failing_stage_is_named(saved: Callable[[ov.Model], ModelSource], monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that raises ends every open future and later submits with its name; earlier results stay."""
    good = np.ones((2, 8), dtype=np.float32)
    with Pipeline(compile_plan(alternating_plan(saved(chain([2, 8])))), queue_size=3) as pipe:
        earlier = pipe.submit([good])
        earlier.result(10)

        def fail(*_: object) -> None:
            raise RuntimeError("out of luck")

        monkeypatch.setattr(pipe._runners[2][0], "run", fail)
        future = pipe.submit([good])
        with pytest.raises(ExecutionError, match=r"stage '2:cpu0' failed on device 'cpu0': out of luck"):
            future.result(10)
        with pytest.raises(ExecutionError, match="stage '2:cpu0' failed"):
            pipe.submit([good])
        np.testing.assert_array_equal(earlier.result()["y"], chain_value(good))


def test_results_that_cannot_be_delivered_fail(
    saved: Callable[[ov.Model], ModelSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an error in the thread that delivers results leaves a future open."""
    with Pipeline(compile_plan(alternating_plan(saved(chain([2, 8]))))) as pipe:

        def fail(_: int) -> None:
            raise MemoryError("no room")

        monkeypatch.setattr(pipe, "_hand_out", fail)
        with pytest.raises(ExecutionError, match="results of 'chain' cannot be delivered: no room"):
            pipe.submit([np.ones((2, 8), dtype=np.float32)]).result(10)


def test_an_interrupted_submit_does_no_harm(
    saved: Callable[[ov.Model], ModelSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while inputs are copied takes the sample back; the next one is computed in its place."""
    good = np.ones((2, 8), dtype=np.float32)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Pipeline(compile_plan(alternating_plan(saved(chain([2, 8]))))) as pipe:
        for _ in range(5):
            with monkeypatch.context() as patch:
                patch.setattr(pipe, "_fill", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    pipe.submit([good])
            np.testing.assert_array_equal(pipe([good])["y"], chain_value(good))
        assert pipe.num_in_flight == 0


def test_other_devices_run_through_their_own_names(
    saved: Callable[[ov.Model], ModelSource], fake_core: Callable[..., Any]
) -> None:
    """A stage on a GPU is compiled for the GPU (here a fake one that is the CPU), and its tensors are handed over."""
    source = saved(chain([2, 8]))
    platform = Platform(
        (Device("CPU", "cpu", is_host=True, openvino="CPU", properties=F32), Device("GPU", "gpu", openvino="GPU"))
    )
    placed = np.array([int(name in ("op1", "op2")) for name in source.graph.op_names])
    plan = plan_stages(source, Placement(source.graph.op_names, platform.device_names, placed), platform)
    core = fake_core({"GPU.0": "a card"})
    good = np.ones((2, 8), dtype=np.float32)
    with Pipeline(compile_openvino_plan(plan, core)) as pipe:
        np.testing.assert_array_equal(pipe([good])["y"], chain_value(good))
    assert [device for device, _ in core.compiled] == ["CPU", "GPU", "CPU"]


def test_a_one_core_device_computes_in_its_thread(saved: Callable[[ov.Model], ModelSource]) -> None:
    """The device's thread is bound to its core and does the work itself; the caller's thread is not moved."""
    source = saved(slow_model())
    platform = core_groups(1, threads=[1])
    placed = np.zeros(source.graph.num_ops, dtype=np.int64)
    plan = plan_stages(source, Placement(source.graph.op_names, platform.device_names, placed), platform)
    home = os.sched_getaffinity(0)
    with Pipeline(compile_plan(plan)) as pipe:
        (worker,) = pipe._workers
        assert worker.native_id is not None
        pipe([SLOW_INPUT])
        start_s = cpu_time_s(worker.native_id), time.process_time()
        for _ in pipe.stream([[SLOW_INPUT]] * 40):
            pass
        end_s = cpu_time_s(worker.native_id), time.process_time()
        assert os.sched_getaffinity(worker.native_id) == set(platform.devices[0].cores)
    assert end_s[0] - start_s[0] > 0.7 * (end_s[1] - start_s[1])
    assert os.sched_getaffinity(0) == home


@pytest.mark.skipif(len(usable_cores()) < 2, reason="on one core nobody is moved")
def test_a_pinned_model_that_has_ended_moves_nobody(saved: Callable[[ov.Model], ModelSource]) -> None:
    """OpenVINO hands on what a pinned model ran on; a device computes on its own core all the same."""
    source = saved(slow_model())
    platform = core_groups(1, cores=[usable_cores()[-1].cpu])
    placed = np.zeros(source.graph.num_ops, dtype=np.int64)
    plan = plan_stages(source, Placement(source.graph.op_names, platform.device_names, placed), platform)
    with pinned_model_ended(), Pipeline(compile_plan(plan)) as pipe:
        (worker,) = pipe._workers
        assert worker.native_id is not None
        for _ in range(2):
            pipe([SLOW_INPUT])
            assert os.sched_getaffinity(worker.native_id) == set(platform.devices[0].cores)

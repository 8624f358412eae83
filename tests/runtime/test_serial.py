"""Stages one after another compute what the model computes, without copies between them, on their cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from pipelines import alternating_plan, chain, chain_value, random_plan, whole

from placekit.cost_models.openvino.inputs import random_inputs
from placekit.io.models.model import ModelSource
from placekit.model.errors import DeviceUnavailableError, ExecutionError, InvalidProblemError
from placekit.runtime.pipelines.serial import SerialExecutor
from placekit.runtime.stages.plans import compile_plan
from placekit.runtime.stages.stage_plan import StagePlan

Saved = Callable[[ov.Model], ModelSource]


@pytest.fixture
def chain_plan(saved: Saved) -> StagePlan:
    """Return four stages on two devices."""
    return alternating_plan(saved(chain([2, 8])))


@pytest.mark.parametrize("seed", range(4))
def test_random_placements_compute_what_the_model_computes(
    saved: Saved, make_convnet: Callable[[], ov.Model], seed: int
) -> None:
    """Both outputs, by name, equal those of the whole model."""
    plan = random_plan(saved(make_convnet()), seed, devices=3)
    inputs = random_inputs(plan.model, seed)
    with SerialExecutor(compile_plan(plan)) as run:
        outputs = run(inputs)
    assert tuple(outputs) == plan.output_names
    for found, expected in zip(outputs.values(), whole(plan.model, inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_inputs_go_by_name_or_in_order(saved: Saved, make_embedder: Callable[..., ov.Model]) -> None:
    """A mapping, a sequence of arrays and one of tensors give the same; bad ones are refused by name."""
    plan = random_plan(saved(make_embedder()), 0)
    ids, mask = np.arange(8).reshape(1, 8) % 5, np.ones((1, 8, 1), dtype=np.float32)
    with SerialExecutor(compile_plan(plan)) as run:
        (name,) = plan.output_names
        expected = run([ids, mask])[name]
        np.testing.assert_array_equal(run({"attention_mask": mask, "ids": ids})[name], expected)
        np.testing.assert_array_equal(run([ov.Tensor(ids), ov.Tensor(mask)])[name], expected)
        strided = np.ones((1, 8, 2), dtype=np.float32)[:, :, :1]
        np.testing.assert_array_equal(run([np.asfortranarray(ids), strided])[name], expected)
        with pytest.raises(InvalidProblemError, match=r"no input 'what'; inputs are ids, attention_mask"):
            run({"what": ids})
        with pytest.raises(InvalidProblemError, match="input 'attention_mask' is missing"):
            run({"ids": ids})
        with pytest.raises(InvalidProblemError, match="1 inputs given, it has 2: ids, attention_mask"):
            run([ids])
        with pytest.raises(InvalidProblemError, match=r"'ids' has type float64 and shape .* must have type i64"):
            run([ids.astype(np.float64), mask])
        with pytest.raises(InvalidProblemError, match=r"'attention_mask' has type float32 and shape \[8\]; it must"):
            run([ids, np.ones(8, dtype=np.float32)])
        with pytest.raises(InvalidProblemError, match=r"'ids' has type str\w* and shape \[\]; it must"):
            run({"ids": "five", "attention_mask": mask})


def test_the_next_stage_reads_where_the_last_one_wrote(chain_plan: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut tensor is at one place in memory: what one stage wrote to is what the next one reads."""
    read: list[list[int]] = []
    written: list[list[int]] = []

    class Spy:
        def __init__(self, stage: Any) -> None:
            self._stage = stage

        def run(self, inputs: Any, slots: Any) -> Any:
            made = self._stage.run(inputs, slots)
            read.append([each.data.ctypes.data for each in inputs])
            written.append([each.data.ctypes.data for each in made])
            return made

    with SerialExecutor(compile_plan(chain_plan)) as run:
        monkeypatch.setattr(run, "_stages", [Spy(each) for each in run._stages])
        run([np.zeros((2, 8), dtype=np.float32)])
    assert read[1:] == written[:-1]


def test_outputs_are_copies(chain_plan: StagePlan) -> None:
    """The next call does not change the arrays that an earlier one returned."""
    with SerialExecutor(compile_plan(chain_plan)) as run:
        first = run([np.zeros((2, 8), dtype=np.float32)])["y"]
        tensors = run.run_tensors([np.zeros((2, 8), dtype=np.float32)])
        run([np.ones((2, 8), dtype=np.float32)])
        np.testing.assert_array_equal(first, chain_value(np.zeros((2, 8), dtype=np.float32)))
        np.testing.assert_array_equal(tensors["op3", 0].data, first)
        assert set(tensors) == {("x", 0), *((f"op{index}", 0) for index in range(4))}


def test_the_trace_has_every_stage_in_order(chain_plan: StagePlan) -> None:
    """Stages do not overlap."""
    with SerialExecutor(compile_plan(chain_plan)) as run:
        _, times = run.run_traced([np.zeros((2, 8), dtype=np.float32)])
    assert len(times) == len(chain_plan.stages)
    moments = [moment for each in times for moment in each]
    assert moments == sorted(moments)


def test_dynamic_shapes_grow_and_shrink(saved: Saved) -> None:
    """Each call has its own number of samples."""
    plan = alternating_plan(saved(chain([-1, 8])))
    with SerialExecutor(compile_plan(plan)) as run:
        for size in (1, 5, 2):
            x = np.full((size, 8), float(size), dtype=np.float32)
            np.testing.assert_array_equal(run([x])["y"], chain_value(x))


def test_an_input_that_is_an_output_is_returned(saved: Saved) -> None:
    """Also by a model without any stage."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    plan = random_plan(saved(ov.Model([opset.result(x, name="same")], [x], "through")), 0)
    with SerialExecutor(compile_plan(plan)) as run:
        (value,) = run([np.array([1, 2], dtype=np.float32)]).values()
    np.testing.assert_array_equal(value, [1, 2])


def test_state_is_kept_between_calls(saved: Saved) -> None:
    """A model with state is one stage, which remembers."""
    x = opset.parameter([1], ov.Type.f32, name="x")
    total = opset.add(opset.read_value(x, "v", name="read"), x, name="sum")
    model = ov.Model([opset.result(total)], [opset.assign(total, "v", name="write")], [x], "state")
    with SerialExecutor(compile_plan(random_plan(saved(model), 0, devices=1))) as run:
        sums = [float(next(iter(run([np.ones(1, dtype=np.float32)]).values()))[0]) for _ in range(3)]
    assert sums == [2, 3, 4]  # read gives x itself before anything was assigned


def on_cores(plan: StagePlan, cores: tuple[int, ...]) -> StagePlan:
    """Return the plan with every device bound to `cores`."""
    stages = tuple(replace(each, members=(each.device.replace(cores=cores),)) for each in plan.stages)
    return replace(plan, stages=stages)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind threads")
def test_a_stage_runs_on_the_cores_of_its_device(chain_plan: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor's thread is bound while it runs a stage; the calling thread stays where it was."""
    home = os.sched_getaffinity(0)
    core = max(home)
    seen: list[set[int]] = []

    class Spy:
        def __init__(self, stage: Any) -> None:
            self._stage = stage

        def run(self, inputs: Any, slots: Any) -> Any:
            seen.append(os.sched_getaffinity(0))
            if len(seen) > 4:
                raise RuntimeError("out of luck")
            return self._stage.run(inputs, slots)

    with SerialExecutor(compile_plan(on_cores(chain_plan, (core,)))) as run:
        monkeypatch.setattr(run, "_stages", [Spy(each) for each in run._stages])
        run([np.zeros((2, 8), dtype=np.float32)])
        assert seen == [{core}] * 4
        with pytest.raises(ExecutionError, match="stage '0:cpu0' failed on device 'cpu0': out of luck"):
            run([np.zeros((2, 8), dtype=np.float32)])
    assert os.sched_getaffinity(0) == home


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind threads")
def test_cores_that_are_not_there_are_refused(chain_plan: StagePlan) -> None:
    """Before anything runs."""
    with pytest.raises(DeviceUnavailableError, match="device 'cpu0' needs cores 4095"):
        SerialExecutor(compile_plan(on_cores(chain_plan, (4095,))))


def test_a_closed_executor_says_so(chain_plan: StagePlan) -> None:
    """Closing twice is fine, running is not."""
    run = SerialExecutor(compile_plan(chain_plan))
    run.close()
    run.close()
    with pytest.raises(ExecutionError, match="the executor of 'chain' is closed"):
        run([np.zeros((2, 8), dtype=np.float32)])

"""Pipelines: same results as the whole model, bounded queues, clean ends."""

from __future__ import annotations

from collections.abc import Callable
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
    make_slow_plan,
    num_own_threads,
    random_plan,
    slow_model,
    start_threads,
    wait_until,
    whole,
)

from placekit.cost_models.openvino.inputs import random_inputs
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.errors import DeviceUnavailableError, ExecutionError, InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan
from placekit.zoo import build


@pytest.fixture
def chain_plan(saved: Callable[[ov.Model], ModelSource]) -> StagePlan:
    """Return four stages on two devices."""
    return alternating_plan(saved(chain([2, 8])))


@pytest.fixture
def slow_plan(saved: Callable[[ov.Model], ModelSource]) -> StagePlan:
    """Return two stages of which the second works for some milliseconds."""
    return make_slow_plan(saved(slow_model()))


@pytest.mark.parametrize("make", ["make_convnet", "make_embedder"])
def test_random_placements_give_the_models_outputs(
    make: str, saved: Callable[[ov.Model], ModelSource], request: pytest.FixtureRequest
) -> None:
    """Every sample of a random placement on three devices has the outputs of the whole model, in its order."""
    source = saved(request.getfixturevalue(make)())
    plan = random_plan(source, seed=5, devices=3)
    samples = [[tensor.data.copy() for tensor in random_inputs(plan.model, seed)] for seed in range(6)]
    with start_threads(plan) as pipe:
        results = list(pipe.stream(samples))
    for inputs, outputs in zip(samples, results, strict=True):
        for output, expected in zip(outputs.values(), whole(plan.model, inputs), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", ["bert_base", "mobilenet_v2"])
def test_zoo_models_run_as_pipelines(name: str, tmp_path: Path) -> None:
    """Real architectures with every op placed at random, dozens of stages, compute the same."""
    small: dict[str, dict[str, Any]] = {
        "mobilenet_v2": {"width_multiplier": 0.25, "image_size": 32, "classes": 10},
        "bert_base": {"layers": 1, "width": 16, "heads": 2, "sequence": 8, "vocabulary": 50},
    }
    try:
        build(name, tmp_path / "m.xml", **small[name])
    except ImportError:
        pytest.skip("the zoo extra is not installed")
    plan = random_plan(read_model(tmp_path / "m.xml"), seed=1)
    assert len(plan.stages) > 10
    samples = [[tensor.data.copy() for tensor in random_inputs(plan.model, seed)] for seed in range(3)]
    expected = [whole(plan.model, inputs) for inputs in samples]
    with start_threads(plan) as pipe:
        for outputs, values in zip(pipe.stream(samples), expected, strict=True):
            for output, value in zip(outputs.values(), values, strict=True):
                np.testing.assert_allclose(output, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("queue_size", [1, 3])
def test_every_future_gets_its_own_sample(queue_size: int, chain_plan: StagePlan) -> None:
    """Hundreds of samples in flight are not mixed up, whatever the queue size, though slots are used again."""
    with start_threads(chain_plan, queue_size=queue_size) as pipe:
        futures = [pipe.submit([np.full((2, 8), i, dtype=np.float32)]) for i in range(300)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(10)["y"], chain_value(np.full((2, 8), i, dtype=np.float32)))


def test_inputs_and_outputs_belong_to_the_caller(chain_plan: StagePlan) -> None:
    """An array that is changed after submit, and a result that later samples follow, keep their values."""
    with start_threads(chain_plan) as pipe:
        array = np.zeros((2, 8), dtype=np.float32)
        future = pipe.submit({"x": array})
        array[:] = 100
        first = future.result(10)["y"]
        for _ in range(10):
            pipe([array])
        np.testing.assert_array_equal(first, chain_value(np.zeros((2, 8), dtype=np.float32)))
        as_tensor = pipe([ov.Tensor(array)])["y"]
        np.testing.assert_array_equal(as_tensor, chain_value(array))


def test_submit_waits_when_the_queues_are_full(slow_plan: StagePlan) -> None:
    """However fast samples come, no more are in flight than the queues and the stages hold."""
    x = np.ones((256, 256), dtype=np.float32)
    with start_threads(slow_plan, queue_size=1) as pipe:
        most = 0
        futures: list[Future[Any]] = []
        for _ in range(40):
            futures.append(pipe.submit([x]))
            most = max(most, pipe.num_in_flight)
        # one slot after the source and after each of two stages
        assert most <= 3
        assert all(future.result(20) is not None for future in futures)
        assert pipe.num_in_flight == 0


def test_close_finishes_what_was_submitted(slow_plan: StagePlan) -> None:
    """Close waits for every result, may be called again, leaves no thread, and later submits say that it is closed."""
    before = num_own_threads()
    pipe = start_threads(slow_plan)
    futures = [pipe.submit([np.ones((256, 256), dtype=np.float32)]) for _ in range(4)]
    pipe.close()
    pipe.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert num_own_threads() == before
    with pytest.raises(ExecutionError, match="is closed"):
        pipe.submit([np.ones((256, 256), dtype=np.float32)])


def test_cancelling_ends_at_once_and_every_future_with_it(slow_plan: StagePlan) -> None:
    """After ``close(cancel=True)``, or an exception in the with block, no future is left open."""
    futures: list[Future[Any]] = []

    def leave_early() -> None:
        with start_threads(slow_plan, queue_size=4) as pipe:
            futures.extend(pipe.submit([np.ones((256, 256), dtype=np.float32)]) for _ in range(6))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        leave_early()
    assert all(future.done() for future in futures)
    lost = [future.exception() for future in futures if future.exception() is not None]
    assert lost
    assert "was closed before this sample was done" in str(lost[0])


def test_wrong_inputs_are_named_and_do_no_harm(chain_plan: StagePlan) -> None:
    """A wrong type, shape, name or number is refused before it is queued, and the pipeline goes on."""
    good = np.ones((2, 8), dtype=np.float32)
    with start_threads(chain_plan) as pipe:
        with pytest.raises(InvalidProblemError, match=r"input 'x' has type float64 .* must have type f32"):
            pipe([good.astype(np.float64)])
        with pytest.raises(InvalidProblemError, match=r"shape \[3, 8\]"):
            pipe([np.ones((3, 8), dtype=np.float32)])
        with pytest.raises(InvalidProblemError, match="no input 'z'; inputs are x"):
            pipe({"z": good})
        with pytest.raises(InvalidProblemError, match="input 'x' is missing"):
            pipe({})
        with pytest.raises(InvalidProblemError, match="2 inputs given, it has 1"):
            pipe([good, good])
        np.testing.assert_array_equal(pipe([good])["y"], chain_value(good))


def test_wrong_parameters_and_missing_devices_are_named(chain_plan: StagePlan) -> None:
    """Queue sizes below 1, negative records and devices that are absent are errors that say so."""
    with pytest.raises(InvalidProblemError, match="queue_size is 0; it must be >= 1"):
        start_threads(chain_plan, queue_size=0)
    with pytest.raises(InvalidProblemError, match="record is -1"):
        start_threads(chain_plan, record=-1)


def test_cores_that_do_not_exist_are_refused(saved: Callable[[ov.Model], ModelSource]) -> None:
    """A device on a core that this process may not use is named, and nothing is left running."""
    source = saved(chain([2, 8]))
    platform = Platform((Device("far", "cpu", is_host=True, openvino="CPU", cores=(4095,), properties=F32),))
    placed = np.zeros(source.graph.num_ops, dtype=np.int64)
    plan = plan_stages(source, Placement(source.graph.op_names, ("far",), placed), platform)
    before = num_own_threads()
    with pytest.raises(DeviceUnavailableError, match="device 'far' needs cores 4095"):
        start_threads(plan)
    assert num_own_threads() == before


def test_devices_without_an_openvino_name_are_refused(chain_plan: StagePlan) -> None:
    """A device that OpenVINO does not know cannot run a stage, whatever it is called."""
    unknown = Device("CPU", "cpu", is_host=True)
    stages = tuple(replace(stage, members=(unknown,)) for stage in chain_plan.stages)
    with pytest.raises(DeviceUnavailableError, match="device 'CPU' names no OpenVINO device"):
        start_threads(replace(chain_plan, stages=stages))


def test_a_callback_must_not_wait_for_its_own_thread(chain_plan: StagePlan) -> None:
    """Submitting or closing in a future's callback raises instead of waiting forever."""
    seen: list[BaseException] = []
    good = np.ones((2, 8), dtype=np.float32)
    with start_threads(chain_plan) as pipe:

        def call_back(_: Future[Any]) -> None:
            for action in (lambda: pipe.submit([good]), pipe.close):
                try:
                    action()
                except ExecutionError as error:
                    seen.append(error)

        for _ in range(20):  # until one is not done when the callback is added
            pipe.submit([good]).add_done_callback(call_back)
        assert wait_until(lambda: len(seen) >= 2)
    assert "in a callback of a future" in str(seen[0])


def test_stage_times_are_recorded_in_order(chain_plan: StagePlan) -> None:
    """Start and end of every stage: an end is not before its start, a stage starts after the one before has ended."""
    with start_threads(chain_plan, record=7) as pipe:
        for _ in range(20):
            pipe([np.ones((2, 8), dtype=np.float32)])
        times_s = pipe.stage_times_s
    assert times_s.shape == (7, 4, 2)
    assert (times_s[..., 1] >= times_s[..., 0]).all()
    assert (times_s[:, 1:, 0] >= times_s[:, :-1, 1]).all()
    assert (np.diff(times_s[:, 0, 0]) > 0).all()


def test_inputs_that_are_outputs_pass_through(saved: Callable[[ov.Model], ModelSource]) -> None:
    """An input that is an output too, beside a stage, comes back as it was."""
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    op0 = opset.add(x, opset.constant(1.0, ov.Type.f32), name="op0")
    source = saved(ov.Model([opset.result(x, name="same"), opset.result(op0, name="more")], [x], "through"))
    with start_threads(alternating_plan(source)) as pipe:
        for i in range(20):
            value = np.full((2, 8), i, dtype=np.float32)
            same, more = pipe([value]).values()
            np.testing.assert_array_equal(same, value)
            np.testing.assert_array_equal(more, value + 1)


def test_a_model_without_ops_is_a_pipeline_too(saved: Callable[[ov.Model], ModelSource]) -> None:
    """A model whose output is its input needs no stage, and no device."""
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    source = saved(ov.Model([opset.result(x, name="same")], [x], "nothing"))
    with start_threads(alternating_plan(source)) as pipe:
        for i in range(20):
            value = np.full((2, 8), i, dtype=np.float32)
            (same,) = pipe([value]).values()
            np.testing.assert_array_equal(same, value)


def test_a_stage_that_fails_is_named(saved: Callable[[ov.Model], ModelSource]) -> None:
    """What OpenVINO refuses when a stage runs ends the sample, and later submits, with the stage's name."""
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    total = opset.reduce_sum(opset.relu(x, name="op0"), opset.constant(1), False, name="op1")
    plan = alternating_plan(saved(ov.Model([opset.result(opset.exp(total, name="op2"))], [x], "sums")))
    # a plan that lies: the last stage is handed the tensor before the sum, of another shape
    stages = (*plan.stages[:2], replace(plan.stages[2], inputs=plan.stages[1].inputs))
    ones = np.ones((2, 8), dtype=np.float32)
    with start_threads(replace(plan, stages=stages)) as pipe:
        for _ in range(2):
            with pytest.raises(ExecutionError, match="stage '2:cpu0' failed on device 'cpu0'"):
                pipe([ones])


def test_a_stage_that_cannot_be_compiled_is_named(chain_plan: StagePlan) -> None:
    """A property that the device does not know fails at construction, with the stage's name."""
    wrong = chain_plan.stages[2].device.replace(properties={"NO_SUCH_PROPERTY": "1"})
    stages = tuple(
        replace(stage, members=(wrong,)) if stage.device.name == wrong.name else stage for stage in chain_plan.stages
    )
    before = num_own_threads()
    with pytest.raises(ExecutionError, match=r"stage '\d:cpu\d'"):
        start_threads(replace(chain_plan, stages=stages))
    assert num_own_threads() == before


@pytest.mark.slow
def test_thousands_of_samples_through_many_stages(chain_plan: StagePlan) -> None:
    """Five thousand samples come back in order and right."""
    with start_threads(chain_plan) as pipe:
        arrays = ([np.full((2, 8), i, dtype=np.float32)] for i in range(5000))
        for i, outputs in enumerate(pipe.stream(arrays)):
            assert (outputs["y"] == chain_value(np.float32(i) * np.ones((2, 8), dtype=np.float32))).all()

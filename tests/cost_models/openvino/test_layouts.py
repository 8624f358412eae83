"""Tensors between stages on CPUs: channels last where the CPU keeps them so, and then nothing is converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.layouts import images_for_convolutions
from placekit.io.models.model import ModelSource
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.output_check import check_placement
from placekit.runtime.pipelines.serial import SerialExecutor
from placekit.runtime.stages.plans import compile_plan, plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

Saved = Callable[[ov.Model], ModelSource]
F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


def convolutions(*, channels: int = 32, size: int = 16, dims: int = 2, residual: bool = False) -> ov.Model:
    """Three convolutions in a chain, of images or of volumes; the last one is flattened.

    With `residual`, the third one's input is added to its output, and a fourth follows.
    """
    rng = np.random.default_rng(1)
    node = image = opset.parameter([1, channels, *[size] * dims], ov.Type.f32, name="image")
    ones, zeros = [1] * dims, [0] * dims
    for index in range(4 if residual else 3):
        weight = opset.constant(rng.standard_normal((channels, channels, *ones)).astype(np.float32) * 0.2)
        before, node = node, opset.convolution(node, weight, ones, zeros, zeros, ones)
        node = opset.relu(opset.add(node, before) if residual and index in (1, 2) else node, name=f"relu{index}")
    flat = opset.reshape(node, opset.constant(np.array([1, -1])), False, name="flat")
    return ov.Model([opset.result(opset.tanh(flat, name="tanh"))], [image], "convolutions")


def cut(source: ModelSource, names: set[str], *, target: str = "CPU") -> StagePlan:
    """Cut off what follows the ops `names`, for a device that OpenVINO calls `target`."""
    ops, graph = set(), source.graph
    for op in graph.order.tolist():
        before = graph.senders[graph.receivers == op].tolist()
        if any(each in ops or graph.op_names[each] in names for each in before):
            ops.add(op)
    devices = (
        Device("a", "cpu", is_host=True, openvino="CPU", properties=F32),
        Device("b", "cpu" if target == "CPU" else "other", is_host=True, openvino=target, properties=F32),
    )
    platform = Platform(devices)
    chosen = np.array([int(op in ops) for op in range(graph.num_ops)])
    return plan_stages(source, Placement(graph.op_names, platform.device_names, chosen), platform)


def shapes(plan: StagePlan) -> list[tuple[int, ...]]:
    """Return the shapes of what the first stage gives."""
    return [tuple(port.get_shape()) for port in plan.stages[0].model.outputs]


def test_tensors_between_convolutions_can_be_turned_and_no_others() -> None:
    """Not the input, not what is flattened, and no tensor of four axes that no convolution made or reads."""
    found = {name for name, _ in images_for_convolutions(convolutions())}
    assert {name for name in found if name in {"image", "relu0", "relu1", "relu2", "flat", "tanh"}} == {
        "relu0",
        "relu1",
    }
    heads = opset.parameter([1, 12, 16, 64], ov.Type.f32, name="heads")
    attention = ov.Model([opset.result(opset.relu(opset.softmax(heads, 3)))], [heads], "attention")
    assert images_for_convolutions(attention) == set()


@pytest.mark.parametrize(("dims", "size"), [(2, 16), (3, 6)])
def test_cut_image_is_handed_over_channels_last_and_computes_the_same(saved: Saved, dims: int, size: int) -> None:
    """The tensor between the stages is turned, what the user sees is not, and every number is right."""
    plan = cut(saved(convolutions(size=size, dims=dims)), {"relu1"})
    shape = (1, size**dims, 32)
    assert shapes(plan) == [shape]
    assert tuple(plan.stages[1].model.inputs[0].get_shape()) == shape
    check = check_placement(compile_plan(plan))
    check.require_equal()
    assert check.max_relative_error < 1e-5


def test_wrong_numbers_in_a_turned_tensor_are_found(saved: Saved) -> None:
    """Turning back for the comparison does not hide that a stage computes something else."""
    plan = cut(saved(convolutions()), {"relu1"})
    stage = plan.stages[0].model
    result = stage.get_results()[0]
    doubled = opset.multiply(result.input(0).get_source_output(), opset.constant(np.float32(2)))
    doubled.set_friendly_name("relu1:0:channels_last")
    result.input(0).replace_source_output(doubled.output(0))
    mismatch = check_placement(compile_plan(plan)).first_mismatch
    assert mismatch is not None
    assert mismatch.name == "relu1:0"


def test_tensor_of_no_image_is_handed_over_as_it_is(saved: Saved) -> None:
    """Behind the flattening there are no channels."""
    plan = cut(saved(convolutions(size=4)), {"flat"})
    assert shapes(plan) == [(1, 512)]


def test_output_of_the_model_keeps_its_axes(saved: Saved) -> None:
    """A tensor that is a cut and an output is the user's."""
    model = convolutions()
    relu = next(op for op in model.get_ops() if op.get_friendly_name() == "relu1")
    model.add_results([opset.result(relu.output(0))])
    plan = cut(saved(model), {"relu1"})
    assert shapes(plan) == [(1, 32, 16, 16)]
    check_placement(compile_plan(plan)).require_equal()


def test_other_devices_get_tensors_as_the_model_has_them(saved: Saved) -> None:
    """How a GPU keeps its images is not known."""
    assert shapes(cut(saved(convolutions()), {"relu1"}, target="GPU")) == [(1, 32, 16, 16)]


def test_image_that_a_pooling_reads_keeps_its_axes(saved: Saved) -> None:
    """A pooling would have to turn it back."""
    model = convolutions()
    relu = next(op for op in model.get_ops() if op.get_friendly_name() == "relu1")
    pooled = opset.max_pool(relu, [1, 1], [1, 1], [0, 0], [0, 0], [2, 2])
    model.add_results([opset.result(opset.tanh(pooled.output(0), name="also"))])
    assert shapes(cut(saved(model), {"relu1"})) == [(1, 32, 16, 16)]


def test_dynamic_shapes_keep_their_axes(saved: Saved) -> None:
    """Such a tensor is handed over as it is, and the numbers are right for every size."""
    model = convolutions()
    model.reshape([-1, 32, 16, 16])
    plan = cut(saved(model), {"relu1"})
    with SerialExecutor(compile_plan(plan)) as run:
        one, two = (run([np.ones((batch, 32, 16, 16), dtype=np.float32)]) for batch in (1, 2))
    name = plan.output_names[0]
    np.testing.assert_allclose(one[name].ravel(), two[name].ravel()[: one[name].size], atol=1e-5)


@pytest.mark.parametrize("residual", [False, True])
def test_nothing_is_converted_between_stages(saved: Saved, residual: bool) -> None:
    """The stages' profiling counters show no layout conversion: the reason for all this."""
    plan = cut(saved(convolutions(size=32, residual=residual)), {"relu1"})
    whole = shared_core().compile_model(plan.model, "CPU", F32).get_runtime_model()
    if not any(str(op.get_rt_info()["outputLayouts"].value) == "acdb" for op in whole.get_ops()):
        pytest.skip("this processor keeps images in another order")
    values: dict[Any, ov.Tensor] = dict(zip(plan.input_keys, random_inputs(plan.model, 0), strict=True))
    core, kinds = shared_core(), []
    for stage in plan.stages:
        compiled = core.compile_model(stage.model, "CPU", {**F32, "PERF_COUNT": True})
        request = compiled.create_infer_request()
        for index, key in enumerate(stage.inputs):
            request.set_input_tensor(index, values[key])
        request.infer()
        values |= {key: request.get_output_tensor(index) for index, key in enumerate(stage.outputs)}
        done = [each for each in request.profiling_info if each.status == ov.ProfilingInfo.Status.EXECUTED]
        kinds.append([each.node_type for each in done if each.node_type in {"Reorder", "Transpose"}])
    # at the ends of the model, where the user's order counts, one each at most
    assert all(len(each) <= 1 for each in kinds), kinds


def test_bug_shapes_that_follow_from_another_stage_stay_known(saved: Saved) -> None:
    """A slice whose length another stage computes has the shape that it has in the whole model."""
    x = opset.parameter([1, 8], ov.Type.f32, name="x")
    table = opset.parameter([1, 512], ov.Type.f32, name="table")
    length = opset.gather(opset.shape_of(x), opset.constant([1]), opset.constant(0), name="length")
    zero, one = opset.constant([0]), opset.constant([1])
    part = opset.slice(opset.tanh(table, name="all"), zero, length, one, one, name="part")
    out = opset.exp(opset.add(part, x, name="sum"), name="out")
    source = saved(ov.Model([opset.result(out)], [x, table], "sliced"))
    names = source.graph.op_names
    platform = Platform(tuple(Device(name, "cpu", is_host=True, openvino="CPU", properties=F32) for name in "ab"))
    chosen = np.array([int(name in {"part", "all"}) for name in names])
    plan = plan_stages(source, Placement(names, platform.device_names, chosen), platform)
    found = {
        key[0]: port for stage in plan.stages for key, port in zip(stage.outputs, stage.model.outputs, strict=True)
    }
    assert list(found["part"].get_partial_shape()) == [1, 8]

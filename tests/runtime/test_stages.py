"""A placement as stages: any placement can be cut, and the parts say how they connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openvino import opset13 as opset
from strategies import examples

from placekit.io.models.model import ModelSource
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

Saved = Callable[[ov.Model], ModelSource]
PLATFORM = Platform(tuple(Device(name, "cpu", is_host=True, openvino="CPU") for name in "ABCD"))


def placed(source: ModelSource, devices: Mapping[str, str], default: str = "A") -> StagePlan:
    """Plan with the device of some ops given by name."""
    names = source.graph.op_names
    assert set(devices) <= set(names)
    chosen = [PLATFORM.index(devices.get(name, default)) for name in names]
    return plan_stages(source, Placement(names, PLATFORM.device_names, np.array(chosen)), PLATFORM)


def assert_connected(plan: StagePlan) -> None:
    """Assert that every stage takes only what is there, and that cuts and outputs say what goes where."""
    written = dict.fromkeys(plan.input_keys, -1)
    readers: dict[Any, list[int]] = {}
    for index, stage in enumerate(plan.stages):
        assert stage.name == f"{index}:{stage.device.name}"
        assert len(stage.model.inputs) == len(stage.inputs) == len(set(stage.inputs))
        assert len(stage.model.outputs) == len(stage.outputs) == len(set(stage.outputs))
        for key in stage.inputs:
            assert written[key] < index
            readers.setdefault(key, []).append(index)
        assert not set(stage.outputs) & set(written)
        written |= dict.fromkeys(stage.outputs, index)
    assert set(plan.output_keys) <= set(written)
    expected = {key: (written[key], tuple(at)) for key, at in readers.items() if written[key] >= 0}
    assert {cut.key: (cut.producer, cut.consumers) for cut in plan.cuts} == expected
    assert len(plan.cuts) == len(expected)
    # nothing is handed out that nobody reads
    assert set(written) - set(plan.input_keys) == set(expected) | (set(plan.output_keys) - set(plan.input_keys))


@examples(30)
@given(data=st.data())
def test_any_placement_is_cut_into_stages_in_an_order_in_which_they_run(
    saved: Saved, make_convnet: Callable[[], ov.Model], data: st.DataObject
) -> None:
    """Every op is in one stage, on its device, and stages take only tensors of earlier ones."""
    source = saved(make_convnet())
    devices = {name: data.draw(st.sampled_from("ABCD"), label=name) for name in source.graph.op_names}
    plan = placed(source, devices)
    assert_connected(plan)
    works = [
        name
        for name, kind in zip(source.graph.op_names, source.graph.op_types, strict=True)
        if kind not in {"Parameter", "Result"}
    ]
    assert sorted(name for stage in plan.stages for name in stage.op_names) == sorted(works)
    assert all(devices[name] == stage.device.name for stage in plan.stages for name in stage.op_names)


def test_several_outputs_of_one_op_are_cut_by_port(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """Split hands out its port 0 to another stage and its port 1 to the model."""
    plan = placed(saved(make_convnet()), {"tanh": "B"})
    assert [stage.outputs for stage in plan.stages] == [(("split", 1), ("split", 0)), (("tanh", 0),)]
    (cut,) = plan.cuts
    assert (cut.key, cut.producer, cut.consumers, cut.num_bytes) == (("split", 0), 0, (1,), 4 * 4 * 32 * 32)
    assert plan.cut_bytes == 4 * 4 * 32 * 32
    assert plan.output_keys == (("split", 1), ("tanh", 0))


def test_a_tensor_goes_once_to_each_stage_that_reads_it(saved: Saved) -> None:
    """One cut, two consumers, and two inputs of one op from one tensor are one input of the stage."""
    x = opset.parameter([4], ov.Type.f32, name="x")
    relu = opset.relu(x, name="relu")
    square = opset.multiply(relu, relu, name="square")
    total = opset.add(square, opset.exp(relu, name="exp"), name="sum")
    plan = placed(saved(ov.Model([opset.result(total)], [x], "shared")), {"square": "B", "exp": "C", "sum": "D"})
    assert_connected(plan)
    assert [cut.consumers for cut in plan.cuts if cut.key == ("relu", 0)] == [(1, 2)]
    assert plan.stages[1].inputs == (("relu", 0),)


def test_an_input_can_be_an_output(saved: Saved) -> None:
    """It needs no stage; a model of nothing else has none at all."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    plan = placed(saved(ov.Model([opset.result(x), opset.result(opset.relu(x, name="relu"))], [x], "through")), {})
    assert plan.output_keys == (("x", 0), ("relu", 0))
    assert [stage.inputs for stage in plan.stages] == [(("x", 0),)]
    only = opset.parameter([2], ov.Type.f32, name="only")
    empty = placed(saved(ov.Model([opset.result(only)], [only], "empty")), {})
    assert (len(empty.stages), len(empty.cuts), len(empty.devices)) == (0, 0, 0)
    assert empty.output_keys == (("only", 0),)


def test_a_result_that_shares_its_tensor_shares_the_key(saved: Saved) -> None:
    """The tensor is handed out once; the outputs keep names of their own."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    relu = opset.relu(x, name="relu")
    relu.output(0).set_names({"y"})
    plan = placed(saved(ov.Model([opset.result(relu, name="r1"), opset.result(relu, name="r2")], [x], "twice")), {})
    assert plan.output_keys == (("relu", 0), ("relu", 0))
    assert plan.stages[0].outputs == (("relu", 0),)
    assert plan.output_names == ("r1", "r2")


def test_a_tensor_can_be_cut_and_an_output(saved: Saved) -> None:
    """It is one output of its stage."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    relu = opset.relu(x, name="relu")
    model = ov.Model([opset.result(relu), opset.result(opset.exp(relu, name="exp"))], [x], "both")
    plan = placed(saved(model), {"exp": "B"})
    assert_connected(plan)
    assert plan.stages[0].outputs == (("relu", 0),)


def test_dynamic_shapes_leave_the_size_of_a_cut_unknown(saved: Saved) -> None:
    """A cut tensor with an open dimension has no number of bytes, and does not count."""
    x = opset.parameter([-1, 4], ov.Type.f32, name="x")
    plan = placed(saved(ov.Model([opset.exp(opset.relu(x, name="relu"), name="exp")], [x], "open")), {"exp": "B"})
    assert [cut.num_bytes for cut in plan.cuts] == [None]
    assert plan.cut_bytes == 0
    assert plan.stages[1].model.inputs[0].get_partial_shape().is_dynamic


def test_constants_go_with_each_of_their_consumers(saved: Saved) -> None:
    """A weight of two stages is in both, and no tensor between them; the whole model is left as it is."""
    x = opset.parameter([4], ov.Type.f32, name="x")
    weight = opset.constant(np.arange(4, dtype=np.float32), name="weight")
    first = opset.add(x, weight, name="first")
    model = ov.Model([opset.result(opset.multiply(first, weight, name="second"))], [x], "weights")
    plan = placed(saved(model), {"second": "B"})
    assert [cut.key for cut in plan.cuts] == [("first", 0)]
    for stage in plan.stages:
        kinds = [op.get_type_name() for op in stage.model.get_ops()]
        assert kinds.count("Constant") == 1
        stage.model.get_parameters()[0].set_partial_shape(ov.PartialShape([1]))
    assert [port.get_partial_shape() for port in plan.model.inputs] == [ov.PartialShape([4])]


def test_a_constant_output_is_handed_out_by_the_first_stage(saved: Saved) -> None:
    """An output that depends on no input needs a stage that gives it; without any op it is refused."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    one = opset.constant(np.ones(2, dtype=np.float32), name="one")
    relu = opset.relu(x, name="relu")
    plan = placed(saved(ov.Model([opset.result(one), opset.result(relu)], [x], "fixed")), {})
    assert plan.output_keys == (("one", 0), ("relu", 0))
    assert set(plan.stages[0].outputs) == {("one", 0), ("relu", 0)}
    y = opset.parameter([2], ov.Type.f32, name="y")
    alone = saved(ov.Model([opset.result(y), opset.result(opset.constant(np.float32(1), name="c"))], [y], "alone"))
    with pytest.raises(UnsupportedProblemError, match="output 'c' is a constant, and there is no op"):
        placed(alone, {})


def stateful() -> ov.Model:
    """Return a model that sums over inferences."""
    x = opset.parameter([1], ov.Type.f32, name="x")
    total = opset.add(opset.read_value(x, "v", name="read"), x, name="sum")
    relu = opset.relu(total, name="relu")
    write = opset.assign(total, "v")
    write.set_friendly_name("write")  # the argument `name` is forgotten
    return ov.Model([opset.result(relu)], [write], [x], "state")


def test_state_stays_with_its_ops(saved: Saved) -> None:
    """They are one stage, what reads it can be another; where the ends of the model are placed plays no role."""
    source = saved(stateful())
    plan = placed(source, {name: "B" for name in source.graph.op_names if name not in {"x"}})
    assert [(stage.device.name, stage.inputs) for stage in plan.stages] == [("B", (("x", 0),))]
    assert plan.output_keys == plan.stages[0].outputs == (("relu", 0),)
    spread = placed(source, {"relu": "B"})
    assert [(stage.device.name, len(stage.model.get_variables())) for stage in spread.stages] == [("A", 1), ("B", 0)]
    with pytest.raises(UnsupportedProblemError, match="variable 'v': ops 'read' and 'write' keep its state"):
        placed(source, {"write": "B"})


def test_the_placement_of_another_model_is_refused(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """The message names an op that only one of them has, or says that the order differs."""
    source = saved(make_convnet())
    names = source.graph.op_names
    with pytest.raises(InvalidProblemError, match=r"not one of model 'convnet': op 'zzz' is in one of them only"):
        plan_stages(source, Placement((*names, "zzz"), ("A",), np.zeros(len(names) + 1, dtype=int)), PLATFORM)
    with pytest.raises(InvalidProblemError, match="the order of the ops differs"):
        plan_stages(source, Placement(names[::-1], ("A",), np.zeros(len(names), dtype=int)), PLATFORM)


def test_a_device_of_another_platform_is_refused(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """The message lists the devices that there are."""
    source = saved(make_convnet())
    names = source.graph.op_names
    with pytest.raises(UnknownNameError, match="no device 'Z' on this platform; devices are A, B, C, D"):
        plan_stages(source, Placement(names, ("Z",), np.zeros(len(names), dtype=int)), PLATFORM)


def test_a_file_that_has_changed_is_refused(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """Op names of the file on the disk must be those of the graph."""
    source = saved(make_convnet())
    x = opset.parameter([2], ov.Type.f32, name="x")
    ov.save_model(ov.Model([opset.result(opset.relu(x, name="relu"))], [x], "convnet"), source.path)
    with pytest.raises(InvalidFileError, match="the file has changed since it was read"):
        placed(source, {})


def test_devices_of_a_plan_are_those_that_run_a_stage(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """In order of first appearance, each once; the ends of the model do not count."""
    plan = placed(saved(make_convnet()), {"image": "D", "conv1": "B", "relu1": "B"})
    assert [device.name for device in plan.devices] == ["B", "A"]
    assert repr(plan) == "StagePlan('convnet': 2 stages on B, A, 1 cut tensors)"

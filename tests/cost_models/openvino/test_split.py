"""Splitting: the stages together compute what the model computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openvino import opset13 as opset

import placekit as pk
from placekit.cost_models.openvino import split
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.split import (
    SubModel,
    model_input_keys,
    model_output_keys,
    split_model,
)
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError

F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
CORE = shared_core()


def infer(model: ov.Model, inputs: Sequence[ov.Tensor]) -> list[np.ndarray[Any, Any]]:
    """Run a model once."""
    request = CORE.compile_model(model, "CPU", F32).create_infer_request()
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, tensor)
    request.infer()
    return [request.get_output_tensor(i).data.copy() for i in range(len(model.outputs))]


def run_stages(
    model: ov.Model, stages: Sequence[SubModel], inputs: Sequence[ov.Tensor], corrupted: int | None = None
) -> dict[Any, np.ndarray[Any, Any]]:
    """Run stage after stage; return every tensor by key."""
    values = {key: tensor.data.copy() for key, tensor in zip(model_input_keys(model), inputs, strict=True)}
    for stage in stages:
        outputs = infer(stage.model, [ov.Tensor(values[key]) for key in stage.inputs])
        for key, value in zip(stage.outputs, outputs, strict=True):
            values[key] = value + 1 if stage.label == corrupted else value
    return values


def placed_ops(model: ov.Model) -> list[str]:
    """Return the friendly names of the ops that compute."""
    skipped = {"Parameter", "Result", "Constant"}
    return [op.get_friendly_name() for op in model.get_ordered_ops() if op.get_type_name() not in skipped]


def exposed(model: ov.Model, keys: Sequence[tuple[str, int]]) -> ov.Model:
    """Return the model with exactly the tensors `keys` as outputs."""
    work = model.clone()
    nodes = {op.get_friendly_name(): op for op in work.get_ops()}
    return ov.Model([opset.result(nodes[name].output(port)) for name, port in keys], work.get_parameters(), "probe")


def run_order_stages(model: ov.Model, part_of_op: Mapping[str, Hashable]) -> dict[str, int]:
    """Cut parts into stages (level, part), where the level rises with every change of part along an edge."""
    computing, constant = split._computing_nodes(model, part_of_op)
    level: dict[str, int] = {}
    for node in computing:
        name = node.get_friendly_name()
        producers = [split._source_key(each)[0] for each in node.inputs()]
        level[name] = max(
            (level[p] + (part_of_op[p] != part_of_op[name]) for p in producers if p in level and p not in constant),
            default=0,
        )
    stages: dict[tuple[int, Hashable], int] = {}
    for name in sorted(level, key=level.__getitem__):  # stable: the topological order within a level
        stages.setdefault((level[name], part_of_op[name]), len(stages))
    return {name: stages[level[name], part_of_op[name]] for name in level}


def check(model: ov.Model, parts: Mapping[str, Any]) -> list[SubModel]:
    """Assert that the split model gives the outputs and every cut tensor of the whole one."""
    stages = split_model(model, run_order_stages(model, parts))
    inputs = random_inputs(model, seed=3)
    values = run_stages(model, stages, inputs)
    for key, expected in zip(model_output_keys(model), infer(model, inputs), strict=True):
        np.testing.assert_allclose(values[key], expected, rtol=1e-4, atol=1e-5)
    cut = [key for stage in stages for key in stage.outputs]
    for key, expected in zip(cut, infer(exposed(model, cut), inputs), strict=True):
        np.testing.assert_allclose(values[key], expected, rtol=1e-4, atol=1e-5)
    return stages


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_parts_compute_what_the_model_computes(
    make_convnet: Callable[[], ov.Model], data: st.DataObject
) -> None:
    """Any assignment of ops to three devices, contiguous or not, gives equal outputs and equal cut tensors."""
    model = make_convnet()
    parts = {name: data.draw(st.integers(0, 2), label=name) for name in placed_ops(model)}
    stages = check(model, parts)
    assert sum(len(stage.op_names) for stage in stages) == len(parts)


def test_every_op_alone_gives_one_stage_per_op(make_embedder: Callable[..., ov.Model]) -> None:
    """A part per op cuts everywhere; integer and float inputs both arrive."""
    model = make_embedder()
    names = placed_ops(model)
    assert len(check(model, {name: name for name in names})) == len(names)


def test_a_corrupted_stage_is_seen_in_the_outputs(make_convnet: Callable[[], ov.Model]) -> None:
    """The comparison is not vacuous: adding 1 to what the first stage hands out changes the outputs."""
    model = make_convnet()
    stages = split_model(model, {name: int(name not in {"conv1", "relu1"}) for name in placed_ops(model)})
    inputs = random_inputs(model)
    wrong = run_stages(model, stages, inputs, corrupted=0)
    for key, expected in zip(model_output_keys(model), infer(model, inputs), strict=True):
        assert np.abs(wrong[key] - expected).max() > 0.1


def test_several_outputs_of_one_op_keep_their_ports(make_convnet: Callable[[], ov.Model]) -> None:
    """Split's two outputs are two keys, and the outputs stay in the model's own order."""
    model = make_convnet()
    stages = check(model, {name: name in {"split", "tanh"} for name in placed_ops(model)})
    assert model_output_keys(model) == (("split", 1), ("tanh", 0))
    assert set(stages[-1].outputs) == {("split", 1), ("tanh", 0)}
    assert stages[-1].inputs == (("add", 0),)


def test_an_input_that_is_an_output_needs_no_stage() -> None:
    """A Parameter that goes straight to a Result is found under its own key."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    model = ov.Model([opset.result(x), opset.result(opset.relu(x, name="relu"))], [x], "pass")
    check(model, {"relu": 0})
    assert model_output_keys(model) == (("x", 0), ("relu", 0))
    only = ov.Model([opset.result(x)], [x], "only")
    assert split_model(only, {}) == []


def test_two_results_of_one_tensor_share_its_key() -> None:
    """A tensor that is an output twice is handed out once."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    relu = opset.relu(x, name="relu")
    stages = check(ov.Model([opset.result(relu), opset.result(relu)], [x], "twice"), {"relu": 0})
    assert stages[0].outputs == (("relu", 0),)


def test_constants_are_copied_with_what_is_computed_from_them() -> None:
    """A decompression Convert without a stage goes into both stages that use it; a constant output is handed out."""
    x = opset.parameter([4], ov.Type.f32, name="x")
    half = opset.convert(opset.constant(np.arange(4, dtype=np.float16)), "f32", name="decompress")
    first = opset.add(x, half, name="first")
    second = opset.multiply(first, half, name="second")
    model = ov.Model([opset.result(second), opset.result(half)], [x], "shared")
    stages = check(model, {"first": 0, "second": 1})
    assert [stage.inputs for stage in stages] == [(("x", 0),), (("first", 0),)]
    stages[0].model.get_parameters()[0].set_partial_shape(ov.PartialShape([1]))  # the model that was split is untouched
    assert model.get_parameters()[0].get_partial_shape() == ov.PartialShape([4])


def test_dynamic_shapes_can_be_split() -> None:
    """A cut tensor keeps its unknown dimension."""
    x = opset.parameter([-1, 4], ov.Type.f32, name="x")
    relu = opset.relu(x, name="relu")
    model = ov.Model([opset.exp(relu, name="exp")], [x], "dynamic")
    stages = split_model(model, {"relu": 0, "exp": 1})
    out = run_stages(model, stages, [ov.Tensor(np.ones((3, 4), dtype=np.float32))])
    np.testing.assert_allclose(out["exp", 0], np.full((3, 4), math.e), rtol=1e-5)


def test_stages_in_a_circle_are_refused(make_convnet: Callable[[], ov.Model]) -> None:
    """conv1 and add in one stage, relu1 between them in another: neither can run first."""
    model = make_convnet()
    stage_of_op = {name: int(name == "relu1") for name in placed_ops(model)}
    with pytest.raises(InvalidProblemError, match="stages 0, 1 wait for each other's tensors"):
        split_model(model, stage_of_op)


def test_an_op_without_a_stage_is_named(make_convnet: Callable[[], ov.Model]) -> None:
    """The message says which op the map lacks."""
    model = make_convnet()
    with pytest.raises(InvalidProblemError, match=r"op 'conv2' \(Convolution\) has no stage"):
        split_model(model, {name: 0 for name in placed_ops(model) if name != "conv2"})


def test_every_stage_keeps_its_own_state() -> None:
    """A variable goes with the ops that read and assign it, and cannot be torn apart."""
    x = opset.parameter([1], ov.Type.f32, name="x")
    zero = opset.constant(np.zeros(1, np.float32), name="zero")
    once = opset.add(opset.read_value(zero, "once", name="read1"), x, name="sum1")
    twice = opset.add(opset.read_value(zero, "twice", name="read2"), once, name="sum2")
    written = [opset.assign(once, "once"), opset.assign(twice, "twice")]
    for at, node in enumerate(written, 1):
        node.set_friendly_name(f"write{at}")  # opset.assign takes a name and forgets it
    model = ov.Model([opset.result(twice)], written, [x], "sums")
    stage_of_op = {"read1": 0, "sum1": 0, "write1": 0, "read2": 1, "sum2": 1, "write2": 1}
    first, second = split_model(model, stage_of_op)
    core = shared_core()
    parts = [core.compile_model(stage.model, "CPU").create_infer_request() for stage in (first, second)]
    seen = []
    for _ in range(4):
        (value,) = parts[0].infer([np.ones(1, np.float32)]).values()
        (value,) = parts[1].infer([value]).values()
        seen.append(float(value[0]))
    assert seen == [1, 3, 6, 10]
    with pytest.raises(UnsupportedProblemError, match="variable 'once': ops 'read1' and 'write1' keep its state"):
        split_model(model, {**stage_of_op, "write1": 1})


def test_a_shape_that_only_the_whole_model_knows_is_one_line(tmp_path: Path) -> None:
    """The first value of a variable has the number of sequences, which another stage computes."""
    pytest.importorskip("torch")
    from language_models import write_stateful

    source = pk.read_model(write_stateful(tmp_path / "stateful.xml"))
    graph = source.graph
    before = {int(op) for op, kind in enumerate(graph.op_types) if kind == "ShapeOf"}
    edges = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    for kind in ("Gather", "Concat"):  # of the number of sequences, and of the shape that begins with it
        before |= {after for first, after in edges if first in before and graph.op_types[after] == kind}
    stages = {name: int(op not in before) for op, name in enumerate(graph.op_names)}
    with pytest.raises(UnsupportedProblemError, match=r"no model of its own with open dimensions .* pass --shape"):
        split_model(source.load(), stages)

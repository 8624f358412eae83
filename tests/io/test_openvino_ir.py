"""The reader of OpenVINO IR: what becomes an op, a tensor and a weight; and what broken files do."""

import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import SOON_S
from numpy.typing import NDArray
from strategies import ALL

from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import settle_names
from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidFileError, PlacekitError
from placekit.model.graph import OpGraph

ov = pytest.importorskip("openvino")
ops = pytest.importorskip("openvino.opset13")

Save = Callable[..., Path]


def f32(*shape: int) -> Any:
    """Return a constant of ones."""
    return ops.constant(np.ones(shape, np.float32))


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that writes a model as IR in f32 and returns its path."""

    def write(
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        sinks: Sequence[Any] = (),
        *,
        half: bool = False,
        name: str = "model",
    ) -> Path:
        results = [ops.result(output, name=f"result{at}") for at, output in enumerate(outputs)]
        model = ov.Model(results, list(sinks), list(inputs), name) if sinks else ov.Model(results, list(inputs), name)
        path = tmp_path / f"{name}.xml"
        ov.save_model(model, path, compress_to_fp16=half)
        return path

    return write


@pytest.fixture
def small_cnn(save: Save) -> Path:
    """Write x -> conv -> relu -> split => add -> flat -> fc -> result, with six constants."""
    x = ops.parameter([1, 3, 8, 8], ov.Type.f32, name="x")
    conv = ops.convolution(x, f32(4, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], name="conv")
    split = ops.split(ops.relu(conv, name="relu"), ops.constant(np.int64(1)), 2, name="split")
    total = ops.add(split.output(0), split.output(1), name="add")
    flat = ops.reshape(total, ops.constant(np.array([1, -1])), False, name="flat")
    return save([ops.matmul(flat, f32(128, 10), False, False, name="fc")], [x], name="small_cnn")


def edges(graph: OpGraph) -> set[tuple[str, str]]:
    """Return the edges by name."""
    return {(graph.op_names[u], graph.op_names[v]) for u, v in zip(graph.senders, graph.receivers, strict=True)}


def by_name(graph: OpGraph, values: NDArray[Any]) -> dict[str, Any]:
    """Return values per op by op name."""
    return dict(zip(graph.op_names, values.tolist(), strict=True))


def test_small_network_is_read_as_drawn(small_cnn: Path) -> None:
    """Ops, edges, tensors, bytes, FLOPs and weights are those of the drawing."""
    model = read_model(small_cnn)
    graph = model.graph
    assert graph.op_names == ("x", "conv", "relu", "split", "add", "flat", "fc", "result0")
    assert graph.op_types == ("Parameter", "Convolution", "Relu", "Split", "Add", "Reshape", "MatMul", "Result") or (
        graph.op_types[2] == "ReLU"
    )
    assert edges(graph) == set(zip(graph.op_names[:-1], graph.op_names[1:], strict=True))
    # split has two output ports, so two tensors go from split to add
    assert graph.num_tensors == 8
    assert graph.num_edges == 7
    assert model.num_nodes == 8 + 4
    assert model.num_edges == 8 + 4
    shapes = dict(zip(graph.tensor_producer.tolist(), graph.tensor_shapes, strict=True))
    assert shapes[graph.op_index["split"]] == (1, 2, 8, 8)
    assert by_name(graph, graph.op_weight_bytes) | {"x": 0} == {
        "x": 0, "conv": 4 * 108, "relu": 0, "split": 8, "add": 0, "flat": 16, "fc": 4 * 1280, "result0": 0,
    }  # fmt: skip
    assert by_name(graph, graph.op_flops) == {
        "x": 0, "conv": 2 * 256 * 27, "relu": 256, "split": 0, "add": 128, "flat": 0, "fc": 2560, "result0": 0,
    }  # fmt: skip
    np.testing.assert_array_equal(model.colocation, np.arange(8))
    assert [(each.name, each.shape, each.dtype) for each in model.inputs] == [("x", (1, 3, 8, 8), "f32")]


def test_loaded_model_has_the_names_of_the_graph(small_cnn: Path) -> None:
    """`load` gives a model whose ops are found by the graph's names, with OpenVINO's own words for the types."""
    model = read_model(small_cnn)
    types = {node.get_friendly_name(): node.get_type_name() for node in model.load().get_ordered_ops()}
    assert {name: types[name] for name in model.graph.op_names} == dict(
        zip(model.graph.op_names, model.graph.op_types, strict=True)
    )


def test_half_precision_weights_follow_their_consumer(save: Save) -> None:
    """The Convert behind an f16 constant is no op, and the weight counts its f16 bytes."""
    x = ops.parameter([1, 64], ov.Type.f32, name="x")
    weights = ops.constant(np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32))
    model = read_model(save([ops.matmul(x, weights, False, False, name="fc")], [x], half=True))
    assert model.graph.op_names == ("x", "fc", "result0")
    assert by_name(model.graph, model.graph.op_weight_bytes)["fc"] == 2 * 64 * 8
    assert model.num_nodes == 5


def test_shared_constant_counts_at_each_consumer_once(save: Save) -> None:
    """A constant of two ops weighs on both; one that an op reads twice weighs once."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    shared = f32(1, 4)
    a = ops.add(x, shared, name="a")
    b = ops.add(a, shared, name="b")
    twice = ops.select(ops.greater(b, f32(1, 4), name="g"), ops.add(b, shared, name="c"), shared, name="s")
    graph = read_model(save([twice], [x])).graph
    weights = by_name(graph, graph.op_weight_bytes)
    assert (weights["a"], weights["b"], weights["s"]) == (16, 16, 16)


def test_tensor_read_twice_by_one_op_is_one_edge(save: Save) -> None:
    """An op that multiplies a tensor with itself has one edge in the graph and two in the whole model."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    model = read_model(save([ops.multiply(x, x, name="square")], [x]))
    assert model.graph.num_edges == 2
    assert model.num_edges == 3


def test_several_inputs_and_outputs_passthrough_and_unused_ports(save: Save) -> None:
    """Two inputs, three outputs, one of them an input, and a TopK whose indices nobody reads."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    y = ops.parameter([1, 4], ov.Type.f32, name="y")
    top = ops.topk(ops.add(x, y, name="add"), ops.constant(np.int64(2)), 1, "max", "value", name="top")
    model = read_model(save([top.output(0), y, ops.relu(x, name="relu")], [x, y]))
    assert [each.name for each in model.inputs] == ["x", "y"]
    assert edges(model.graph) == {
        ("x", "add"), ("y", "add"), ("add", "top"), ("top", "result0"),
        ("y", "result1"), ("x", "relu"), ("relu", "result2"),
    }  # fmt: skip
    assert model.graph.num_tensors == 5  # TopK's second port has no reader


def test_input_without_consumer_is_an_op(save: Save) -> None:
    """A Parameter that nothing reads stays in the graph, without a tensor."""
    x, unused = (ops.parameter([1, 4], ov.Type.f32, name=name) for name in ("x", "unused"))
    graph = read_model(save([ops.relu(x, name="relu")], [x, unused])).graph
    assert "unused" in graph.op_index
    assert graph.op_index["unused"] not in graph.tensor_producer


def test_output_of_constants_alone_is_an_op_with_the_weight(save: Save) -> None:
    """A Result is an op also where only constants feed it; what is computed from constants is not."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    table = ops.add(f32(1, 4), f32(1, 4), name="table")
    graph = read_model(save([ops.relu(x, name="relu"), table], [x])).graph
    assert set(graph.op_names) == {"x", "relu", "result0", "result1"}
    assert by_name(graph, graph.op_weight_bytes)["result1"] == 32


def test_random_op_fed_by_constants_is_placed(save: Save) -> None:
    """Two copies of a random op would draw different numbers, so it has a device of its own."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    noise = ops.random_uniform(
        ops.constant(np.array([1, 4])), f32(), ops.constant(np.float32(2)), "f32", global_seed=1, op_seed=2
    )
    noise.set_friendly_name("noise")
    graph = read_model(save([ops.add(x, noise, name="add")], [x])).graph
    assert ("noise", "add") in edges(graph)


def test_duplicate_names_become_unique_in_the_same_way_every_time(save: Save) -> None:
    """The first op of a name keeps it, later ones are numbered, and taken names are left alone."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    last = ops.relu(ops.relu(ops.relu(x, name="same"), name="same"), name="same#2")
    path = save([last], [x])
    model = read_model(path)
    assert model.graph.op_names == ("x", "same", "same#3", "same#2", "result0")
    assert {node.get_friendly_name() for node in model.load().get_ops()} == set(model.graph.op_names)
    assert read_model(path).graph == model.graph


def test_made_up_names_give_way_to_the_nearest_of_the_model() -> None:
    """Readers name what a converter makes up, then producers; a Result without a name is an output."""
    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    first, between = ops.relu(x), ops.relu(x)
    conv = ops.add(first, between, name="block/aten::conv/Add")
    last = ops.relu(conv)
    for number, node in enumerate((first, between, last)):
        node.set_friendly_name(f"Multiply_{number}")
    result = ops.result(last)
    result.set_friendly_name("Result_9")
    model = ov.Model([result], [x])
    settle_names(model, ())
    assert sorted(node.get_friendly_name() for node in model.get_ops()) == [
        "block/aten::conv/Add",
        "block/aten::conv/Relu",
        "block/aten::conv/Relu#2",
        "block/aten::conv/Relu#3",
        "output",
        "x",
    ]
    result.set_friendly_name("logits/sink_port_0")
    settle_names(model, ())
    assert model.get_results()[0].get_friendly_name() == "logits"


def test_if_is_one_op_with_the_weights_of_both_branches(save: Save) -> None:
    """An If counts as one op: weights of both branches, FLOPs of the longer one."""
    import openvino.opset8 as old

    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    condition = ops.parameter([], ov.Type.boolean, name="condition")
    bodies, inner = [], []
    for depth in (1, 3):
        inner.append(ops.parameter([1, 4], ov.Type.f32, name="inner"))
        value = inner[-1]
        for _ in range(depth):
            value = ops.add(value, f32(1, 4))
        bodies.append(ov.Model([ops.result(value)], [inner[-1]]))
    branch = old.if_op(condition)
    branch.set_then_body(bodies[0])
    branch.set_else_body(bodies[1])
    branch.set_input(x.output(0), *inner)
    output = branch.set_output(bodies[0].get_results()[0], bodies[1].get_results()[0])
    branch.set_friendly_name("if")
    graph = read_model(save([output], [x, condition])).graph
    assert set(graph.op_names) == {"x", "condition", "if", "result0"}
    assert by_name(graph, graph.op_weight_bytes)["if"] == 4 * 16
    assert by_name(graph, graph.op_flops)["if"] == 3 * 4


def test_loop_counts_its_body_once_per_iteration(save: Save) -> None:
    """A TensorIterator over seven slices costs seven times its body."""
    sequence = ops.parameter([1, 7, 4], ov.Type.f32, name="sequence")
    part = ops.parameter([1, 1, 4], ov.Type.f32, name="part")
    body = ov.Model([ops.result(ops.add(part, f32(1, 1, 4)))], [part])
    loop = ops.tensor_iterator()
    loop.set_body(body)
    loop.set_sliced_input(part, sequence.output(0), 0, 1, 1, -1, 1)
    output = loop.get_concatenated_slices(body.get_results()[0].output(0), 0, 1, 1, -1, 1)
    loop.set_friendly_name("loop")
    graph = read_model(save([output], [sequence])).graph
    assert by_name(graph, graph.op_flops)["loop"] == 7 * 4
    assert by_name(graph, graph.op_weight_bytes)["loop"] == 16


def test_state_is_read_and_written_on_one_device(save: Save) -> None:
    """ReadValue and Assign of a variable share a colocation label with what is between; every other op has its own."""
    import openvino.opset6 as old

    x = ops.parameter([1, 4], ov.Type.f32, name="x")
    state = old.read_value(f32(1, 4), "state")
    state.set_friendly_name("read")
    total = ops.add(state, x, name="total")
    more = ops.relu(total, name="more")
    assign = old.assign(total, "state")
    assign.set_friendly_name("assign")
    model = read_model(save([more], [x], [assign]))
    labels = by_name(model.graph, model.colocation)
    assert labels["read"] == labels["assign"] == labels["total"]
    assert len(set(labels.values())) == len(labels) - 2
    assert {"read", "assign"} <= set(model.graph.op_names)


def test_missing_weights_are_a_named_error(small_cnn: Path) -> None:
    """Without the .bin the message names the constant and the file."""
    small_cnn.with_suffix(".bin").unlink()
    with pytest.raises(InvalidFileError, match=r"constant '.*' needs small_cnn\.bin, which is missing"):
        read_model(small_cnn)


def test_truncated_weights_are_a_named_error(small_cnn: Path) -> None:
    """A .bin that is too short is noticed before OpenVINO reads past its end."""
    weights = small_cnn.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InvalidFileError, match=r"but small_cnn\.bin has 1000 bytes; is it truncated"):
        read_model(small_cnn)


def test_edge_to_nowhere_is_a_named_error(small_cnn: Path) -> None:
    """An edge whose end does not exist names layer and port."""
    small_cnn.write_text(small_cnn.read_text().replace('to-layer="2"', 'to-layer="99"', 1))
    with pytest.raises(InvalidFileError, match="layer '99', which is missing"):
        read_model(small_cnn)


def test_what_openvino_refuses_is_one_line(small_cnn: Path) -> None:
    """OpenVINO's pages of exception text become the sentence that says what is wrong."""
    small_cnn.write_text(small_cnn.read_text().replace('type="ReLU"', 'type="NoSuchOp"'))
    with pytest.raises(InvalidFileError, match="NoSuchOp") as caught:
        read_model(small_cnn)
    assert "\n" not in str(caught.value)
    assert "Exception from" not in str(caught.value)


def _mutate(text: str, rng: random.Random) -> str:
    """Return the text with one to three random changes."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind, at = rng.randrange(6), rng.randrange(len(text))
        numbers = list(re.finditer(r'(?<=")-?\d+(?=")|(?<=>)\d+(?=<)', text))
        words = list(re.finditer(r'(?<=")[^"<>]*(?=")', text))
        if kind == 0:
            text = text[:at] + text[at + rng.randint(1, 20) :]
        elif kind == 1:
            text = text[:at] + text[at : at + rng.randint(1, 60)] + text[at:]
        elif kind == 2:
            text = text[:at] + chr(rng.randrange(32, 127)) + text[at + 1 :]
        elif kind == 3 and numbers:
            hit = rng.choice(numbers)
            value = rng.choice(["0", "-1", "1", "7", "2147483648", "18446744073709551615", "1e9", "", " "])
            text = text[: hit.start()] + value + text[hit.end() :]
        elif kind == 4 and words:
            hit, other = rng.choice(words), rng.choice(words)
            text = text[: hit.start()] + other.group() + text[hit.end() :]
        elif kind == 5 and rng.random() < 0.3:
            text = text[:at]
        text = text or " "
    return text


def test_mutations_give_a_model_or_a_named_error(small_cnn: Path) -> None:
    """Whatever is done to the XML, the reader returns a model or raises a PlacekitError on one line."""
    original = small_cnn.read_text()
    read, refusals, count = 0, [], 200 if ALL else 40
    for seed in range(count):
        small_cnn.write_text(_mutate(original, random.Random(seed)))
        try:
            assert isinstance(read_model(small_cnn), ModelSource)
            read += 1
        except PlacekitError as error:
            refusals.append(str(error))
    assert not [text for text in refusals if "\n" in text]
    assert count / 40 < read < count * 3 / 4  # both outcomes occur, or the mutations are too weak or too strong


@pytest.mark.slow
def test_ten_thousand_ops_are_read_in_seconds(save: Save) -> None:
    """An IR of 10,000 ops becomes a graph in seconds."""
    x = ops.parameter([1, 8], ov.Type.f32, name="x")
    value = x
    for _ in range(2500):
        product = ops.matmul(value, f32(8, 8), False, True)
        value = ops.add(ops.relu(ops.add(product, f32(1, 8))), value)
    path = save([value], [x])
    began = time.process_time()  # not the wall clock: other processes may be at work
    model = read_model(path)
    elapsed_s = time.process_time() - began
    assert model.graph.num_ops == 10_002
    assert model.num_nodes == 15_002
    assert elapsed_s < SOON_S

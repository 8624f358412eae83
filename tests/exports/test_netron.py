"""Copies for Netron: nodes say their device, and the copy computes what the model does."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.openvino.devices import shared_core
from placekit.exports.netron import ATTRIBUTE, write_netron
from placekit.model.errors import UnsupportedProblemError

DEVICES = ("CPU <a>", "GPU.0", "GPU.1")


def placed(graph: pk.OpGraph) -> pk.Placement:
    """Place the first half on the CPU and the rest on a team of two."""
    rank = np.empty(graph.num_ops, dtype=int)
    rank[graph.order] = np.arange(graph.num_ops)
    at = np.where(rank < graph.num_ops // 2, 0, 1)
    return pk.Placement(graph.op_names, DEVICES, at, team_of_device=np.array([0, 1, 1]))


def test_layers_of_an_ir_say_their_device(tmp_path: Path) -> None:
    """All layers but constants; OpenVINO reads the copy with the constants of the model, and computes the same."""
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    rng = np.random.default_rng(0)
    x = ops.parameter([2, 8], np.float32, name='x "&" <y>')
    y = x
    for i in range(3):
        weights = ops.constant(rng.normal(size=(8, 8)).astype(np.float32))
        y = ops.relu(ops.matmul(y, weights, False, False, name=f"layer{i}"), name=f"relu{i}")
    path, copy = tmp_path / "model.xml", tmp_path / "copy.xml"
    ov.save_model(ov.Model([ops.result(y, name="end")], [x], "model"), path, compress_to_fp16=False)
    source = pk.read_model(path)
    placement = placed(source.graph)
    assert write_netron(path, source.graph, placement, copy) == {"model": str(copy)}
    layers = ET.parse(copy).getroot().iterfind("layers/layer")
    told = {layer.attrib["name"]: layer.find("data").attrib.get(ATTRIBUTE) for layer in layers}  # type: ignore[union-attr]
    assert {name: device for name, device in told.items() if device} == {
        name: placement.team_name(int(device))
        for name, device in zip(source.graph.op_names, placement.device_of_op, strict=True)
    }
    assert {device for device in told.values() if device} == {"CPU <a>", "GPU.0+GPU.1"}
    core, data = shared_core(), rng.normal(size=(2, 8)).astype(np.float32)
    models = (core.read_model(path), core.read_model(copy, path.with_suffix(".bin")))
    first, second = (core.compile_model(model, "CPU")(data)[0] for model in models)
    np.testing.assert_array_equal(first, second)


def test_nodes_of_an_onnx_model_say_their_device(tmp_path: Path) -> None:
    """The copy is valid, and has one entry per node also after a second export."""
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node("Relu" if i % 2 else "Exp", [f"t{i}"], [f"t{i + 1}"]) for i in range(4)]
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2, 4])] for end in ("t0", "t4")]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "chain", *ends), ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    path, copy, again = (tmp_path / f"{name}.onnx" for name in ("model", "copy", "again"))
    onnx.save(model, path)
    source = pk.read_model(path)
    placement = placed(source.graph)
    write_netron(path, source.graph, placement, copy)
    write_netron(copy, source.graph, placement, again)
    onnx.checker.check_model(again)
    told = [[(entry.key, entry.value) for entry in node.metadata_props] for node in onnx.load(again).graph.node]
    assert told == [[(ATTRIBUTE, "CPU <a>")]] * 2 + [[(ATTRIBUTE, "GPU.0+GPU.1")]] * 2


def test_other_files_are_refused(tmp_path: Path) -> None:
    """The message says what shows them."""
    graph = pk.OpGraph.from_edges("abc", [("a", "b"), ("b", "c")])
    with pytest.raises(UnsupportedProblemError, match="take --to model-explorer"):
        write_netron(tmp_path / "model.pt2", graph, placed(graph), tmp_path / "out.pt2")

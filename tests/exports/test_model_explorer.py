"""Files for Model Explorer: node data that name nodes of the graph that is open, in the colour of their device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import placekit as pk
from placekit.exports.model_explorer import write_model_explorer
from placekit.model.errors import UnsupportedProblemError

DEVICES = ("cpu", "gpu.0", "gpu.1")


def test_graph_and_node_data_belong_together(tmp_path: Path) -> None:
    """Every op is a node with its edges, device and name space; times are milliseconds where they are known."""
    names = ("stem/conv", "stem/relu", "head/out")
    graph = pk.OpGraph.from_edges(names, [(names[0], names[1]), (names[0], names[2]), (names[1], names[2])])
    placement = pk.Placement(names, DEVICES, np.array([0, 1, 1]), team_of_device=np.array([0, 1, 1]))
    time_s = np.array([0.002, np.inf, 0.001])
    written = write_model_explorer(tmp_path / "m.problem.json", graph, placement, tmp_path / "m.json", None, time_s)
    data, opened = (json.loads(Path(written[kind]).read_text()) for kind in ("node data", "graph"))
    results = data["results"]
    assert [results[name]["value"] for name in names] == [2.0, "gpu.0+gpu.1", 1.0]
    colors = [results[name]["bgColor"] for name in names]
    assert colors[0] != colors[1] == colors[2]
    (shown,) = opened["graphs"]
    assert opened["label"] == graph.name
    assert [node["id"] for node in shown["nodes"]] == list(names)
    assert [node["namespace"] for node in shown["nodes"]] == ["stem", "stem", "head"]
    edges = {(edge["sourceNodeId"], node["id"]) for node in shown["nodes"] for edge in node["incomingEdges"]}
    assert edges == {(names[0], names[1]), (names[0], names[2]), (names[1], names[2])}
    told = [{each["key"]: each["value"] for each in node["attrs"]}["device"] for node in shown["nodes"]]
    assert told == ["cpu", "gpu.0+gpu.1", "gpu.0+gpu.1"]
    with pytest.raises(UnsupportedProblemError, match="two files, the data and the graph"):
        write_model_explorer(tmp_path / "m.problem.json", graph, placement, Path("-"))


def test_onnx_needs_node_data_only(tmp_path: Path) -> None:
    """Nodes go by their names, or by an output where they have none."""
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node("Exp", ["x"], ["t"], name="first"), onnx.helper.make_node("Relu", ["t"], ["y"])]
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2])] for end in ("x", "y")]
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "two", *ends), ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]
        ),
        path,
    )
    graph = pk.read_model(path).graph
    placement = pk.Placement(graph.op_names, DEVICES, np.where([name == "first" for name in graph.op_names], 0, 2))
    written = write_model_explorer(path, graph, placement, tmp_path / "out.json")
    assert list(written) == ["node data"]
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert {name: each["value"] for name, each in results.items()} == {"first": "cpu", "y": "gpu.1"}


def test_nodes_of_one_name_need_the_graph_too(tmp_path: Path) -> None:
    """Node data by names would tell several nodes of one name apart by nothing."""
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node(kind, [i], [o], name="n") for kind, i, o in (("Exp", "x", "t"), ("Relu", "t", "y"))]
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2])] for end in ("x", "y")]
    path = tmp_path / "model.onnx"
    model = onnx.helper.make_graph(nodes, "two", *ends)
    onnx.save(onnx.helper.make_model(model, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    graph = pk.read_model(path).graph
    placement = pk.Placement(graph.op_names, DEVICES, np.zeros(graph.num_ops, dtype=int))
    assert list(write_model_explorer(path, graph, placement, tmp_path / "out.json")) == ["node data", "graph"]

"""Annotated ONNX models: ONNX Runtime takes the rules, and the nodes say where the placement has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import placekit as pk
from placekit.exports.onnxruntime import ANNOTATION, SETTING, check_annotated, session_setting, write_annotated
from placekit.model.errors import ExecutionError, OutputMismatchError, UnsupportedProblemError

onnx = pytest.importorskip("onnx")
PLATFORM = pk.Platform.of(cpu=1, gpu=2, host="cpu")


@pytest.fixture(params=["named", "unnamed"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Write four layers of a product, a relu and a normalisation, with names of nodes or without."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(4):
        for name, shape in ((f"w{i}", (16, 16)), (f"b{i}", (16,))):
            weights.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
        for kind, inputs, output in (
            ("Gemm", [x, f"w{i}", f"b{i}"], f"g{i}"),
            ("Relu", [f"g{i}"], f"r{i}"),
            ("LayerNormalization", [f"r{i}", f"b{i}"], f"l{i}"),
        ):
            name = f"/layers.{i}/{kind}" if request.param == "named" else ""
            nodes.append(onnx.helper.make_node(kind, inputs, [output], name=name))
        x = f"l{i}"
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2, 16])] for end in ("x", x)]
    graph = onnx.helper.make_graph(nodes, "layers", *ends, weights)
    path = tmp_path / "layers.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    return path


def export(model: Path, target: Path, last: int) -> tuple[Path, str]:
    """Export the placement with the last two layers on device `last`; return the model and the option."""
    source = pk.read_model(model)
    ends = [source.graph.op_index[name] for name in source.graph.op_names if name in ("/layers.2/Gemm", "g2")]
    rank = np.empty(source.graph.num_ops, dtype=int)
    rank[source.graph.order] = np.arange(source.graph.num_ops)
    at = np.where(rank < rank[ends[0]], 0, last)
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    written = write_annotated(model, source.graph, placement, PLATFORM, target)
    return Path(written["model"]), json.loads(Path(written["session"]).read_text())[SETTING]


def test_nodes_say_where_they_go(model: Path, tmp_path: Path) -> None:
    """Every node has an annotation that a rule binds, the one of its layer."""
    path, setting = export(model, tmp_path / "placed.onnx", 2)
    assert setting == "cpu(=cpu_0);gpu:1(=gpu_1)"
    told = [{entry.key: entry.value for entry in node.metadata_props} for node in onnx.load(path).graph.node]
    assert [each[ANNOTATION] for each in told] == ["cpu_0"] * 6 + ["gpu_1"] * 6
    again, _ = export(path, tmp_path / "again.onnx", 0)
    assert {entry.value for node in onnx.load(again).graph.node for entry in node.metadata_props} == {"cpu_0"}


def test_onnxruntime_takes_the_rules_and_runs(model: Path, tmp_path: Path) -> None:
    """Same outputs; nodes of the CPU are assigned to the CPU, also where no GPU is there for the others."""
    ort = pytest.importorskip("onnxruntime")
    data = {"x": np.random.default_rng(1).normal(size=(2, 16)).astype(np.float32)}
    expected = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, data)
    for last in (0, 1):
        path, setting = export(model, tmp_path / f"placed{last}.onnx", last)
        options = ort.SessionOptions()
        options.log_severity_level = 4  # a rule for a device that is not there is an error in the log, and skipped
        options.add_session_config_entry(SETTING, setting)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        assigned = [node.name for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()]
        assert len(assigned) == 12
        np.testing.assert_array_equal(session.run(None, data), expected)


def test_the_annotated_model_is_checked(model: Path, tmp_path: Path) -> None:
    """It runs as the model does; one of other numbers, or one that does not run, is refused."""
    pytest.importorskip("onnxruntime")
    data = {"x": np.random.default_rng(1).normal(size=(2, 16)).astype(np.float32)}
    path, setting = export(model, tmp_path / "placed.onnx", 0)
    assert check_annotated(model, path, setting, data).startswith("one sample run in onnxruntime on the CPU")
    other = onnx.load(path)
    other.graph.node[-2].op_type = "Sigmoid"
    onnx.save(other, path)
    with pytest.raises(OutputMismatchError, match=r"output 0 of the annotated model differs from that of layers.onnx"):
        check_annotated(model, path, setting, data)
    other.graph.node[-2].op_type = "NoSuchOp"
    onnx.save(other, path)
    with pytest.raises(ExecutionError, match=r"onnxruntime does not run the annotated model: .*NoSuchOp"):
        check_annotated(model, path, setting, data)
    assert "not run: onnxruntime does not run placed.onnx" in check_annotated(path, model, setting, data)


def test_what_a_session_cannot_have_is_refused(tmp_path: Path) -> None:
    """Replicas, two devices of a type, another file."""
    names = ("a", "b")
    team = pk.Placement(names, PLATFORM.device_names, np.array([1, 1]), team_of_device=np.array([0, 1, 1]))
    with pytest.raises(UnsupportedProblemError, match="no replicas"):
        session_setting(PLATFORM, team)
    two = pk.Placement(names, PLATFORM.device_names, np.array([1, 2]))
    with pytest.raises(UnsupportedProblemError, match=r"one device of a type in a session; 'gpu.0' and 'gpu.1'"):
        session_setting(PLATFORM, two)
    graph = pk.OpGraph.from_edges(names, [names])
    with pytest.raises(UnsupportedProblemError, match=r"takes an .onnx file"):
        write_annotated(tmp_path / "model.xml", graph, two, PLATFORM, tmp_path / "out.onnx")

"""Annotated ONNX models: ONNX Runtime takes the rules, and the nodes say where the placement has them."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.exports.onnx_nodes import devices_of_nodes, write_copy
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
    begin = ("/layers.2/Gemm", "g2")  # of a Gemm, OpenVINO makes a product and a sum
    begins = [source.graph.op_index[name] for name in source.graph.op_names if name.startswith(begin)]
    rank = np.empty(source.graph.num_ops, dtype=int)
    rank[source.graph.order] = np.arange(source.graph.num_ops)
    at = np.where(rank < rank[begins].min(), 0, last)
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    written = write_annotated(model, source.graph, placement, PLATFORM, target)
    return Path(written["model"]), json.loads(Path(written["session"]).read_text())[SETTING]


def test_nodes_say_where_they_go(model: Path, tmp_path: Path) -> None:
    """Every node has an annotation that a rule binds, the one of its layer."""
    path, setting = export(model, tmp_path / "placed.onnx", 2)
    assert setting == "cpu(=cpu_0);gpu:1(=gpu_1)"
    told = [{entry.key: entry.value for entry in node.metadata_props} for node in onnx.load(path).graph.node]
    assert [each["layer_ann"] for each in told] == ["cpu_0"] * 6 + ["gpu_1"] * 6
    again, _ = export(path, tmp_path / "again.onnx", 0)
    assert {entry.value for node in onnx.load(again).graph.node for entry in node.metadata_props} == {"cpu_0"}


def test_onnxruntime_looks_for_the_annotation() -> None:
    """It passes over an entry of any other name; its library has this one, as a whole word."""
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    assert f"\0{ANNOTATION}\0".encode() in Path(state.__file__).read_bytes()


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


def chain_of(*nodes: tuple[str, str, str]) -> Any:
    """Return a model of nodes that are called by their names, their inputs and their outputs, ``"a b"``."""
    made = [onnx.helper.make_node("Sum", inputs.split(), outputs.split(), name=name) for name, inputs, outputs in nodes]
    return onnx.helper.make_model(onnx.helper.make_graph(made, "chain", [], []))


def test_nodes_without_an_op_follow_their_readers() -> None:
    """Or what they read, if nobody has an op among those; the first device that is known, if there is neither."""
    model = chain_of(
        ("lost", "x", "l"), ("early", "x", "e"), ("a", "e", "t"), ("", "t", "u"), ("late", "u", "v"), ("far", "z", "w")
    )
    graph = pk.OpGraph.from_edges(["a", "u"], [("a", "u")])
    placement = pk.Placement(graph.op_names, PLATFORM.device_names, np.array([1, 2]))
    assert devices_of_nodes(model, "onnxruntime", graph, placement) == [1, 1, 1, 2, 2, 1]
    model.graph.node.insert(0, onnx.helper.make_node("Sum", ["x"], ["q"], name="first"))
    graph = pk.OpGraph.from_edges(["a", "u", "first"], [("a", "u")])
    placement = pk.Placement(graph.op_names, PLATFORM.device_names, np.array([1, 2, 0]))
    assert devices_of_nodes(model, "onnxruntime", graph, placement) == [0, 0, 1, 1, 2, 2, 0]
    alien = pk.OpGraph.from_edges(["b", "c"], [("b", "c")], name="other")
    placement = pk.Placement(alien.op_names, PLATFORM.device_names, np.array([1, 2]))
    with pytest.raises(UnsupportedProblemError, match="'other': no node of the ONNX model has the name of an op"):
        devices_of_nodes(model, "onnxruntime", alien, placement)


def test_ops_that_were_made_of_one_node() -> None:
    """Several of one type are numbered, others have the type behind the name; the one of the node's name decides."""
    model = chain_of(("n", "x", "y"), ("m", "y", "z"))
    names = ["x", "n/Convert", "n#2", "n", "m#1", "z"]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    graph = graph.replace(
        op_types=("Parameter", "Convert", "Add", "Add", "Add", "Result"), op_flops=[0.0, 0, 1, 1, 1, 0]
    )
    for at, words in (([0, 2, 1, 1, 0, 2], ""), ([0, 1, 2, 1, 0, 0], "op 'n#2' is on 'gpu.1' .* would be on 'gpu.0'")):
        placement = pk.Placement(graph.op_names, PLATFORM.device_names, np.array(at))
        if words:
            with pytest.raises(UnsupportedProblemError, match=words):
                devices_of_nodes(model, "onnxruntime", graph, placement)
        else:
            assert devices_of_nodes(model, "onnxruntime", graph, placement) == [1, 0]


def test_weights_beside_the_model_need_a_folder(tmp_path: Path) -> None:
    """A pipe has no folder for files with weights; without them the model is written to it."""
    model = with_side_files(tmp_path / "model.onnx", 1, 4, 1)
    target = Path("/dev/null")
    with pytest.raises(UnsupportedProblemError, match="has weights in files beside it: give -o a file in a folder"):
        write_copy(onnx.load(model, load_external_data=False), model, target)
    assert write_copy(chain_of(("n", "x", "y")), tmp_path / "plain.onnx", target) == [target]


def test_without_onnxruntime_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotation is all that can be said."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = tmp_path / "model.onnx"
    assert check_annotated(path, path, "", {}) == "every node annotated; not run: onnxruntime is not installed"


def with_side_files(path: Path, layers: int, size: int, files: int, folder: str = "") -> Path:
    """Write layers of a product and a relu whose weights lie in `files` files below the folder of the model.

    Files are sparse where they are large: all weights are zeros then.
    """
    tensors, nodes, length = [], [], 4 * size * size
    (path.parent / folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for at in range(layers):
        name = f"{folder}weights{at % files}.bin"
        weights = onnx.TensorProto(name=f"w{at}", data_type=onnx.TensorProto.FLOAT, dims=[size, size])
        weights.data_location = onnx.TensorProto.EXTERNAL
        with (path.parent / name).open("ab") as file:
            for key, value in (("location", name), ("offset", str(file.tell())), ("length", str(length))):
                weights.external_data.add(key=key, value=value)
            if length < 1 << 20:
                file.write(rng.normal(size=(size, size)).astype(np.float32).tobytes())
            else:
                file.truncate(file.tell() + length)
        tensors.append(weights)
        nodes.append(onnx.helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"m{at}"], name=f"product{at}"))
        nodes.append(onnx.helper.make_node("Relu", [f"m{at}"], [f"x{at + 1}"], name=f"relu{at}"))
    ends = [
        [onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [1, size])] for end in ("x0", f"x{layers}")
    ]
    graph = onnx.helper.make_graph(nodes, "beside", *ends, tensors)
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("folder", ["", "deep/er/"])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("layers", "size", "files"), [(4, 16, 1), (5, 16, 3), pytest.param(9, 8192, 2, marks=pytest.mark.slow)]
)
def test_weights_in_files_beside_the_model_are_found(
    layers: int, size: int, files: int, elsewhere: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime loads and runs the copy, in the same folder or another one, from a relative path, above 2 GiB."""
    ort = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    model = with_side_files(Path("in/model.onnx"), layers, size, files, folder)
    assert sum(file.stat().st_size for file in Path("in").rglob("*.bin")) == 4 * layers * size * size
    source = pk.read_model(model)
    first = [name for name in source.graph.op_names if name in ("x0", "product0", "relu0")]
    at = np.array([1 if name in first else 0 for name in source.graph.op_names])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    Path("out").mkdir()
    target = Path("out" if elsewhere else "in") / "placed.onnx"
    told: list[str] = []
    data = {"x0": np.ones((1, size), np.float32)}
    before = set(Path("in").rglob("*"))
    written = write_annotated(
        model, source.graph, placement, PLATFORM, target,
        lambda new, setting: told.append(check_annotated(model, new, setting, data)),
    )  # fmt: skip
    assert told == ["one sample run in onnxruntime on the CPU: outputs as the model's"]
    assert len(written) == 2 + (files if elsewhere else 0)
    assert set(map(Path, written.values())) == {*Path("out").rglob("*"), *Path("in").rglob("*")} - before
    if elsewhere:  # what is deployed needs nothing of the old folder
        sides = ["placed.onnx.data", *(f"placed.onnx.data.{at}" for at in range(1, files))]
        assert sorted(each.name for each in Path("out").glob("*.data*")) == sides
        Path("in").rename("gone")
    session = ort.InferenceSession(target, providers=["CPUExecutionProvider"])
    assert session.run(None, data)[0].shape == (1, size)
    labels = [node.metadata_props[0].value for node in onnx.load(target, load_external_data=False).graph.node]
    assert labels == ["gpu_0"] * 2 + ["cpu_0"] * (2 * layers - 2)


def test_a_copy_that_fails_its_check_leaves_nothing(tmp_path: Path) -> None:
    """Neither model nor options nor weights, and what was there stays."""
    model = with_side_files(tmp_path / "model.onnx", 2, 8, 2)
    source = pk.read_model(model)
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, np.zeros(source.graph.num_ops, int))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "placed.onnx.data").write_text("old")

    def fail(*_: object) -> None:
        raise ExecutionError("no")

    for target in (folder / "placed.onnx", tmp_path / "placed.onnx"):
        with pytest.raises(ExecutionError, match="no"):
            write_annotated(model, source.graph, placement, PLATFORM, target, fail)
    assert [each.name for each in folder.iterdir()] == ["placed.onnx.data"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "out", "weights0.bin", "weights1.bin"]
    pk.read_model(model).load()


WITH_FUNCTIONS = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[4,64] x) => (float[4,64] y) { h = own.block (x)  y = own.block (h) }
<domain: "own", opset_import: ["" : 18]> block (a) => (b) { c = Relu (a)  d = Add (c, c)  b = Tanh (d) }"""


def test_nodes_inside_of_functions_go_where_their_ops_are(tmp_path: Path) -> None:
    """A call of a function runs on one device: the copy has the nodes inside instead, each with its own."""
    pytest.importorskip("onnxruntime")
    path, target = tmp_path / "functions.onnx", tmp_path / "placed.onnx"
    onnx.save(onnx.parser.parse_model(WITH_FUNCTIONS), path)
    source = pk.read_model(path)
    on_gpu = [name for name in source.graph.op_names if name.startswith("d")]
    assert len(on_gpu) == 2
    at = np.array([int(name in on_gpu) for name in source.graph.op_names])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    data = {"x": np.ones((4, 64), np.float32)}
    write_annotated(
        path, source.graph, placement, PLATFORM, target, lambda new, rules: check_annotated(path, new, rules, data)
    )
    nodes = onnx.load(target).graph.node
    assert [(node.op_type, node.metadata_props[0].value) for node in nodes] == [
        ("Relu", "cpu_0"), ("Add", "gpu_0"), ("Tanh", "cpu_0"),
    ] * 2  # fmt: skip


def test_nodes_of_one_name_keep_devices_of_their_own(tmp_path: Path) -> None:
    """Later ones are ops ``n#2``, ``n#3``, ...; nodes inside of an If are where the If is."""
    make = onnx.helper.make_node
    bodies = [
        onnx.helper.make_graph(
            [make(kind, ["c"], [f"{kind}_out"], name="n")], kind, [],
            [onnx.helper.make_tensor_value_info(f"{kind}_out", onnx.TensorProto.FLOAT, [2, 2])],
        )
        for kind in ("Exp", "Tanh")
    ]  # fmt: skip
    nodes = [
        make("Relu", ["x"], ["a"], name="n"),
        make("Sigmoid", ["a"], ["b"], name="n"),
        make("Tanh", ["b"], ["c"], name="n"),
        make("If", ["yes"], ["d"], then_branch=bodies[0], else_branch=bodies[1], name="choose"),
    ]
    ends = [
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2]),
        onnx.helper.make_tensor_value_info("yes", onnx.TensorProto.BOOL, []),
    ]
    out = [onnx.helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, [2, 2])]
    path, target = tmp_path / "twins.onnx", tmp_path / "placed.onnx"
    graph = onnx.helper.make_graph(nodes, "twins", ends, out)
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    source = pk.read_model(path)
    type_of = dict(zip(source.graph.op_names, source.graph.op_types, strict=True))
    at = np.array([int(type_of[name] in ("Sigmoid", "If")) for name in source.graph.op_names])
    assert at.sum() == 2
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    write_annotated(path, source.graph, placement, PLATFORM, target)
    nodes = onnx.load(target).graph.node
    assert [node.metadata_props[0].value for node in nodes] == ["cpu_0", "gpu_0", "cpu_0", "gpu_0"]
    inner = [each.g.node[0].metadata_props[0].value for each in nodes[3].attribute]
    assert inner == ["gpu_0", "gpu_0"]


def test_what_the_nodes_would_lose_is_refused(tmp_path: Path) -> None:
    """Ops of one node on two devices, and a device whose ops are all folded: named, and nothing is written."""
    make = onnx.helper.make_node
    weights = [
        onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w"),
        onnx.numpy_helper.from_array(np.ones(8, np.float32), "b"),
    ]
    nodes = [make("Gemm", ["x", "w", "b"], ["h"], name="dense"), make("Relu", ["h"], ["y"], name="relu")]
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2, 8])] for end in ("x", "y")]
    path, target = tmp_path / "dense.onnx", tmp_path / "placed.onnx"
    graph = onnx.helper.make_graph(nodes, "dense", *ends, weights)
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    source = pk.read_model(path)
    (product,) = [
        name for name, kind in zip(source.graph.op_names, source.graph.op_types, strict=True) if kind == "MatMul"
    ]
    at = np.array([int(name == product) for name in source.graph.op_names])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    with pytest.raises(UnsupportedProblemError, match=rf"op '{product}' is on 'gpu.0' .* would be on 'cpu.0'"):
        write_annotated(path, source.graph, placement, PLATFORM, target)
    assert not target.exists()

"""The reader of ONNX files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidFileError, SolverUnavailableError

pytest.importorskip("openvino")
onnx = pytest.importorskip("onnx")

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture
def mlp_onnx(tmp_path: Path) -> Path:
    """Return a file with x -> Gemm -> Relu -> y, a batch of unknown size, names of its own."""
    rng = np.random.default_rng(0)
    weights = onnx.numpy_helper.from_array(rng.standard_normal((64, 32)).astype(np.float32), "weights")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "weights"], ["hidden"], name="MatMul_7"),
        onnx.helper.make_node("Relu", ["hidden"], ["y"], name="relu"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "mlp",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 32])],
        [weights],
    )
    path = tmp_path / "mlp.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_names_of_the_file_are_kept(mlp_onnx: Path) -> None:
    """A name that looks made up but stands in the file is kept."""
    model = read_model(mlp_onnx)
    assert {"x", "MatMul_7"} <= set(model.graph.op_names)
    assert model.inputs[0].shape == (-1, 64)
    assert model.graph.op_weight_bytes.sum() == 4 * 64 * 32


def save_chain(path: Path, nodes: list[Any], output: str) -> Path:
    """Write a file with 3-channel images `x`, `nodes`, and one output, all weights ``[3, 3, 3, 3]`` or ``[3]``."""
    rng = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal((3,) * rank).astype(np.float32), name)
        for name, rank in (("kernel", 4), ("bias", 1))
    ]
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, None, None]) for name in ("x", output)
    ]
    graph = onnx.helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_ops_have_the_names_of_nodes_and_results_those_of_tensors(tmp_path: Path) -> None:
    """Nodes that the converter splits, merges or renames keep the name that Netron shows, or the nearest one."""
    make = onnx.helper.make_node
    nodes = [
        make("ConvTranspose", ["x", "kernel", "bias"], ["grown"], name="grow"),
        make("Conv", ["grown", "kernel"], ["seen"], name="look"),
        make("Mul", ["seen", "seen"], ["square"], name="square it"),
        make("Relu", ["square"], ["out"], name="last"),
    ]
    graph = read_model(save_chain(tmp_path / "named.onnx", nodes, "out"), {"x": (1, 3, 8, 8)}).graph
    types = dict(zip(graph.op_names, graph.op_types, strict=True))
    assert types["last"] == "Relu"
    assert types["out"] == "Result"
    assert types["look"] == "Convolution"
    assert types["square it"] == "Multiply"
    assert all(name.startswith("grow") for name in set(types) - {"x", "look", "square it", "last", "out"})
    assert "ConvolutionBackpropData" in {types[name] for name in types if name.startswith("grow")}


def test_a_result_is_told_from_a_node_without_a_name(tmp_path: Path) -> None:
    """A node without a name is called by its tensor; the Result of that tensor is told from it."""
    node = onnx.helper.make_node("Relu", ["x"], ["203"])
    graph = read_model(save_chain(tmp_path / "nameless.onnx", [node], "203"), {"x": (1, 3, 8, 8)}).graph
    assert graph.op_names == ("x", "203", "203/output")


def test_shape_can_be_given_by_tensor_name(mlp_onnx: Path) -> None:
    """An unknown batch is settled by a shape for the input."""
    model = read_model(mlp_onnx, {"x": (4, 64)})
    assert model.inputs[0].shape == (4, 64)
    assert model.graph.op_flops[model.graph.op_index["MatMul_7"]] == 2 * 4 * 64 * 32
    model.load()


@pytest.mark.slow
@pytest.mark.skipif(not LIGHT.is_dir(), reason="the onnx package comes without its light models")
def test_resnet50_is_folded_and_named_the_same_every_time() -> None:
    """Batch norms are fused, and fused layers, whose names OpenVINO makes up anew each time, have stable ones."""
    path = LIGHT / "light_resnet50.onnx"
    model = read_model(path)
    assert (model.num_nodes, model.num_edges) == (288, 303)
    assert (model.graph.num_ops, model.graph.num_edges) == (179, 194)
    assert read_model(path).graph == model.graph
    names = {node.get_friendly_name() for node in model.load().get_ops()}
    assert set(model.graph.op_names) <= names
    assert not [name for name in model.graph.op_names if "#" in name or "sink_port" in name]
    assert model.graph.op_flops.sum() == pytest.approx(8.19e9, rel=0.01)


def test_truncated_file_is_a_named_error(mlp_onnx: Path) -> None:
    """Every truncation is refused as no model, or as one without a graph."""
    data = mlp_onnx.read_bytes()
    for length in (1, 10, 50, len(data) // 2, len(data) - 30):
        mlp_onnx.write_bytes(data[:length])
        with pytest.raises(InvalidFileError, match=r"mlp\.onnx: (not an ONNX model|OpenVINO cannot)") as caught:
            read_model(mlp_onnx)
        assert "\n" not in str(caught.value)


def test_external_data_is_hashed_and_missed(mlp_onnx: Path) -> None:
    """Weights in a file of their own count for the hash, and their absence is a named error."""
    model = onnx.load(mlp_onnx)
    onnx.save(model, mlp_onnx, save_as_external_data=True, location="weights.bin", size_threshold=0)
    data = mlp_onnx.with_name("weights.bin")
    before = read_model(mlp_onnx).content_hash
    data.write_bytes(data.read_bytes()[::-1])
    assert read_model(mlp_onnx).content_hash != before
    data.unlink()
    with pytest.raises(InvalidFileError, match=r"external data is missing: weights\.bin"):
        read_model(mlp_onnx)


@pytest.mark.parametrize("count", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_flipped_bytes_give_a_model_or_a_named_error(mlp_onnx: Path, count: int) -> None:
    """Files with a few altered bytes are read or refused on one line."""
    original = mlp_onnx.read_bytes()
    refusals = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        data = bytearray(original)
        # the weights are most of the file; alter what surrounds them
        for at in rng.integers(0, 150, size=rng.integers(1, 4)):
            data[at] = rng.integers(256)
        mlp_onnx.write_bytes(bytes(data))
        try:
            read_model(mlp_onnx)
        except InvalidFileError as error:
            refusals.append(str(error))
    assert refusals
    assert not [text for text in refusals if "\n" in text]


def test_an_unknown_op_is_named(tmp_path: Path) -> None:
    """What OpenVINO cannot convert stands in the message, without the lines around it."""
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    node = onnx.helper.make_node("FancyOp", ["x"], ["y"], domain="my.domain")
    graph = onnx.helper.make_graph([node], "fancy", ports[:1], ports[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "fancy.onnx")
    with pytest.raises(InvalidFileError, match=r"convert it: No conversion rule found .*my\.domain\.FancyOp$"):
        read_model(tmp_path / "fancy.onnx")


def saved(
    path: Path, nodes: list[Any], ports: tuple[dict[str, Any], dict[str, Any]], weights: Any, **more: Any
) -> Path:
    """Write a model: its nodes, shapes of inputs and outputs by name, and weights by name."""
    values = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in each.items()]
        for each in ports
    ]
    initializers = [onnx.numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", *values, initializers)
    onnx.save(onnx.helper.make_model(graph, ir_version=8, **more), path)
    return path


def opsets(*others: str) -> list[Any]:
    """Return the operator sets of a model."""
    return [onnx.helper.make_opsetid("", 17), *(onnx.helper.make_opsetid(each, 1) for each in others)]


def test_a_selection_costs_what_it_costs_at_most(tmp_path: Path) -> None:
    """Ten boxes of each of two classes; nobody knows how many there will be."""
    node = onnx.helper.make_node
    weights = {
        "w": np.ones((4, 256), np.float32), "most": np.array([10]), "overlap": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32), "two": np.array([2]), "axis": np.array([1]), "first": np.array([0]),
    }  # fmt: skip
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["indices"]),
        node("Gather", ["indices", "two"], ["column"], axis=1),
        node("Squeeze", ["column", "axis"], ["chosen"]),
        node("Squeeze", ["boxes", "first"], ["table"]),
        node("Gather", ["table", "chosen"], ["selected"], axis=0),
        node("MatMul", ["selected", "w"], ["y"]),
    ]
    ports = {"scores": [1, 2, 100], "boxes": [1, 100, 4]}, {"y": [None, 256]}
    model = read_model(saved(tmp_path / "nms.onnx", nodes, ports, weights, opset_imports=opsets()))
    graph = model.graph
    product = graph.op_types.index("MatMul")
    assert graph.op_flops[product] == 2 * 20 * 4 * 256
    assert graph.tensor_bytes[graph.tensor_producer.tolist().index(product)] == 20 * 256 * 4
    model.require_static()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_an_input_that_is_an_output_is_one_input(names: tuple[str, str], tmp_path: Path) -> None:
    """In the file's order, with its shape and name."""
    node = onnx.helper.make_node("MatMul", ["a", "b"], ["y"])
    shapes = {"a": [2, 8], "b": [8, 8]}
    inputs = {name: shapes[name] for name in names}
    model = read_model(
        saved(tmp_path / "same.onnx", [node], (inputs, {"y": [2, 8], **inputs}), {}, opset_imports=opsets())
    )
    assert [(each.name, list(each.shape)) for each in model.inputs] == list(inputs.items())
    loaded = model.load()
    assert [port.get_names() for port in loaded.inputs] == [{name} for name in names]
    assert len(loaded.outputs) == 3
    assert read_model(model.path, {"a": (4, 8)}).inputs[names.index("a")].shape == (4, 8)


def with_function(folder: Path) -> Path:
    """Write a model that calls a function of its own."""
    inner = [onnx.helper.make_node("MatMul", ["x", "w"], ["m"]), onnx.helper.make_node("Relu", ["m"], ["y"])]
    function = onnx.helper.make_function("local", "layer", ["x", "w"], ["y"], inner, opsets())
    node = onnx.helper.make_node("layer", ["x", "w"], ["y"], domain="local")
    weights = {"w": np.ones((8, 8), np.float32)}
    ports = {"x": [2, 8]}, {"y": [2, 8]}
    return saved(folder / "function.onnx", [node], ports, weights, opset_imports=opsets("local"), functions=[function])


def test_functions_of_a_model_are_inlined(tmp_path: Path) -> None:
    """Their operators are ops like all others, the same at every reading."""
    model = read_model(with_function(tmp_path))
    assert model.graph.op_types == ("Parameter", "MatMul", "Relu", "Result")
    assert model.weight_bytes == 8 * 8 * 4
    assert len(model.load().get_results()) == 1


def test_reading_needs_the_package_onnx(mlp_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the error says how to get it."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SolverUnavailableError, match=r"mlp\.onnx needs onnx: pip install 'placekit\[onnx\]'$"):
        read_model(mlp_onnx)


@pytest.mark.slow
@pytest.mark.parametrize("is_external", [False, True])
def test_large_weights_are_read_in_bounds(tmp_path: Path, is_external: bool) -> None:
    """Half a gigabyte: no more memory than OpenVINO takes afterwards, and next to none for weights in another file."""
    size = 4096
    nodes = [onnx.helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"x{at + 1}"]) for at in range(8)]
    rng = np.random.default_rng(0)
    weights = {f"w{at}": rng.random((size, size), dtype=np.float32) for at in range(8)}
    path = saved(
        tmp_path / "large.onnx", nodes, ({"x0": [1, size]}, {"x8": [1, size]}), weights, opset_imports=opsets()
    )
    if is_external:
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="large.bin", size_threshold=0)
        assert path.stat().st_size < 10_000
    code = (
        "import re, sys; from pathlib import Path; from placekit.io.models import onnx\n"
        "assert len(onnx.model_files(Path(sys.argv[1]))) == int(sys.argv[2])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    files = str(1 + is_external)
    told = subprocess.run([sys.executable, "-c", code, path, files], check=True, capture_output=True, text=True).stdout
    assert int(told) < (300 if is_external else 1500) * 1024  # KiB: the bytes and the message, freed before conversion
    assert read_model(path).weight_bytes == 8 * size * size * 4


def test_a_weight_of_several_ops_counts_once(tmp_path: Path) -> None:
    """In the total; each of its readers needs it."""
    nodes = [onnx.helper.make_node(kind, [a, "w"], [b]) for kind, a, b in (("Add", "x", "m"), ("Max", "m", "y"))]
    weights = {"w": np.arange(16, dtype=np.float32).reshape(2, 8)}
    ports = {"x": [2, 8]}, {"y": [2, 8]}
    model = read_model(saved(tmp_path / "tied.onnx", nodes, ports, weights, opset_imports=opsets()))
    assert model.graph.op_weight_bytes.sum() == 2 * 2 * 8 * 4
    assert model.weight_bytes == 2 * 8 * 4

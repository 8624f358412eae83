"""Model sources: shapes from text, errors of reading, and what a source promises."""

import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placekit.io.models.model_inputs import format_shape, parse_shape
from placekit.io.models.read_model import read_model
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.graph import DYNAMIC
from placekit.model.platform import Platform

ov = pytest.importorskip("openvino")
ops = pytest.importorskip("openvino.opset13")


@pytest.fixture
def dynamic_ir(tmp_path: Path) -> Path:
    """Two inputs: ids[?,?] and scale[2..8,4]; ids is cut down by its own shape."""
    ids = ops.parameter([-1, -1], ov.Type.f32, name="ids")
    scale = ops.parameter(ov.PartialShape([ov.Dimension(2, 8), 4]), ov.Type.f32, name="scale")
    shape = ops.shape_of(ids)
    shape.set_friendly_name("shape")
    flat = ops.reshape(ids, shape, False, name="flat")
    ids_sum = ops.reduce_sum(flat, ops.constant(np.array([0, 1])), False, name="sum")
    product = ops.matmul(scale, ops.constant(np.ones((4, 2), np.float32)), False, False, name="product")
    out = ops.multiply(product, ids_sum, name="out")
    path = tmp_path / "dynamic.xml"
    ov.save_model(ov.Model([ops.result(out, name="result")], [ids, scale], "dynamic"), path)
    return path


_NAMES = st.text(st.characters(codec="ascii", exclude_characters="[],", categories=["L", "N", "P"]), min_size=1)


@given(st.dictionaries(_NAMES, st.lists(st.integers(DYNAMIC, 10**6), max_size=5).map(tuple)).filter(bool))
def test_shapes_survive_formatting_and_parsing(shapes: dict[str, tuple[int, ...]]) -> None:
    """`parse_shape` reads back what `format_shape` wrote, for any names and dimensions."""
    text = ",".join(f"{name}{format_shape(shape)}" for name, shape in shapes.items())
    assert parse_shape(text) == shapes


@pytest.mark.parametrize(
    "text", ["", "ids", "ids[1,128", "ids[1,128]x[2]", "ids[a]", "ids[-2]", "ids[1,,2]", "a[1],a[2]"]
)
def test_malformed_shape_is_refused(text: str) -> None:
    """A text of another form is a named error that repeats it."""
    with pytest.raises(InvalidProblemError, match=r"shape '"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none.xml", None, "no such file"),
        ("model.pb", b"x", "no reader for the suffix '.pb'; models are read from .xml, .onnx"),
        ("garbage.xml", b"\x00\xff garbage", "not an OpenVINO IR"),
        ("empty.xml", b"", "not an OpenVINO IR"),
        ("other.xml", b"<html><layers/></html>", "not an OpenVINO IR.*found <html>"),
        ("bare.xml", b"<net/>", "not an OpenVINO IR"),
        ("garbage.onnx", b"\x00\xff garbage", "not an ONNX model"),
        ("empty.onnx", b"", "not an ONNX model"),
    ],
)
def test_broken_file_is_a_named_error_on_one_line(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    """What is no model is refused with the file and the reason, on one line."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidFileError, match=reason) as caught:
        read_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directory_is_not_a_model(tmp_path: Path) -> None:
    """A directory with the right suffix is refused as what it is."""
    (tmp_path / "model.xml").mkdir()
    with pytest.raises(InvalidFileError, match="not a file"):
        read_model(tmp_path / "model.xml")


def test_dynamic_inputs_are_listed_and_refused_with_the_remedy(dynamic_ir: Path) -> None:
    """Unknown dimensions are DYNAMIC, and `require_static` says what to type."""
    model = read_model(dynamic_ir)
    assert {each.name: each.shape for each in model.dynamic_inputs} == {"ids": (-1, -1), "scale": (-1, 4)}
    # bytes take the least size: 1 for '?', the lower bound of a range
    sizes = {
        model.graph.op_names[p]: b for p, b in zip(model.graph.tensor_producer, model.graph.tensor_bytes, strict=True)
    }
    assert sizes["ids"] == 4
    assert sizes["scale"] == 2 * 4 * 4
    with pytest.raises(InvalidFileError, match=r"input 'ids' has shape \[\?,\?\].*--shape ids\[1,1\],scale\[1,4\]"):
        model.require_static()


def test_sizes_that_data_decide_count_at_their_bound(tmp_path: Path) -> None:
    """What is not zero: at most all; a range as long as a sum of the input: nobody knows, and it is refused."""
    x = ops.parameter([4, 8], ov.Type.f32, name="x")
    chosen = ops.convert(ops.non_zero(x, "i64", name="chosen"), "f32", name="numbers")
    total = ops.convert(ops.reduce_sum(x, ops.constant(np.array([0, 1])), False), "i64")
    count = ops.range(ops.constant(np.int64(0)), total, ops.constant(np.int64(1)), "f32", name="count")
    doubled = ops.multiply(count, ops.constant(np.float32(2)), name="doubled")
    for name, end in (("bounded", chosen), ("endless", doubled)):
        out = ops.relu(end, name="out")
        ov.save_model(ov.Model([ops.result(out, name="result")], [x], name), tmp_path / f"{name}.xml", False)
    bounded = read_model(tmp_path / "bounded.xml")
    bounded.require_static()
    assert bounded.graph.op_flops[bounded.graph.op_index["out"]] == 2 * 4 * 8
    endless = read_model(tmp_path / "endless.xml")
    with pytest.raises(
        InvalidFileError, match=r"op 'count' \(Range\) gives shape \[\?\]; the size depends on the values of tensors"
    ):
        endless.require_static()
    assert pickle.loads(pickle.dumps(endless)).unbounded == endless.unbounded


def test_given_shapes_make_the_model_static_and_fold_what_they_decide(dynamic_ir: Path) -> None:
    """With all shapes given the model is static, in the graph and when loaded, and the shape computation is gone."""
    model = read_model(dynamic_ir, parse_shape("ids[1,128],scale[2,4]"))
    model.require_static()
    assert "shape" in read_model(dynamic_ir).graph.op_index
    assert "shape" not in model.graph.op_index
    assert list(model.load().inputs[0].shape) == [1, 128]
    assert model.content_hash != read_model(dynamic_ir).content_hash


def test_a_shape_for_no_input_names_the_inputs(dynamic_ir: Path) -> None:
    """An unknown name, and a missing one where there are several inputs, are named errors."""
    with pytest.raises(UnknownNameError, match="no input 'mask'; inputs are ids, scale"):
        read_model(dynamic_ir, {"mask": (1, 2)})
    with pytest.raises(UnknownNameError, match=r"no input 'ids='; inputs are ids, scale; write ids\[1,128\]"):
        read_model(dynamic_ir, parse_shape("ids=[1,128],scale[2,4]"))
    with pytest.raises(UnknownNameError, match="no single input: it has 2"):
        read_model(dynamic_ir, {"": (1, 2)})


def test_an_impossible_shape_is_a_named_error(dynamic_ir: Path) -> None:
    """A shape that the model's products cannot take, or that is none, names the file and the shape."""
    with pytest.raises(InvalidFileError, match=r"does not take the shape scale\[1,5\]") as caught:
        read_model(dynamic_ir, {"scale": (1, 5)})
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidProblemError, match="dimensions must be >= 0"):
        read_model(dynamic_ir, {"ids": (1, -5)})


def test_source_pickles_and_makes_a_problem(dynamic_ir: Path) -> None:
    """A source survives pickling, and its problem has its graph and colocation."""
    model = pickle.loads(pickle.dumps(read_model(dynamic_ir)))
    graph = model.graph
    costs = CostTable(("cpu",), np.ones((graph.num_ops, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(graph.num_ops))
    problem = model.problem(Platform.of(cpu=2, host="cpu"), costs, contiguity="none")
    assert problem.graph is graph
    assert problem.contiguity == "none"
    np.testing.assert_array_equal(problem.colocation, model.colocation)


def test_load_notices_another_model_in_the_file(dynamic_ir: Path) -> None:
    """A file that changed under a source is an error, not a model with other names."""
    model = read_model(dynamic_ir)
    dynamic_ir.write_text(dynamic_ir.read_text().replace('name="sum"', 'name="total"'))
    with pytest.raises(InvalidFileError, match="has changed since it was read"):
        model.load()


def test_hash_depends_on_graph_weights_and_shapes_only(tmp_path: Path) -> None:
    """The same bytes elsewhere have the same hash; another weight, or another shape, another."""
    hashes = SimpleNamespace()
    for name, weight in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        x = ops.parameter([1, 4], ov.Type.f32, name="x")
        y = ops.multiply(x, ops.constant(np.full((1, 4), weight, np.float32)), name="y")
        model = ov.Model([ops.result(y, name="r")], [x], "m")
        ov.save_model(model, tmp_path / f"{name}.xml", compress_to_fp16=False)
        if name == "b":  # automatic names of constants differ within a process
            for suffix in (".xml", ".bin"):
                (tmp_path / f"b{suffix}").write_bytes((tmp_path / f"a{suffix}").read_bytes())
        setattr(hashes, name, read_model(tmp_path / f"{name}.xml").content_hash)
    assert hashes.a == hashes.b != hashes.c
    assert read_model(tmp_path / "a.xml", {"": (1, 4)}).content_hash != hashes.a

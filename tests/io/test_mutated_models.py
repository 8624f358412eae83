"""Broken models and cache entries: read, or refused by name."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from fuzz.mutations import damaged
from openvino import opset13 as opset

import placekit as pk
from placekit.cost_models.measured.cache import ProfileCache
from placekit.io.files.platform_toml import read_platform
from placekit.io.models.read_model import read_model
from placekit.model.errors import PlacekitError


def write_ir(path: Path) -> None:
    """Write a small IR with weights."""
    data = opset.parameter([1, 4], np.float32, name="in")
    weights = opset.constant(np.arange(16, dtype=np.float32).reshape(4, 4), name="w")
    product = opset.matmul(data, weights, False, False, name="mm")
    model = ov.Model([opset.result(opset.relu(product, name="act"), name="out")], [data], "small")
    ov.save_model(model, path, compress_to_fp16=False)


def write_onnx(path: Path) -> None:
    """Write a small ONNX model."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w")
    product = helper.make_node("MatMul", ["in", "w"], ["m"], name="mm")
    nodes = [product, helper.make_node("Relu", ["m"], ["out"], name="act")]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("in", kind, [1, 4])],
        [helper.make_tensor_value_info("out", kind, [1, 4])],
        [weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize("suffix", [".xml", ".bin", ".onnx"])
@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_models_are_read_or_refused_by_name(suffix: str, count: int, tmp_path: Path) -> None:
    """In the graph as in the weights; what is read has costs."""
    model = tmp_path / ("m.onnx" if suffix == ".onnx" else "m.xml")
    (write_onnx if suffix == ".onnx" else write_ir)(model)
    read_model(model)
    path = model.with_suffix(suffix)
    content, platform, refused = path.read_bytes(), pk.Platform.of(cpu=1), 0
    for seed in range(6, 6 + count):  # the first few models that are read and refused
        path.write_bytes(damaged(content, random.Random(seed)))
        try:
            costs = pk.Analytic().cost_table(read_model(model).graph, platform)
            assert np.isfinite(costs.op_time_s).all()
        except PlacekitError as error:
            refused += 1
            assert 0 < len(str(error)) < 20_000  # noqa: PT017  # every error is one of these
        except Exception as error:
            raise AssertionError(f"{suffix} seed {seed}: {type(error).__name__}: {error}") from error
    assert count // 4 <= refused < count


def test_external_data_lies_beside_the_model(tmp_path: Path) -> None:
    """A model cannot have the file of another folder read as its weights."""
    onnx = pytest.importorskip("onnx")
    folder = tmp_path / "models"
    folder.mkdir()
    write_onnx(folder / "m.onnx")
    model = onnx.load(folder / "m.onnx")
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    read_model(folder / "m.onnx")
    (folder / "w.bin").rename(tmp_path / "w.bin")
    content = (folder / "m.onnx").read_bytes()
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../w.bin"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    assert content != (folder / "m.onnx").read_bytes()
    with pytest.raises(PlacekitError, match="leads out of the folder"):
        read_model(folder / "m.onnx")


@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_cache_entries_are_whole_or_missing(count: int, tmp_path: Path) -> None:
    """Never something else than what was stored, and never an error: what is missing is measured again."""
    cache, stored = ProfileCache(tmp_path), {"a": np.arange(100.0), "b": np.array([True, False])}
    cache.store("entry", stored, {"x": [1, "y"]})
    content = cache.path("entry").read_bytes()
    missing = 0
    for seed in range(count):
        cache.path("entry").write_bytes(damaged(content, random.Random(seed)))
        found = cache.load("entry")
        missing += found is None
        if found is not None:
            assert found[1] == {"x": [1, "y"]}
            for name, array in found[0].items():
                np.testing.assert_array_equal(array, stored[name])
    assert missing > count * 0.7


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_platforms_are_read_or_refused_by_name(count: int, tmp_path: Path) -> None:
    """The bytes of a platform file."""
    valid = (
        b'[[device]]\nname = "CPU"\nkind = "cpu"\nhost = true\nmemory = "16 GiB"\ncores = [0, 1]\ncount = 1\n'
        b"[link.cpu]\nlatency_s = 1e-5\n"
    )
    path, refused = tmp_path / "platform.toml", 0
    for seed in range(count):
        path.write_bytes(damaged(valid, random.Random(seed)))
        try:
            read_platform(path)
        except PlacekitError as error:
            refused += 1
            assert 0 < len(str(error)) < 20_000  # noqa: PT017  # as above
    assert count // 4 <= refused < count

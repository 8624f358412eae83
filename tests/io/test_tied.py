"""Tied weights: one weight in the total, and one on a device with several of its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.cli.output.facts import model_facts
from placekit.cost_models.analytic import Analytic
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model

ov = pytest.importorskip("openvino")
onnx = pytest.importorskip("onnx")

ROWS, WIDTH = 1000, 64
TIED = ROWS * WIDTH * 4
INNER = WIDTH * WIDTH * 4


def language_model(path: Path, *, is_transposed: bool) -> Path:
    """Write an embedding, a layer, and a head with the embedding's matrix, which two products read."""
    node = onnx.helper.make_node
    rng = np.random.default_rng(0)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    head = "table_transposed" if is_transposed else "head"
    weights = {"table": table, "inner": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)}
    nodes = [
        node("Gather", ["table", "ids"], ["x"], name="embed"),
        node("MatMul", ["x", "inner"], ["h"], name="first"),
        node("Relu", ["h"], ["r"], name="relu"),
        node("MatMul", ["r", "inner"], ["s"], name="second"),
    ]
    if is_transposed:
        weights[head] = np.ascontiguousarray(table.T)
    else:
        nodes.append(node("Transpose", ["table"], [head], perm=[1, 0]))
    nodes.append(node("MatMul", ["s", head], ["logits"], name="head"))
    graph = onnx.helper.make_graph(
        nodes,
        "tied",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 8])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 8, ROWS])],
        [onnx.numpy_helper.from_array(each, name) for name, each in weights.items()],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check(source: ModelSource, small: float = 0.0) -> None:
    """Check the total, the header, and the memory of one device and of two; `small` is what is no matrix."""
    assert source.weight_bytes == TIED + INNER + small
    assert model_facts(source)["work"].endswith("weights 266 KiB")
    platform = pk.Platform.of(cpu=2, host="cpu")
    problem = source.problem(platform, Analytic({"cpu": "cpu-core-f32"}).cost_table(source, platform))
    device = np.zeros(source.graph.num_ops, dtype=np.int64)
    slots = 8 * 8 + 8 * ROWS * 4  # of the input and of the output
    together, nothing = problem.stage_memory.use(device, 2).weights
    assert (together, nothing) == (TIED + INNER + small + slots, 0)
    ((_, readers),) = [each for each in source.shared_weights if each[0] == TIED]
    device[readers[-1]] = 1
    apart = problem.stage_memory.use(device, 2).weights
    assert apart.sum() == together + TIED


@pytest.mark.parametrize("is_transposed", [False, True])
def test_onnx(tmp_path: Path, is_transposed: bool) -> None:
    """The converter makes a constant for each product; exporters write a matrix and its transposed one."""
    check(read_model(language_model(tmp_path / "tied.onnx", is_transposed=is_transposed)), small=8)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_openvino_ir(tmp_path: Path, is_transposed: bool) -> None:
    """The file has one copy of equal constants; the model has several."""
    converted = ov.convert_model(language_model(tmp_path / "tied.onnx", is_transposed=is_transposed))
    ov.save_model(converted, tmp_path / "tied.xml", compress_to_fp16=False)
    check(read_model(tmp_path / "tied.xml"), small=8)


def test_torch_export(tmp_path: Path) -> None:
    """A module that has one parameter under two names, and one layer that runs twice."""
    torch: Any = pytest.importorskip("torch")

    class Tied(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(ROWS, WIDTH)
            self.inner = torch.nn.Linear(WIDTH, WIDTH, bias=False)
            self.head = torch.nn.Linear(WIDTH, ROWS, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.inner(torch.relu(self.inner(self.table(ids)))))

    program = torch.export.export(Tied().eval(), (torch.zeros(1, 8, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "tied.pt2")
    check(read_model(tmp_path / "tied.pt2"))


def test_equal_numbers_are_no_tie(tmp_path: Path) -> None:
    """Two matrices of ones, and two that differ in one place, are four weights."""
    node = onnx.helper.make_node
    last = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    other = last.copy()
    other[3, 5] += 1
    weights = {"a": np.ones_like(last), "b": np.ones_like(last), "c": last, "d": other}
    nodes = [node("MatMul", [f"x{at}", name], [f"x{at + 1}"]) for at, name in enumerate(weights)]
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, WIDTH]) for name in ("x0", "x4")]
    values = [onnx.numpy_helper.from_array(each, name) for name, each in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], values)
    path = tmp_path / "four.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    source = read_model(path)
    assert source.weight_bytes == 4 * INNER
    assert source.shared_weights == ()

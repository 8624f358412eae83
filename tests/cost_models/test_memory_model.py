"""Bytes of a model's ops: what is alive, what is shared, what is never written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.memory_model import op_memory
from placekit.io.models.model import ModelSource

ov = pytest.importorskip("openvino")


def test_a_view_is_what_it_shows_and_a_fused_tensor_is_nothing() -> None:
    """matmul, fused with relu, then a view of a view that two ops read: one block of them all."""
    graph = pk.OpGraph.from_edges(
        ["in", "matmul", "relu", "flat", "again", "a", "b"],
        [("in", "matmul"), ("matmul", "relu"), ("relu", "flat"), ("flat", "again"), ("again", "a"), ("flat", "b")],
        op_types=["Parameter", "MatMul", "Relu", "Reshape", "Squeeze", "Exp", "Exp"],
        output_bytes=[4, 64, 64, 64, 64, 8, 8],
    )
    own, blocks = op_memory(graph.replace(op_weight_bytes=[0, 7, 0, 0, 0, 0, 0]), np.array([0, 1, 1, 3, 4, 5, 6]))
    assert own.tolist() == [4, 7, 0, 0, 0, 0, 0]  # a second slot of the input
    assert blocks is not None
    found = [
        (size, sorted(blocks.ops[start:end].tolist()))
        for size, start, end in zip(blocks.num_bytes.tolist(), blocks.offsets, blocks.offsets[1:], strict=False)
    ]
    assert found == [(4, [0, 1]), (64, [2, 3, 4, 5, 6])]


def test_a_weight_that_two_ops_read_counts_once_per_device(saved: Callable[..., ModelSource]) -> None:
    """Tied weights: once where both readers are, on both devices where they are apart."""
    from openvino import opset13 as ops

    width = 64
    data = ops.parameter([1, width], np.float32, name="x")
    tied = ops.constant(np.ones((width, width), dtype=np.float32))
    first = ops.matmul(data, tied, False, False, name="first")
    second = ops.matmul(ops.exp(first), tied, False, True, name="second")
    model: Any = ov.Model([second], [data], "tied")
    source = saved(model)
    num_bytes = 4 * width * width
    graph = source.graph
    readers = tuple(op for op in range(graph.num_ops) if graph.op_types[op] == "MatMul")
    assert source.shared_weights == ((num_bytes, readers),)
    assert graph.op_weight_bytes[list(readers)].tolist() == [num_bytes, num_bytes]
    platform = pk.Platform.of(cpu=2, host="cpu")
    problem = source.problem(platform, Analytic({"cpu": "cpu-core-f32"}).cost_table(source, platform))
    device = np.zeros(graph.num_ops, dtype=np.int64)
    slots = 2 * 4 * width  # a second one of the input, and of the output
    assert problem.stage_memory.use(device, 2).weights.tolist() == [num_bytes + slots, 0]
    device[readers[1]] = 1
    assert problem.stage_memory.use(device, 2).weights.tolist() == [num_bytes + slots, num_bytes]

"""Rates by number type: what runs in 8 bits is costed so, and is never slower than the model that it was made of."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from quantized_models import PRODUCTS, attention_block, perceptron, quantized, residual_net

import placekit as pk
from placekit.cost_models.analytic import roofline
from placekit.cost_models.sheets.device_table import DEVICE_TABLE, get_spec
from placekit.io.models.model import ModelSource
from placekit.io.models.number_types import INT8
from placekit.io.models.read_model import read_model
from placekit.model.platform import Device, Platform

Saved = Callable[[ov.Model], ModelSource]
MODELS = (residual_net, perceptron, attention_block)


def total_s(source: ModelSource, kind: str, **properties: str) -> float:
    """Return the analytic seconds of a model on a device of the table."""
    platform = Platform((Device("d", kind, properties=properties),))
    return float(pk.Analytic({kind: kind}).cost_table(source, platform).op_time_s.sum())


def products(source: ModelSource) -> list[str]:
    """Return the number types of the products of a model."""
    assert source.numbers is not None
    return [
        number for number, kind in zip(source.numbers.compute, source.graph.op_types, strict=True) if kind in PRODUCTS
    ]


@pytest.mark.parametrize("weights", ["stored", "rounded"])
@pytest.mark.parametrize("make", MODELS)
def test_quantised_twin_is_never_slower(
    saved: Saved, make: Callable[[], ov.Model], weights: Literal["stored", "rounded"]
) -> None:
    """On every device of the table, for 8-bit weights in the file and for weights that are rounded."""
    whole = saved(make())
    twin = saved(quantized(make(), weights))
    assert set(products(whole)) == {"f32"}
    assert set(products(twin)) == {INT8}
    for kind, spec in DEVICE_TABLE.items():
        before, after = total_s(whole, kind), total_s(twin, kind)
        assert after <= before * (1 + (1e-12 if spec.int8_speed > 1 else 1e-3)), kind  # the ranges are weights, too
        launches = spec.op_overhead_s * whole.graph.num_ops
        if spec.int8_speed > 1 and before > 2 * launches:
            assert after < before, kind
        if spec.int8_speed > 1:
            in_f32 = [total_s(each, kind, INFERENCE_PRECISION_HINT="f32") for each in (whole, twin)]
            assert in_f32[1] <= in_f32[0], kind


def test_products_run_at_the_rate_of_integers(saved: Saved) -> None:
    """Products of many rows take half of their time on an NPU in 8 bits, apart from their launches."""
    npu = get_spec("npu")
    time_s = {}
    for name, model in {"f32": perceptron(1024, 1024), "int8": quantized(perceptron(1024, 1024), "stored")}.items():
        source = saved(model)
        column, _ = roofline(source.graph, np.arange(source.graph.num_ops), npu, source.numbers)
        is_product = np.array([kind == "MatMul" for kind in source.graph.op_types])
        time_s[name] = float((column[is_product] - npu.op_overhead_s).sum())
    assert time_s["f32"] == pytest.approx(2 * time_s["int8"])


def test_weights_alone_in_8_bits_multiply_floats(saved: Saved) -> None:
    """Compressed weights behind a Convert are read as such, and multiplied as floats; images in u8 are no rounding."""
    x = opset.parameter([8, 64], ov.Type.f32, name="x")
    weight = opset.multiply(opset.convert(opset.constant(np.ones((64, 64), np.int8)), "f32"), np.float32(0.1))
    compressed = saved(ov.Model([opset.result(opset.matmul(x, weight, False, False, name="p"))], [x], "weights"))
    assert products(compressed) == ["f32"]
    image = opset.parameter([1, 3, 8, 8], ov.Type.u8, name="image")
    scaled = opset.multiply(opset.subtract(opset.convert(image, "f32"), np.float32(128)), np.float32(0.01))
    kernel = opset.constant(np.ones((4, 3, 3, 3), np.float32))
    seen = opset.convolution(scaled, kernel, [1, 1], [1, 1], [1, 1], [1, 1], name="c")
    assert products(saved(ov.Model([opset.result(seen)], [image], "u8"))) == ["f32"]


def test_floats_take_two_bytes_where_they_are_computed_with_16_bits(saved: Saved) -> None:
    """A GPU reads half of the bytes of a f32 model; one that is set to f32 reads all, at the rate of f32."""
    source = saved(perceptron(2048))
    launches_s = 3 * get_spec("h100").op_overhead_s
    in_f32, in_f16 = total_s(source, "h100", INFERENCE_PRECISION_HINT="f32"), total_s(source, "h100")
    assert in_f32 - launches_s == pytest.approx(2 * (in_f16 - launches_s), rel=0.01)
    assert get_spec("rtx4090").as_set(Device("d", "k", properties={"INFERENCE_PRECISION_HINT": "f32"})).float_bits == 32


def test_more_levels_than_8_bits_are_floats(saved: Saved) -> None:
    """A FakeQuantize of 65,536 levels needs 16 bits."""
    x = opset.parameter([8, 64], ov.Type.f32, name="x")
    low, high = np.float32(-1), np.float32(1)
    rounded = opset.fake_quantize(x, low, high, low, high, 65536)
    weight = opset.fake_quantize(opset.constant(np.ones((64, 64), np.float32)), low, high, low, high, 256)
    source = saved(ov.Model([opset.result(opset.matmul(rounded, weight, False, False))], [x], "levels"))
    assert products(source) == ["f32"]


def test_onnx_with_quantize_and_dequantize(tmp_path: Path) -> None:
    """What ONNX Runtime's quantiser writes multiplies integers; the types are kept when a source is pickled."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 16, 16])
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "w": np.ones((8, 8, 3, 3), np.int8),
        "ws": np.full(8, 0.01, np.float32),
        "wz": np.zeros(8, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "qdq", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "q.onnx")
    source = read_model(tmp_path / "q.onnx")
    assert products(source) == [INT8]
    assert pickle.loads(pickle.dumps(source)).numbers == source.numbers  # what was just pickled

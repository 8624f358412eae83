"""Quantised twins of models, and the small models that they are twins of."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import openvino as ov
from openvino import opset13 as opset

PRODUCTS = ("Convolution", "GroupConvolution", "MatMul")


def quantized(model: ov.Model, weights: Literal["stored", "rounded"]) -> ov.Model:
    """Return the model with all inputs of its products in 8 bits; weights stored so, or rounded when it is compiled."""
    model = model.clone()
    for node in model.get_ordered_ops():
        if node.get_type_name() not in PRODUCTS:
            continue
        for port in node.inputs()[:2]:
            source = port.get_source_output()
            constant = source.get_node()
            if constant.get_type_name() == "Constant" and weights == "stored":
                values = np.clip(np.round(constant.get_data() * 100), -127, 127).astype(np.int8)
                low = opset.multiply(opset.convert(opset.constant(values), "f32"), np.float32(0.01))
            else:
                low = _rounded(source)
            port.replace_source_output(low.output(0))
    return ov.Model(model.get_results(), model.get_parameters(), model.get_friendly_name())


def _rounded(source: Any) -> Any:
    low, high = np.float32(-1), np.float32(1)
    return opset.fake_quantize(source, low, high, low, high, 256)


def residual_net(channels: int = 32, size: int = 56) -> ov.Model:
    """Convolutions, a residual connection, a pooling, a depthwise convolution and a classifier."""
    rng = np.random.default_rng(0)
    image = opset.parameter([1, 3, size, size], ov.Type.f32, name="image")

    def convolved(x: Any, shape: tuple[int, ...], name: str) -> Any:
        make = opset.group_convolution if len(shape) == 5 else opset.convolution
        weight = opset.constant(rng.uniform(-1, 1, shape).astype(np.float32))
        return opset.relu(make(x, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=name), name=f"{name}/relu")

    first = convolved(image, (channels, 3, 3, 3), "stem")
    total = opset.add(convolved(first, (channels, channels, 3, 3), "body"), first, name="sum")
    pooled = opset.max_pool(total, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], name="pool").output(0)
    deep = convolved(convolved(pooled, (channels, 1, 1, 3, 3), "depthwise"), (channels, channels, 3, 3), "last")
    flat = opset.reduce_mean(deep, opset.constant(np.array([2, 3])), False, name="mean")
    weight = opset.constant(rng.uniform(-1, 1, (channels, 10)).astype(np.float32))
    return ov.Model([opset.result(opset.matmul(flat, weight, False, False, name="head"))], [image], "residual")


def perceptron(width: int = 512, rows: int = 8) -> ov.Model:
    """Three matrix products."""
    rng = np.random.default_rng(0)
    x = y = opset.parameter([rows, width], ov.Type.f32, name="x")
    for index in range(3):
        weight = opset.constant(rng.uniform(-1, 1, (width, width)).astype(np.float32))
        y = opset.relu(opset.matmul(y, weight, False, False, name=f"product{index}"), name=f"relu{index}")
    return ov.Model([opset.result(y)], [x], "perceptron")


def attention_block(length: int = 64, width: int = 128) -> ov.Model:
    """One transformer layer: queries, keys and values, products of two activations, a softmax, a feed-forward net."""
    rng = np.random.default_rng(0)
    x = opset.parameter([1, length, width], ov.Type.f32, name="x")

    def times(y: Any, inner: int, outer: int, name: str) -> Any:
        weight = opset.constant(rng.uniform(-1, 1, (inner, outer)).astype(np.float32))
        return opset.matmul(y, weight, False, False, name=name)

    query, key, value = (times(x, width, width, name) for name in ("query", "key", "value"))
    scores = opset.softmax(opset.matmul(query, key, False, True, name="scores"), -1, name="softmax")
    mixed = opset.add(times(opset.matmul(scores, value, False, False, name="mixed"), width, width, "out"), x)
    wide = opset.gelu(times(mixed, width, 4 * width, "up"), "erf")
    return ov.Model([opset.result(opset.add(times(wide, 4 * width, width, "down"), mixed))], [x], "attention")

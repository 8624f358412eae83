"""Graphs like those of real models, of any depth, width and batch, without building a model: to learn from.

Ops have OpenVINO's types, and the shapes, floating-point operations and weights that such layers have. Three sorts
follow real architectures (residual and branching image classifiers, transformer encoders); `layered` is a random DAG of
the same ops, so that a policy does not only learn the habits of the three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from placekit.model.graph import OpGraph

_BYTES = 4  # f32
_POINTWISE = ("Relu", "Sigmoid", "Multiply", "Add")


class _Builder:
    """Collects ops; every op writes one tensor."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.inputs: list[tuple[int, ...]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.flops: list[float] = []
        self.weights: list[float] = []

    def add(
        self, op_type: str, inputs: Sequence[int], shape: Sequence[int], flops: float | None = None, weights: float = 0
    ) -> int:
        """Add an op; by default it does one operation per output element. Return its index."""
        self.types.append(op_type)
        self.inputs.append(tuple(dict.fromkeys(inputs)))
        self.shapes.append(tuple(int(size) for size in shape))
        self.flops.append(float(math.prod(shape)) if flops is None else float(flops))
        self.weights.append(float(weights))
        return len(self.types) - 1

    def convolution(self, x: int, channels: int, kernel: int, stride: int = 1) -> int:
        """Add convolution, bias and ReLU of `x` ``(batch, channels, height, width)``."""
        batch, before, height, width = self.shapes[x]
        shape = (batch, channels, -(-height // stride), -(-width // stride))
        each = before * kernel * kernel
        y = self.add("Convolution", [x], shape, 2 * each * math.prod(shape), _BYTES * each * channels)
        return self.add("Relu", [self.add("Add", [y], shape, weights=_BYTES * channels)], shape)

    def product(self, x: int, width: int) -> int:
        """Add the product of `x` ``(..., width)`` with a matrix, and a bias."""
        *rows, before = self.shapes[x]
        shape = (*rows, width)
        y = self.add("MatMul", [x], shape, 2 * before * math.prod(shape), _BYTES * before * width)
        return self.add("Add", [y], shape, weights=_BYTES * width)

    def finish(self, x: int, name: str, classes: int | None = None) -> OpGraph:
        """Add a classifier if `classes` says so, and the result; return the graph."""
        if classes is not None:
            batch, channels = self.shapes[x][:2]
            pooled = self.add("ReduceMean", [x], (batch, channels), math.prod(self.shapes[x]))
            x = self.product(pooled, classes)
        self.add("Result", [x], self.shapes[x], 0)
        names = [f"{op_type}_{op}" for op, op_type in enumerate(self.types)]
        edges = [(names[producer], names[op]) for op, inputs in enumerate(self.inputs) for producer in inputs]
        sizes = [_BYTES * math.prod(shape) for shape in self.shapes]
        graph = OpGraph.from_edges(names, edges, name=name, op_types=self.types, output_bytes=sizes)
        return graph.replace(
            op_flops=np.array(self.flops),
            op_weight_bytes=np.array(self.weights),
            tensor_shapes=tuple(self.shapes[op] for op in graph.tensor_producer),
        )


def _image(b: _Builder, rng: np.random.Generator, channels: int) -> int:
    size = 32 * int(rng.integers(4, 10))
    x = b.add("Parameter", [], (int(rng.choice([1, 1, 2, 4])), 3, size, size), 0)
    x = b.convolution(x, channels, 7, 2)
    batch, _, height, width = b.shapes[x]
    return b.add("MaxPool", [x], (batch, channels, -(-height // 2), -(-width // 2)), 9 * math.prod(b.shapes[x]) / 4)


def _residual(rng: np.random.Generator, name: str) -> OpGraph:
    b = _Builder()
    width = int(rng.choice([32, 48, 64, 96]))
    x = _image(b, rng, width)
    for stage in range(4):
        for block in range(int(rng.integers(1, 5))):
            stride = 2 if stage and not block else 1
            inner = width * 2**stage
            y = b.convolution(b.convolution(x, inner, 1), inner, 3, stride)
            batch, _, height, width_now = b.shapes[y]
            shape = (batch, 4 * inner, height, width_now)
            y = b.add("Convolution", [y], shape, 2 * inner * math.prod(shape), _BYTES * 4 * inner * inner)
            if not block:
                before = b.shapes[x][1]
                x = b.add("Convolution", [x], shape, 2 * before * math.prod(shape), _BYTES * 4 * inner * before)
            x = b.add("Relu", [b.add("Add", [x, y], shape)], shape)
    return b.finish(x, name, classes=1000)


def _branching(rng: np.random.Generator, name: str) -> OpGraph:
    b = _Builder()
    width = int(rng.choice([32, 48, 64]))
    x = _image(b, rng, width)
    for module in range(int(rng.integers(3, 12))):
        stride = 2 if module % 4 == 3 else 1
        outputs = []
        for _ in range(int(rng.integers(2, 5))):
            channels = int(width * rng.choice([0.5, 1, 1.5, 2]) * (1 + module / 4))
            y = b.convolution(x, channels, 1)
            for _ in range(int(rng.integers(0, 4))):
                y = b.convolution(y, channels, int(rng.choice([1, 3, 3, 5])))
            outputs.append(b.convolution(y, channels, 3, stride))
        batch, channels, height, size = b.shapes[x]
        shape = (batch, channels, -(-height // stride), -(-size // stride))
        outputs.append(b.add(str(rng.choice(["AvgPool", "MaxPool"])), [x], shape, 9 * math.prod(shape)))
        total = sum(b.shapes[y][1] for y in outputs)
        x = b.add("Concat", outputs, (batch, total, *shape[2:]), 0)
    return b.finish(x, name, classes=1000)


def _transformer(rng: np.random.Generator, name: str) -> OpGraph:
    b = _Builder()
    heads = int(rng.choice([4, 8, 12, 16]))
    width = 64 * heads
    batch, tokens = int(rng.choice([1, 1, 2, 4])), int(rng.choice([8, 16, 64, 128, 256]))
    shape, split = (batch, tokens, width), (batch, heads, tokens, 64)
    is_fused = bool(rng.random() < 0.5)

    def normalised(x: int) -> int:
        x = b.add("MVN", [x], shape, 6 * math.prod(shape))
        return b.add("Add", [b.add("Multiply", [x], shape, weights=_BYTES * width)], shape, weights=_BYTES * width)

    ids = b.add("Parameter", [], (batch, tokens), 0)
    words = b.add("Gather", [b.add("Convert", [ids], (batch, tokens))], shape, 0, _BYTES * width * 30000)
    x = normalised(b.add("Add", [words], shape, weights=_BYTES * width * 512))
    for _ in range(int(rng.integers(1, 9))):
        query, key, value = (
            b.add("Transpose", [b.add("Reshape", [b.product(x, width)], (batch, tokens, heads, 64), 0)], split, 0)
            for _ in range(3)
        )
        scores = (batch, heads, tokens, tokens)
        work = 2 * 64 * math.prod(scores)
        if is_fused:
            y = b.add("ScaledDotProductAttention", [query, key, value], split, 2 * work)
        else:
            y = b.add("Divide", [b.add("MatMul", [query, key], scores, work)], scores)
            y = b.add("MatMul", [b.add("Softmax", [y], scores, 5 * math.prod(scores)), value], split, work)
        y = b.add("Reshape", [b.add("Transpose", [y], (batch, tokens, heads, 64), 0)], shape, 0)
        x = normalised(b.add("Add", [x, b.product(y, width)], shape))
        y = b.add("Gelu", [b.product(x, 4 * width)], (batch, tokens, 4 * width), 8 * math.prod(shape) * 4)
        x = normalised(b.add("Add", [x, b.product(y, width)], shape))
    return b.finish(x, name)


def _layered(rng: np.random.Generator, name: str) -> OpGraph:
    b = _Builder()
    rows = int(rng.choice([16, 64, 256, 1024]))
    layer = [b.add("Parameter", [], (rows, 256), 0)]
    for _ in range(int(rng.integers(5, 40))):
        new = []
        for _ in range(int(rng.integers(1, 7))):
            count = min(len(layer), int(rng.choice([1, 1, 2, 3])))
            inputs = rng.choice(layer, size=count, replace=False).tolist()
            kind = rng.random()
            if kind < 0.5:
                width = int(rng.choice([64, 256, 1024, 4096]))
                new.append(b.product(inputs[0], width))
            elif kind < 0.8 or len(inputs) == 1:
                new.append(b.add(str(rng.choice(_POINTWISE)), inputs, b.shapes[inputs[0]]))
            else:
                new.append(b.add("Concat", inputs, (rows, sum(b.shapes[x][1] for x in inputs)), 0))
        layer = new + ([layer[0]] if rng.random() < 0.3 else [])
    read = {x for inputs in b.inputs for x in inputs}
    ends = [x for x in range(len(b.types)) if x not in read]  # a model computes nothing that nobody reads
    joined = b.add("Concat", ends, (rows, sum(b.shapes[x][1] for x in ends)), 0)
    return b.finish(b.product(joined, 64), name)


ARCHITECTURES: Mapping[str, Callable[[np.random.Generator, str], OpGraph]] = MappingProxyType(
    {"residual": _residual, "branching": _branching, "transformer": _transformer, "layered": _layered}
)
"""Every sort by its name: from a source of randomness and a name to a graph."""

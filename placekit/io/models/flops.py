r"""Floating-point operations of one operator, from its type, shapes and attributes.

OpenVINO gives no such number, so it is counted by hand. A multiply-add counts 2. Shapes are static here; a caller
with unknown dimensions puts in the smallest value they can take.

======================================  ==================================================================
operator                                count
======================================  ==================================================================
Convolution, GroupConvolution, ...      2 x output elements x (input channels of a group) x kernel elements
MatMul                                  2 x output elements x length of the contracted axis
Einsum                                  2 x product of all distinct labels (one contraction)
ScaledDotProductAttention               the two products, 5 per score for the softmax, scale and mask 1 each
LSTM/GRU/RNN cells and sequences        the products of both weight matrices, and 17/14/3 per hidden element
pooling                                 output elements x kernel elements
Softmax, LogSoftmax                     5 per element (maximum, difference, exponential, sum, quotient)
MVN, normalisations, RMS                5 per element (2 without the variance), 7 GroupNormalization, 4 RMS
reductions, TopK, CumSum                1 per input element (2 for the ReduceL2 and log-sum-exp kinds)
Interpolate                             linear 2 x 2^d - 1, cubic 2 x 4^d - 1 per output element in d dimensions
data movement                           0
anything else                           1 per output element
======================================  ==================================================================

The counts of Convolution and MatMul agree with what the literature calls FLOPs = 2 x MACs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = Sequence[int]
Counter = Callable[[Sequence[Shape], Sequence[Shape], Mapping[str, Any]], float]

# fmt: off
DATA_MOVEMENT = frozenset({
    "Parameter", "Result", "Constant", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split",
    "VariadicSplit", "Slice", "StridedSlice", "Crop", "Gather", "GatherElements", "GatherND", "GatherTree",
    "SliceScatter", "ScatterUpdate", "ScatterElementsUpdate", "ScatterNDUpdate", "Pad", "Tile", "Broadcast",
    "Convert", "ConvertLike", "ShapeOf", "Range", "ReadValue", "Assign", "DepthToSpace", "SpaceToDepth",
    "BatchToSpace", "SpaceToBatch", "ShuffleChannels", "Reverse", "ReverseSequence", "Roll",
    "ExtractImagePatches", "OneHot", "Identity", "NonZero", "Eye", "StringTensorPack", "StringTensorUnpack",
    "ReorgYolo",
})
# fmt: on
"""Types that only move data, or are computed from shapes alone: they count 0."""

USES_ATTRIBUTES = frozenset({"MatMul", "MaxPool", "AvgPool", "Interpolate", "MVN", "Einsum", "DFT", "IDFT"})
"""Types whose count depends on the attributes; for all others they need not be read."""


def count_flops(
    op_type: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any] | None = None
) -> float:
    """Return the floating-point operations of one op, from the static shapes of its input and output ports.

    `attributes` are needed for the types in `USES_ATTRIBUTES`, by OpenVINO's names.

    Examples
    --------
    >>> count_flops("MatMul", [(8, 64), (64, 10)], [(8, 10)])
    10240.0
    >>> count_flops("Convolution", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 8, 8)])
    13824.0
    >>> count_flops("Reshape", [(8, 64)], [(512,)])
    0.0
    """
    if op_type in DATA_MOVEMENT:
        return 0.0
    counter = _COUNTERS.get(op_type, _per_output(1))
    try:
        return float(counter(inputs, outputs, attributes or {}))
    except (IndexError, KeyError, ValueError):
        # an op of an unusual form (a missing optional input, a scalar where a matrix was expected): still an estimate
        return float(_per_output(1)(inputs, outputs, {}))


def _per_output(factor: float) -> Counter:
    return lambda _inputs, outputs, _attributes: factor * sum(math.prod(shape) for shape in outputs)


def _per_input(factor: float) -> Counter:
    return lambda inputs, _outputs, _attributes: factor * math.prod(inputs[0])


def _convolution(filter_input: int, filter_axes: int) -> Counter:
    """`filter_axes` leading axes of the filter are outputs (or groups and outputs); the rest is summed over."""
    return lambda inputs, outputs, _attributes: (
        2 * math.prod(outputs[0]) * math.prod(inputs[filter_input][filter_axes:])
    )


def _transposed_convolution(filter_axes: int) -> Counter:
    """Every input element is spread over the outputs of its group and the kernel: the filter past `filter_axes`."""
    return lambda inputs, _outputs, _attributes: 2 * math.prod(inputs[0]) * math.prod(inputs[1][filter_axes:])


def _matmul(inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> float:
    left = inputs[0]
    # a vector is never transposed
    contracted = left[-2] if attributes.get("transpose_a") and len(left) > 1 else left[-1]
    return 2 * math.prod(outputs[0]) * contracted


def _pooling(_inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> float:
    kernel = [int(size) for size in attributes["kernel"]]
    return math.prod(outputs[0]) * math.prod(kernel)


def _interpolate(inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> float:
    resized = sum(a != b for a, b in zip(inputs[0], outputs[0], strict=True))
    taps: Mapping[str, int] = {"linear": 2, "linear_onnx": 2, "bilinear_pillow": 2, "cubic": 4, "bicubic_pillow": 4}
    mode = str(attributes.get("mode", "nearest")).lower()
    if mode not in taps or resized == 0:
        return 0.0  # nearest neighbour: picks values
    weights = int(taps[mode] ** resized)  # int ** int is not always an int to the type checker
    return math.prod(outputs[0]) * (2 * weights - 1)


def _mvn(inputs: Sequence[Shape], _outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> float:
    return math.prod(inputs[0]) * (5 if attributes.get("normalize_variance", True) else 2)


def _attention(inputs: Sequence[Shape], outputs: Sequence[Shape], _attributes: Mapping[str, Any]) -> float:
    query, key, value = inputs[:3]
    scores = math.prod(outputs[0][:-1]) * key[-2]  # [batch..., queries, keys]
    has_mask = len(inputs) > 3 and len(inputs[3]) > 0
    return scores * (2 * query[-1] + 2 * value[-1] + 5 + 1 + has_mask)


def _einsum(inputs: Sequence[Shape], _outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> float:
    equation = str(attributes["equation"]).replace(" ", "")
    left, _, right = equation.partition("->")
    sizes: dict[str, int] = {}
    ellipsis = 1
    for term, shape in zip(left.split(","), inputs, strict=True):
        labels = term.replace("...", ".")
        spare = len(shape) - len(labels.replace(".", ""))
        at = 0
        for label in labels:
            width = spare if label == "." else 1
            size = math.prod(shape[at : at + width])
            if label == ".":
                ellipsis = max(ellipsis, size)
            else:
                sizes[label] = max(sizes.get(label, 1), size)
            at += width
    # a term that sums nothing only multiplies
    sums = len(sizes) > len(set(right) & set(sizes)) if right else True
    return (2 if sums else 1) * math.prod(sizes.values()) * ellipsis


def _recurrent(gates: int, per_hidden: int, weights_input: int, *, is_sequence: bool) -> Counter:
    r"""Count ``gates`` products of ``[input + hidden] x hidden`` and ``per_hidden`` elementwise steps.

    Elementwise steps per hidden element: two additions per gate (recurrence and bias), one activation per gate, and
    for LSTM the cell update (3 products, 1 sum, 1 tanh): 17; for GRU reset, update and candidate (5): 14; RNN: 3.
    """

    def count(inputs: Sequence[Shape], _outputs: Sequence[Shape], _attributes: Mapping[str, Any]) -> float:
        weights = inputs[weights_input]  # [directions?, gates * hidden, input]
        hidden, size = weights[-2] // gates, weights[-1]
        # X is [batch, input] or [batch, time, input]
        steps = math.prod(inputs[0][:-1]) * (weights[0] if is_sequence else 1)
        return steps * (2 * gates * hidden * (size + hidden) + per_hidden * hidden)

    return count


def _fourier(_inputs: Sequence[Shape], outputs: Sequence[Shape], _attributes: Mapping[str, Any]) -> float:
    points = math.prod(outputs[0][:-1])  # the last axis holds real and imaginary part
    return 5 * points * max(math.log2(max(points, 1)), 1)


_COUNTERS: Mapping[str, Counter] = {
    "Convolution": _convolution(1, 1),
    "BinaryConvolution": _convolution(1, 1),
    "GroupConvolution": _convolution(1, 2),
    "DeformableConvolution": _convolution(2, 1),
    "ConvolutionBackpropData": _transposed_convolution(1),
    "GroupConvolutionBackpropData": _transposed_convolution(2),
    "MatMul": _matmul,
    "Einsum": _einsum,
    "ScaledDotProductAttention": _attention,
    "MaxPool": _pooling,
    "AvgPool": _pooling,
    "AdaptiveAvgPool": _per_input(1),
    "AdaptiveMaxPool": _per_input(1),
    "SoftMax": _per_output(5),
    "Softmax": _per_output(5),
    "LogSoftmax": _per_output(5),
    "MVN": _mvn,
    "BatchNormInference": _per_output(2),
    "GroupNormalization": _per_output(7),
    "NormalizeL2": _per_output(3),
    "RMS": _per_output(4),
    "LSTMCell": _recurrent(4, 17, 3, is_sequence=False),
    "GRUCell": _recurrent(3, 14, 2, is_sequence=False),
    "RNNCell": _recurrent(1, 3, 2, is_sequence=False),
    "LSTMSequence": _recurrent(4, 17, 4, is_sequence=True),
    "GRUSequence": _recurrent(3, 14, 3, is_sequence=True),
    "RNNSequence": _recurrent(1, 3, 3, is_sequence=True),
    "Interpolate": _interpolate,
    "DFT": _fourier,
    "IDFT": _fourier,
    "TopK": _per_input(1),
    "CumSum": _per_input(1),
    "SquaredDifference": _per_output(2),
    **{
        f"Reduce{kind}": _per_input(2 if kind in {"L2", "LogSumExp", "SumSquare"} else 1)
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogicalAnd", "LogicalOr", "LogSumExp")
    },
}

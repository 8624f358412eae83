"""Operators of torch in the words that cost models know, and their floating-point operations.

Cost models tell operators apart by OpenVINO's types (:mod:`placekit.cost_models.op_classes`) and count by
:mod:`placekit.io.models.flops`; every ATen operator that inference programs are made of is given such a type here. An
operator that is not in the table counts one operation per output element, and the reader says which they are: nothing
is resolved silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placekit.io.models.flops import count_flops

Shape = Sequence[int]

_TYPES: Mapping[str, str] = {
    "View": (
        "alias as_strided broadcast_to chunk detach diagonal expand expand_as flatten getitem lift_fresh_copy "
        "lift_fresh movedim narrow permute reshape select slice split split_with_sizes squeeze swapaxes t "
        "tensor_split transpose unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze view view_as hsplit "
        "vsplit mT numpy_T real view_as_real view_as_complex resolve_conj resolve_neg reshape_as _unsafe_view dropout "
        "feature_dropout alpha_dropout"
    ),
    "ShapeOf": (
        "sym_size sym_numel sym_stride item _local_scalar_dense _assert_async _assert_scalar _assert_tensor_metadata "
        "sym_constrain_range sym_constrain_range_for_size scalar_tensor"
    ),
    "Gather": "embedding embedding_bag index_select gather index take _embedding_bag take_along_dim",
    "Copy": (
        "arange clone contiguous copy empty empty_like eye fill flip full full_like linspace new_empty new_full "
        "new_ones new_zeros ones ones_like repeat repeat_interleave roll rot90 scatter select_scatter slice_scatter "
        "index_put index_copy index_fill masked_scatter masked_select nonzero tile tril triu tril_indices "
        "triu_indices zero_ zeros zeros_like meshgrid pixel_shuffle pixel_unshuffle channel_shuffle im2col "
        "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d one_hot tensor "
        "stack hstack vstack scatter_reduce empty_strided"
    ),
    "Concat": "cat concat concatenate",
    "Convert": "to _to_copy type_as float half bfloat16",
    "ReduceSum": (
        "sum mean amax amin max min prod any all argmax argmin aminmax nansum count_nonzero median std var var_mean "
        "norm linalg_vector_norm logsumexp segment_reduce std_mean scatter_add index_add bincount histc"
    ),
    "CumSum": "cumsum cumprod logcumsumexp sort argsort cummax cummin",
    "TopK": "topk kthvalue multinomial searchsorted bucketize unique",
    "Softmax": "softmax _softmax log_softmax _log_softmax _safe_softmax",
    "RMS": "rms_norm _fused_rms_norm",
    "GroupNormalization": "group_norm native_group_norm",
    "BatchNormInference": (
        "batch_norm _native_batch_norm_legit_no_training native_batch_norm cudnn_batch_norm _batch_norm_no_update"
    ),
    "AdaptiveAvgPool": (
        "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d"
    ),
    "Gelu": "gelu",
    "Relu": "relu relu6 threshold",
    "Swish": "silu",
    "HSwish": "hardswish",
    "HardSigmoid": "hardsigmoid",
    "Sigmoid": "sigmoid logsigmoid log_sigmoid_forward",
    "Tanh": "tanh hardtanh",
    "LeakyRelu": "leaky_relu rrelu",
    "Elu": "elu selu celu softplus mish",
    "PRelu": "prelu _prelu_kernel",
    "Add": "add",
    "Subtract": "sub rsub diff",
    "Multiply": "mul addcmul glu",
    "Divide": "div reciprocal true_divide floor_divide remainder fmod addcdiv",
    "Maximum": "maximum fmax",
    "Minimum": "minimum fmin",
    "Clamp": "clamp clamp_min clamp_max",
    "Sqrt": "sqrt rsqrt",
    "Exp": "exp exp2 expm1 log log2 log1p log10",
    "Erf": "erf erfc",
    "Abs": "abs sign ceil floor round trunc frac",
    "Negative": "neg logical_not bitwise_not",
    "Power": "pow square",
    "Sin": "sin cos tan asin acos atan atan2 sinh cosh",
    "Select": "where masked_fill",
    "Equal": (
        "eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor isnan isinf isfinite "
        "isin bitwise_left_shift bitwise_right_shift lerp polar complex conj nan_to_num __and__ __or__"
    ),
    "RandomUniform": "rand rand_like randn randn_like randint bernoulli normal randperm",
}
"""Names of ATen operators by type: "View" for those that give the same memory another shape, "Copy" for those that only
fill or move memory. Those that work in place are left out. For those that need more than a type see `_COUNTED`."""

_TYPE_OF = {name: op_type for op_type, names in reversed(list(_TYPES.items())) for name in names.split()}


def count_operator(
    target: str, shapes: Mapping[str, Any], arguments: Mapping[str, Any], outputs: Sequence[Shape]
) -> tuple[str, float, bool]:
    """Return the type of one call, its floating-point operations, and whether its operator is in a table.

    `shapes` has the shape of every argument that is a tensor, by its name, or a list of shapes for a list of tensors;
    `arguments` has the others.

    Examples
    --------
    >>> count_operator("aten.linear.default", {"input": (8, 64), "weight": (10, 64)}, {}, [(8, 10)])
    ('MatMul', 10240.0, True)
    """
    namespace, _, rest = target.partition(".")
    name = rest.partition(".")[0] if namespace == "aten" else target
    counted = _COUNTED.get(name)
    if counted is not None:
        try:
            op_type, flops = counted(shapes, arguments, outputs)
        except (KeyError, IndexError, TypeError, ValueError):  # a form that the counter does not know
            return name, float(sum(map(math.prod, outputs))), False
        return op_type, float(flops), True
    if not outputs or namespace in ("_operator", "operator", "builtins", "math", "torch"):
        return "ShapeOf", 0.0, True  # numbers: sizes, and what is computed of them
    known = _TYPE_OF.get(name) or _TYPE_OF.get(name.removesuffix("_"))
    if known is None:
        return name, float(sum(map(math.prod, outputs))), False
    if known in ("View", "Copy"):
        return known, 0.0, True
    inputs = [shape for shape in shapes.values() if shape and not isinstance(shape, list)] or [outputs[0]]
    return known, count_flops(known, inputs, outputs), True


Values = Mapping[str, Any]
_Counted = Callable[[Values, Values, Sequence[Shape]], tuple[str, float]]


def _like(op_type: str, *ports: str) -> _Counted:
    return lambda shapes, _arguments, outputs: (op_type, count_flops(op_type, [shapes[at] for at in ports], outputs))


def _convolution(shapes: Values, arguments: Values, outputs: Sequence[Shape]) -> tuple[str, float]:
    # weights of groups have no axis for the groups, so that all are counted like those of one
    op_type = "ConvolutionBackpropData" if arguments.get("transposed") else "Convolution"
    flops = count_flops(op_type, [shapes.get("input") or shapes["self"], shapes["weight"]], outputs[:1])
    return "Group" * (int(arguments.get("groups") or 1) > 1) + op_type, flops


def _attention(shapes: Values, _arguments: Values, outputs: Sequence[Shape]) -> tuple[str, float]:
    inputs = [shapes["query"], shapes["key"], shapes["value"]]
    mask = shapes.get("attn_mask") or shapes.get("attn_bias")
    inputs += [mask] if mask else []
    return "ScaledDotProductAttention", count_flops("ScaledDotProductAttention", inputs, outputs[:1])


def _einsum(shapes: Values, arguments: Values, outputs: Sequence[Shape]) -> tuple[str, float]:
    return "Einsum", count_flops("Einsum", shapes["tensors"], outputs, {"equation": arguments["equation"]})


def _recurrent(gates: int, per_hidden: int, op_type: str) -> _Counted:
    def count(shapes: Values, _arguments: Values, _outputs: Sequence[Shape]) -> tuple[str, float]:
        # params: weights [gates * hidden, inputs] and [gates * hidden, hidden], then biases, per layer and direction
        matrices = [shape for shape in shapes["params"] if len(shape) == 2]
        steps = math.prod(shapes["input"][:-1])
        elementwise = sum(per_hidden * shape[0] // gates for shape in matrices[1::2])
        return op_type, float(steps * (2 * sum(map(math.prod, matrices)) + elementwise))

    return count


def _pooling(op_type: str) -> _Counted:
    def count(_shapes: Values, arguments: Values, outputs: Sequence[Shape]) -> tuple[str, float]:
        kernel = arguments["kernel_size"]
        sizes = kernel if isinstance(kernel, list) else [kernel]
        sizes = sizes if len(sizes) > 1 else sizes * max(len(outputs[0]) - 2, 1)
        return op_type, count_flops(op_type, (), outputs[:1], {"kernel": sizes})

    return count


def _resize(taps: int) -> _Counted:
    return lambda _shapes, _arguments, outputs: ("Interpolate", float(math.prod(outputs[0]) * max(2 * taps - 1, 0)))


_COUNTED: Mapping[str, _Counted] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), _like("MatMul", "self")),
    **dict.fromkeys(("linear", "_grouped_mm", "transformers.grouped_mm_fallback.default"), _like("MatMul", "input")),
    "addmm": _like("MatMul", "mat1"),
    "baddbmm": _like("MatMul", "batch1"),
    "einsum": _einsum,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "_convolution"), _convolution),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        lambda shapes, arguments, outputs: _convolution(shapes, {**arguments, "transposed": True}, outputs),
    ),
    "scaled_dot_product_attention": _attention,
    **{
        f"_scaled_dot_product_{kind}_attention{where}": _attention
        for kind, where in (("flash", ""), ("flash", "_for_cpu"), ("efficient", ""), ("cudnn", ""))
    },
    "lstm": _recurrent(4, 17, "LSTMSequence"),
    "gru": _recurrent(3, 14, "GRUSequence"),
    "rnn_tanh": _recurrent(1, 3, "RNNSequence"),
    "rnn_relu": _recurrent(1, 3, "RNNSequence"),
    **{f"max_pool{axes}d": _pooling("MaxPool") for axes in (1, 2, 3)},
    **{f"max_pool{axes}d_with_indices": _pooling("MaxPool") for axes in (1, 2, 3)},
    **{f"avg_pool{axes}d": _pooling("AvgPool") for axes in (1, 2, 3)},
    **dict.fromkeys(("layer_norm", "native_layer_norm", "instance_norm"), _like("MVN", "input")),
    **{f"upsample_nearest{axes}d": _resize(0) for axes in (1, 2, 3)},
    "upsample_linear1d": _resize(2),
    "upsample_bilinear2d": _resize(4),
    "_upsample_bilinear2d_aa": _resize(4),
    "upsample_bicubic2d": _resize(16),
    "_upsample_bicubic2d_aa": _resize(16),
    "grid_sampler_2d": _resize(4),
    **dict.fromkeys(
        ("_weight_norm_interface", "_weight_norm"),
        lambda shapes, _arguments, _outputs: ("NormalizeL2", 3.0 * math.prod(shapes["v"])),
    ),
}
"""Operators whose count needs more than the shapes of inputs and outputs in order."""

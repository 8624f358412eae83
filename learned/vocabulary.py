"""The operator types that learners tell apart, in OpenVINO's words, in an order that never changes.

The position of a type is its column in the one-hot features, and so part of every stored policy: new types go to the
end. A type that is not listed shares the last column, `UNKNOWN_TYPE`, with all others of its sort.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

OP_TYPES = (
    *("Parameter", "Result", "Constant", "Convert", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split"),
    *("VariadicSplit", "Slice", "StridedSlice", "Gather", "GatherElements", "GatherND", "ScatterUpdate"),
    *("ScatterElementsUpdate", "ScatterNDUpdate", "Broadcast", "Tile", "Pad", "ShapeOf", "Range", "TopK", "Select"),
    *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul"),
    *("ScaledDotProductAttention", "Einsum", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence", "RNNSequence"),
    *("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
    *("ReduceProd", "ReduceL2", "BatchNormInference", "MVN", "NormalizeL2", "GroupNormalization", "RMS", "LRN"),
    *("Relu", "PRelu", "LeakyRelu", "Gelu", "Swish", "HSwish", "HSigmoid", "Sigmoid", "Tanh", "Elu", "Selu", "Mish"),
    *("SoftPlus", "Clamp", "Softmax", "LogSoftmax", "Erf", "Exp", "Log", "Sqrt", "Abs", "Negative", "Floor", "Ceiling"),
    *("Round", "Sin", "Cos", "Power", "Add", "Subtract", "Multiply", "Divide", "Mod", "FloorMod", "Maximum", "Minimum"),
    *("SquaredDifference", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd"),
    *("LogicalOr", "LogicalNot", "LogicalXor", "BitwiseAnd", "BitwiseOr", "BitwiseNot", "Interpolate", "ROIPooling"),
    *("PSROIPooling", "PriorBox", "DetectionOutput", "NonMaxSuppression", "OneHot", "CumSum", "DepthToSpace"),
    *("SpaceToDepth", "ShuffleChannels", "ReverseSequence", "FakeQuantize", "ReadValue", "Assign", "Loop", "If"),
    *("TensorIterator", "NonZero", "Identity", "RoPE", "PagedAttentionExtension"),
)
"""The known types; a column each."""

UNKNOWN_TYPE = len(OP_TYPES)
"""Column of every other type."""

_COLUMN = {name: column for column, name in enumerate(OP_TYPES)}


def type_columns(op_types: Sequence[str]) -> NDArray[np.int64]:
    """``[num_ops]`` column of every type.

    Examples
    --------
    >>> type_columns(["Parameter", "NeverHeardOf"]).tolist() == [0, UNKNOWN_TYPE]
    True
    """
    return np.array([_COLUMN.get(name, UNKNOWN_TYPE) for name in op_types], dtype=np.int64)

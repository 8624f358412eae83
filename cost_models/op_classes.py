"""Classes of operator types, in OpenVINO's words, by what limits them and what runtimes do with them."""

from __future__ import annotations

DENSE_TYPES = frozenset({
    "Convolution", "ConvolutionBackpropData", "DeformableConvolution", "BinaryConvolution", "Conv", "ConvTranspose",
    "MatMul", "Gemm", "FullyConnected", "Einsum", "ScaledDotProductAttention", "LSTMCell", "LSTMSequence", "GRUCell",
    "GRUSequence", "RNNCell", "RNNSequence",
})  # fmt: skip
"""Types whose work is matrix products."""

DEPTHWISE_TYPES = frozenset({"GroupConvolution", "GroupConvolutionBackpropData"})
"""Convolutions over few channels each."""

VIEW_TYPES = frozenset({
    "Parameter", "Result", "Constant", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "ReadValue",
    "Assign", "ShapeOf", "View",
})  # fmt: skip
"""Types that move no data: the output is the input under another name, or a handful of numbers."""

LOOKUP_TYPES = frozenset({
    "Gather", "GatherND", "GatherElements", "EmbeddingBagPackedSum", "EmbeddingBagOffsetsSum",
    "EmbeddingSegmentsSum", "EmbeddingBagOffsets", "EmbeddingBagPacked",
})  # fmt: skip
"""Types that read as much of their table as they write, not all of it."""

FUSABLE_TYPES = frozenset({
    "Abs", "Add", "Clamp", "Convert", "Divide", "Elu", "Erf", "Exp", "FakeQuantize", "Gelu", "HardSigmoid",
    "HSigmoid", "HSwish", "LeakyRelu", "Maximum", "Minimum", "Mish", "Multiply", "Negative", "PRelu", "PReLU",
    "Relu", "Selu", "Sigmoid", "SoftPlus", "SoftSign", "Sqrt", "Subtract", "Swish", "Tanh",
})  # fmt: skip
"""Elementwise types that runtimes fuse into the convolution or matrix product before them."""

QUANTIZE_TYPES = frozenset({"FakeQuantize", "QuantizeLinear", "DequantizeLinear"})
"""Types that round to few bits or back: runtimes make them part of the op before or behind."""

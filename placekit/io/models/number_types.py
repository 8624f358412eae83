"""Number types of ops: what dense ops multiply, and how tensors and weights are stored.

A dense op of an 8-bit model reads numbers that were rounded to few bits: behind a FakeQuantize (an IR, or an ONNX file
with QuantizeLinear and DequantizeLinear, as OpenVINO reads them), or stored so (a constant in int8 behind a Convert).
Runtimes multiply integers there if the device has them. Where weights alone have few bits, they multiply floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

INT8 = "int8"
"""Number type of a dense op whose inputs have at most 8 bits each."""

_LOW_TYPES = frozenset({"i8", "u8", "i4", "u4"})
_MOST_LEVELS = 256
_PRODUCTS = frozenset({
    "Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul",
})  # fmt: skip
_KEEPS_NUMBERS = frozenset({
    "Convert", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Relu", "Clamp", "Slice", "StridedSlice",
    "Pad", "Split", "VariadicSplit", "Gather", "ShuffleChannels", "DepthToSpace", "SpaceToDepth", "Broadcast", "Tile",
})  # fmt: skip
"""Types that move or choose numbers of their first input, so that these stay rounded."""
_SCALES = frozenset({"Multiply", "Subtract"})
"""Types that a DequantizeLinear is made of, with a constant."""


@dataclass(frozen=True)
class NumberTypes:
    """Number types of the ops of a graph.

    Parameters
    ----------
    compute
        ``[num_ops]`` `INT8`, or the element type of the first input (``"f32"``); of an op without inputs empty.
    output
        ``[num_ops]`` element type of the first output.
    is_rounded
        ``[num_ops]`` True for a FakeQuantize to at most 8 bits, whatever type its output has.
    weight_bits
        ``[num_ops]`` bits of a number of the largest constant behind the op; 0 without one.
    """

    compute: tuple[str, ...]
    output: tuple[str, ...]
    is_rounded: tuple[bool, ...]
    weight_bits: tuple[int, ...]


def number_types(
    nodes: Sequence[openvino.Node], types: Sequence[str], sources: Sequence[Sequence[int]], is_placed: Sequence[bool]
) -> NumberTypes:
    """Return the number types of the placed nodes; nodes are in topological order, `sources` the nodes they read.

    O(nodes + edges).
    """
    is_low = [False] * len(nodes)
    constant: list[tuple[int, int]] = [(0, 0)] * len(nodes)  # bytes and bits of the largest constant behind a node
    compute, output, is_rounded, weight_bits = [], [], [], []
    for at, (node, op_type, reads) in enumerate(zip(nodes, types, sources, strict=True)):
        element = node.get_output_element_type(0) if node.get_output_size() else None
        written = "" if element is None else str(element.get_type_name())
        if op_type == "Constant" and element is not None:
            constant[at] = (node.get_byte_size(), int(element.bitwidth))
        else:
            constant[at] = max((constant[each] for each in reads if not is_placed[each]), default=(0, 0))
        is_low[at] = written in _LOW_TYPES or _stays_low(node, op_type, reads, is_low, is_placed)
        if not is_placed[at]:
            continue
        is_int8 = op_type in _PRODUCTS and len(reads) > 1 and is_low[reads[0]] and is_low[reads[1]]
        read = str(node.get_input_element_type(0).get_type_name()) if reads else ""
        compute.append(INT8 if is_int8 else read)
        output.append(written)
        is_rounded.append(op_type == "FakeQuantize" and is_low[at])
        weight_bits.append(constant[at][1])
    return NumberTypes(tuple(compute), tuple(output), tuple(is_rounded), tuple(weight_bits))


def _stays_low(
    node: openvino.Node, op_type: str, reads: Sequence[int], is_low: Sequence[bool], is_placed: Sequence[bool]
) -> bool:
    """Return whether a node gives numbers of at most 8 bits, though their type has more."""
    if op_type == "FakeQuantize":
        return int(node.get_attributes()["levels"]) <= _MOST_LEVELS
    if op_type == "Concat":
        return all(is_low[each] for each in reads)
    if op_type in _SCALES:
        low = [each for each in reads if is_low[each]]
        return len(low) > 0 and all(is_low[each] or not is_placed[each] for each in reads) and len(low) < len(reads)
    return op_type in _KEEPS_NUMBERS and len(reads) > 0 and is_low[reads[0]]

"""Tensors between stages as the CPU keeps them: channels last, so that a cut costs no conversion.

OpenVINO's tensors have their axes in the model's order, batch, channels, height, width. Inside, convolutions on the CPU
work on channels that lie next to each other. So a stage would turn what it takes around and turn what it gives back, at
about 3 GB/s, which in MobileNet is a fourth of the work where the images are large. A stage that hands out the
*transposed* tensor, and one that takes it, do nothing of the sort: OpenVINO sees that a transposition and its own
conversion cancel out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey

if TYPE_CHECKING:
    import openvino

__all__ = ["channels_first", "hand_over_channels_last", "image_tensors", "is_channels_last"]

_OVER_IMAGES = frozenset(
    {
        "AvgPool",
        "Convolution",
        "ConvolutionBackpropData",
        "GroupConvolution",
        "GroupConvolutionBackpropData",
        "MaxPool",
    }
)
_PER_ELEMENT = frozenset(
    {
        "Add",
        "BatchNormInference",
        "Clamp",
        "Concat",
        "Elu",
        "FakeQuantize",
        "Gelu",
        "HSigmoid",
        "HSwish",
        "Maximum",
        "Minimum",
        "Mish",
        "Multiply",
        "PRelu",
        "Relu",
        "Sigmoid",
        "SoftPlus",
        "Subtract",
        "Swish",
        "Tanh",
    }
)
_FLOATS = frozenset({"f32", "f16", "bf16"})
_RANKS = (4, 5)
_SUFFIX = ":channels_last"


def image_tensors(model: openvino.Model) -> set[TensorKey]:
    """Return the tensors of `model` that a CPU keeps with their channels last.

    They are what convolutions and poolings give, and what follows from it element by element. Other tensors of four
    axes, such as those of attention, lie in memory as the model says.
    """
    found: set[TensorKey] = set()
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        sources = (each.get_source_output() for each in node.inputs())
        if kind in _OVER_IMAGES or (
            kind in _PER_ELEMENT
            and any((each.get_node().get_friendly_name(), each.get_index()) in found for each in sources)
        ):
            found |= {
                (node.get_friendly_name(), port.get_index())
                for port in node.outputs()
                if _rank(port) in _RANKS and port.get_element_type().get_type_name() in _FLOATS
            }
    return found


def _rank(port: Any) -> int | None:
    shape = port.get_partial_shape()
    return len(shape) if shape.rank.is_static else None


def hand_over_channels_last(
    model: openvino.Model, inputs: tuple[TensorKey, ...], outputs: tuple[TensorKey, ...], keys: Collection[TensorKey]
) -> None:
    """Make a stage take and give the tensors of `keys` with their channels last, in place.

    Parameters
    ----------
    model
        The stage.
    inputs, outputs
        Key of each of its inputs and outputs, in their order.
    keys
        Tensors of rank 4 or 5. Every stage that takes or gives one of them has to be changed.
    """
    from openvino import PartialShape
    from openvino import opset13 as opset

    for key, parameter in zip(inputs, model.get_parameters(), strict=True):
        if key in keys:
            shape = list(parameter.get_partial_shape())
            readers = list(parameter.output(0).get_target_inputs())
            parameter.set_partial_shape(PartialShape([shape[0], *shape[2:], shape[1]]))
            turned = opset.transpose(parameter, opset.constant(_to_first(len(shape))))
            turned.set_friendly_name(f"{parameter.get_friendly_name()}:channels_first")
            for reader in readers:
                reader.replace_source_output(turned.output(0))
    for key, result in zip(outputs, model.get_results(), strict=True):
        if key in keys:
            source = result.input(0).get_source_output()
            rank = len(source.get_partial_shape())
            turned = opset.transpose(source, opset.constant(np.array([0, *range(2, rank), 1])))
            turned.set_friendly_name(f"{key[0]}:{key[1]}{_SUFFIX}")
            result.input(0).replace_source_output(turned.output(0))
    model.validate_nodes_and_infer_types()


def _to_first(rank: int) -> NDArray[np.int64]:
    return np.array([0, rank - 1, *range(1, rank - 1)])


def is_channels_last(port: Any) -> bool:
    """Whether an output of a stage is one that `hand_over_channels_last` has changed."""
    source = port.get_node().input(0).get_source_output().get_node()
    return bool(source.get_friendly_name().endswith(_SUFFIX))


def channels_first(array: NDArray[Any]) -> NDArray[Any]:
    """Return a tensor that was handed over with its axes in the model's order."""
    return np.transpose(array, _to_first(array.ndim))

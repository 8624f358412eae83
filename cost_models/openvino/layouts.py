"""Images between stages as the CPU keeps them: channels last, so that a cut costs no conversion.

OpenVINO's tensors have their axes in the model's order, batch, channels, height, width. Inside, convolutions on the CPU
work on channels that lie next to each other. So a stage would turn what it takes and what it gives, at about 3 GB/s
each, which doubles the time of MobileNet in six stages. A stage that hands out the *transposed* tensor, and one that
takes it, do nothing of the sort: OpenVINO sees that the transposition and its own conversion cancel out.

That works where the plugin chooses channels last by itself, and takes forms that it knows. Found by trying, with
OpenVINO 2026.4: whatever computes a tensor, as a matrix, ``[batch, height * width, channels]`` (with four axes not
behind a sum that is fused into a convolution); and to readers that are convolutions, or sums and concatenations beside
one. A pooling, or an operation of its own on single elements, takes the axes as they come and would have to turn them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey

if TYPE_CHECKING:
    import openvino

_CONVOLUTIONS = frozenset({"Convolution", "GroupConvolution"})
_JOINS = frozenset({"Add", "Concat"})
_POOLINGS = frozenset({"AvgPool", "MaxPool"})
_PER_ELEMENT = frozenset({
    "BatchNormInference", "Clamp", "Elu", "FakeQuantize", "Gelu", "HSigmoid", "HSwish", "Maximum", "Minimum", "Mish",
    "Multiply", "PRelu", "Relu", "Sigmoid", "SoftPlus", "Subtract", "Swish", "Tanh",
})  # fmt: skip
FLOATS = frozenset({"f32", "f16", "bf16"})
"""Types of numbers that a CPU may compute in."""

_SUFFIX = ":channels_last"


def images(model: openvino.Model) -> set[TensorKey]:
    """Return the tensors of `model` of fixed shape that convolutions or poolings make, or that follow per element."""
    found: set[TensorKey] = set()
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind in _CONVOLUTIONS | _POOLINGS or (
            kind in _PER_ELEMENT | _JOINS and any(_key(each.get_source_output()) in found for each in node.inputs())
        ):
            found |= {_key(port) for port in node.outputs() if _is_image(port)}
    return found


def images_for_convolutions(model: openvino.Model) -> set[TensorKey]:
    """Return the images of `model` that can be handed over with their channels last, and are better so.

    They are read by a convolution, and apart from convolutions only by sums and concatenations.
    """
    found = images(model)
    return {key for node in model.get_ops() for key in map(_key, node.outputs()) if key in found and _suits(node, key)}


def _key(port: Any) -> TensorKey:
    return port.get_node().get_friendly_name(), port.get_index()


def _is_image(port: Any) -> bool:
    shape = port.get_partial_shape()
    return bool(shape.is_static) and len(shape) in (4, 5) and port.get_element_type().get_type_name() in FLOATS


def _suits(node: Any, key: TensorKey) -> bool:
    """Return True if the readers of output `key` of `node` take it with its channels last."""
    readers = {each.get_node().get_type_name() for each in node.output(key[1]).get_target_inputs()}
    return bool(readers & _CONVOLUTIONS) and readers <= _CONVOLUTIONS | _JOINS


def hand_over_channels_last(
    model: openvino.Model, inputs: tuple[TensorKey, ...], outputs: tuple[TensorKey, ...], keys: Collection[TensorKey]
) -> None:
    """Make a stage take and give the tensors of `keys` as ``[batch, height * width, channels]``, in place.

    `inputs` and `outputs` have the key of each in their order; `keys` are some of `images_for_convolutions`. Every
    stage that takes or gives one of them has to be changed.
    """
    from openvino import opset13 as opset

    swap = np.array([0, 2, 1])
    for index, (key, taken) in enumerate(zip(inputs, model.get_parameters(), strict=True)):
        if key in keys:
            batch, channels, *sizes = taken.get_output_shape(0)
            parameter = opset.parameter([batch, math.prod(sizes), channels], taken.get_element_type())
            parameter.set_friendly_name(taken.get_friendly_name())
            turned = opset.transpose(parameter, opset.constant(swap))
            image = opset.reshape(turned, opset.constant(np.array([batch, channels, *sizes])), False)
            for reader in taken.output(0).get_target_inputs():
                reader.replace_source_output(image.output(0))
            model.replace_parameter(index, parameter)
    for key, result in zip(outputs, model.get_results(), strict=True):
        if key in keys:
            source = result.input(0).get_source_output()
            batch, channels, *sizes = source.get_shape()
            flat = opset.reshape(source, opset.constant(np.array([batch, channels, math.prod(sizes)])), False)
            turned = opset.transpose(flat, opset.constant(swap))
            turned.set_friendly_name(f"{key[0]}:{key[1]}{_SUFFIX}")
            result.input(0).replace_source_output(turned.output(0))
            result.constructor_validate_and_infer_types()  # of the whole model would forget what the split cut off


def is_channels_last(port: Any) -> bool:
    """Return True if `hand_over_channels_last` has changed an output of a stage."""
    source = port.get_node().input(0).get_source_output().get_node()
    return bool(source.get_friendly_name().endswith(_SUFFIX))


def axes_of_model(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a tensor that was handed over with its channels last as the model has it, in its `shape`."""
    return np.swapaxes(array, 1, 2).reshape(shape)

"""Seeded inputs on which a model can be run without having its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import UnsupportedProblemError

if TYPE_CHECKING:
    import openvino

_TRANSPARENT = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})
_DEFAULT_BOUND = 2
"""Integers without a known use are 0 or 1: valid as ids of any table, types of tokens, masks and flags."""


def filled_request(compiled: openvino.CompiledModel, inputs: Iterable[openvino.Tensor]) -> openvino.InferRequest:
    """Return a new request of a compiled model that has its inputs, in the model's order."""
    request = compiled.create_infer_request()
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, tensor)
    return request


def idle_model(count: int = 1) -> tuple[openvino.Model, openvino.Tensor]:
    """Return a model of `count` numbers that computes next to nothing, and an input of it."""
    from openvino import Model, Tensor, Type
    from openvino import opset13 as opset

    numbers = opset.parameter([count], Type.f32)
    return Model([opset.result(opset.relu(numbers))], [numbers], "idle"), Tensor(np.ones(count, dtype=np.float32))


def random_inputs(
    model: openvino.Model, seed: int = 0, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[openvino.Tensor]:
    """Return one tensor per input of `model`, in its order.

    Real numbers are standard normal. Integers that index a table through a Gather are uniform over the table; other
    integers are 0 or 1; booleans, and integers whose name says mask, are 1. Types that numpy does not know (except
    bf16) are zeros. The shapes of the inputs must be static, or those of `shapes`, by name.

    Raises
    ------
    UnsupportedProblemError
        An input of strings, or of unknown shape.
    """
    rng = np.random.default_rng(seed)
    shapes = shapes or {}
    return [_random_tensor(each, rng, shapes.get(each.get_friendly_name(), ())) for each in model.get_parameters()]


def _random_tensor(parameter: Any, rng: np.random.Generator, wanted: Sequence[int]) -> openvino.Tensor:
    from openvino import PartialShape, Shape, Tensor

    name, kind = parameter.get_friendly_name(), parameter.get_element_type()
    type_name = kind.get_type_name()
    partial = parameter.get_partial_shape()
    if partial.is_dynamic and min(wanted, default=-1) >= 0 and partial.compatible(PartialShape(list(wanted))):
        partial = PartialShape(list(wanted))
    if type_name == "string" or partial.is_dynamic:
        raise UnsupportedProblemError(
            f"input {name!r} has type {type_name} and shape {parameter.get_partial_shape()}; "
            "seeded inputs need numbers and a known shape"
        )
    shape = tuple(int(size) for size in partial.to_shape())
    if type_name == "bf16":  # the upper half of an f32
        tensor = Tensor(kind, Shape(shape))
        bits = rng.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16
        tensor.data.view(np.uint16)[...] = bits.astype(np.uint16)
        return tensor
    try:
        dtype = np.dtype(kind.to_dtype())
    except (KeyError, TypeError, RuntimeError):
        return Tensor(kind, Shape(shape))
    if kind.bitwidth < 8:  # packed numbers
        return Tensor(kind, Shape(shape))
    return Tensor(_random_array(parameter, dtype, shape, rng))


def _random_array(
    parameter: Any, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape), dtype=dtype)
    names = {parameter.get_friendly_name(), *parameter.output(0).get_names()}
    if dtype.kind == "b" or any("mask" in name.lower() for name in names):
        return np.ones(shape, dtype=dtype)
    bound = _table_size(parameter)
    limit = int(np.iinfo(dtype).max)
    return rng.integers(0, min(bound, limit), size=shape, dtype=dtype)


def _table_size(parameter: Any) -> int:
    """Return the size of the smallest table that a Gather looks up with `parameter`'s values."""
    sizes = []
    pending = [parameter.output(0)]
    while pending:
        for target in pending.pop().get_target_inputs():
            node = target.get_node()
            kind = node.get_type_name()
            if kind in _TRANSPARENT and target.get_index() == 0:
                pending.append(node.output(0))
            elif kind == "Gather" and target.get_index() == 1:
                axis = node.input(2).get_source_output().get_node()
                table = node.input(0).get_partial_shape()
                if axis.get_type_name() == "Constant" and table.rank.is_static:
                    size = table[int(np.ravel(axis.get_data())[0])]
                    sizes.append(size.get_length() if size.is_static else 1)  # 0 is in a table of any size
    return max(min(sizes), 1) if sizes else _DEFAULT_BOUND

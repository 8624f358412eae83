"""Inputs of a model and their shapes, as numbers and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placekit.model.errors import InvalidProblemError
from placekit.model.graph import DYNAMIC, OpGraph

_SHAPE = re.compile(r"\s*([^\[\]]*?)\s*\[([^\[\]]*)\]\s*")


@dataclass(frozen=True)
class ModelInput:
    """One input of a model."""

    name: str  # friendly name of the input's Parameter op
    # dimensions, `DYNAMIC` for one that is only known when the model runs. A model that does not even fix the number of
    # dimensions has ``(DYNAMIC,)`` here
    shape: tuple[int, ...]
    dtype: str  # OpenVINO element type, for example ``"f32"``

    @property
    def is_dynamic(self) -> bool:
        """True if a dimension is unknown."""
        return DYNAMIC in self.shape


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape the way the command line takes it, ``?`` for an unknown dimension.

    Examples
    --------
    >>> format_shape((1, DYNAMIC))
    '[1,?]'
    """
    return f"[{','.join('?' if dim == DYNAMIC else str(dim) for dim in shape)}]"


def format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the shapes of inputs as ``--shape`` takes them.

    Examples
    --------
    >>> format_shapes({"ids": (1, 128), "mask": (1, DYNAMIC)})
    'ids[1,128],mask[1,?]'
    """
    return ",".join(f"{name}{format_shape(shape)}" for name, shape in shapes.items())


def input_shapes(graph: OpGraph) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of a model, by name, as far as its graph has them."""
    if not graph.tensor_shapes:
        return {}
    shape_of = dict(zip(graph.tensor_producer.tolist(), graph.tensor_shapes, strict=True))
    return {
        name: tuple(shape_of[op])
        for op, (name, op_type) in enumerate(zip(graph.op_names, graph.op_types, strict=True))
        if op_type == "Parameter" and op in shape_of
    }


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse the texts of several options ``--shape``, each for other inputs; see `parse_shape`.

    Examples
    --------
    >>> parse_shapes(["ids[1,128]", "mask[1,?]"])
    {'ids': (1, 128), 'mask': (1, -1)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    said: dict[str, str] = {}
    for text in texts:
        for name, shape in parse_shape(text).items():
            if name in said:
                whose = f"input {name!r}" if name else "the only input"
                raise InvalidProblemError(f"--shape {said[name]} and --shape {text} both give {whose} a shape")
            shapes[name], said[name] = shape, text
    return shapes


def parse_shape(text: str) -> dict[str, tuple[int, ...]]:
    """Parse shapes as OpenVINO's ``benchmark_app`` takes them: ``name[1,128],other[1,?]``.

    A shape without a name stands for the only input and is returned under the empty name; ``?`` and ``-1`` leave a
    dimension unknown.

    Examples
    --------
    >>> parse_shape("ids[1,128],mask[1,?]")
    {'ids': (1, 128), 'mask': (1, -1)}
    >>> parse_shape("[1,3,224,224]")
    {'': (1, 3, 224, 224)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    at = 0
    while True:
        match = _SHAPE.match(text, at)
        if match is None:
            raise InvalidProblemError(f"shape {text!r}: expected name[1,128] at {text[at:]!r}")
        name, dims = match.groups()
        if name in shapes:
            raise InvalidProblemError(f"shape {text!r}: input {name!r} is given twice")
        given = [dim.strip() for dim in dims.split(",")] if dims.strip() else []
        for dim in given:
            if dim not in {"?", "-1"} and not (dim.isascii() and dim.isdigit()):
                raise InvalidProblemError(f"shape {text!r}: dimension {dim!r} is neither a number >= 0 nor '?'")
        shapes[name] = tuple(DYNAMIC if dim in {"?", "-1"} else int(dim) for dim in given)
        at = match.end()
        if at == len(text):
            return shapes
        if text[at] != ",":
            raise InvalidProblemError(f"shape {text!r}: expected a comma at {text[at:]!r}")
        at += 1

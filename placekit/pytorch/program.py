"""A program of torch.export, without torch: nodes, tensors and parameters as plain values.

One reader makes it of a saved ``.pt2`` file (:mod:`placekit.pytorch.archive`, which needs no torch and runs nothing) or
of a module, as torch.export would save it (:mod:`placekit.pytorch.exported`). One lowering turns it into an op graph
(:mod:`placekit.pytorch.source`). Sizes that torch.export left open are texts such as ``"2*s0"``; `bind` gives them
numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from placekit.model.errors import InvalidProblemError, UnknownNameError, UnsupportedProblemError
from placekit.pytorch.sizes import Size, evaluate, evaluate_size

__all__ = ["Body", "Ref", "Special", "TorchNode", "TorchProgram", "TorchTensor", "operator_name"]


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument of a node that is a value of the program: its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """An argument that is a value of one of torch's own types.

    Parameters
    ----------
    kind
        ``"dtype"``, ``"layout"``, ``"memory_format"`` or ``"device"``.
    name
        Torch's name without the module: ``"float32"``; of a device its type.
    """

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TorchTensor:
    """Type and shape of one tensor.

    Parameters
    ----------
    dtype
        Torch's name without the module: ``"float32"``, ``"int64"``.
    item_bytes
        Bytes of one element.
    sizes
        Its dimensions.
    """

    dtype: str
    item_bytes: int
    sizes: tuple[Size, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, all of which must be bound."""
        return tuple(int(size) for size in self.sizes)

    @property
    def num_bytes(self) -> float:
        """Bytes of all elements."""
        return float(math.prod(self.shape)) * self.item_bytes


@dataclass(frozen=True, slots=True)
class TorchNode:
    """One call of an operator.

    Parameters
    ----------
    name
        Name of the node.
    target
        The operator, for example ``"aten.linear.default"``.
    module
        Path of the module that calls it, for example ``"layers.0.mlp.up"``; empty at the top.
    arguments
        Value by name of the operator's argument: numbers, texts, `Ref` for tensors, `Special`, lists of such.
    outputs
        Names of the tensors that it makes, in order; those that are None in torch are left out.
    elements
        Where each of `outputs` stands in the sequence that the call returns; empty if it returns one value.
    autocast
        Type of the autocast that the call runs in, on whatever device; empty without autocast.
    """

    name: str
    target: str
    module: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]
    elements: tuple[int, ...] = ()
    autocast: str = ""

    def refs(self) -> list[str]:
        """Return the values that it reads, in order, one of several readings each."""
        found: dict[str, None] = {}
        _collect(list(self.arguments.values()), found)
        return list(found)


@dataclass(frozen=True)
class Body:
    """Calls inside of a call: the argument of an operator such as ``wrap_with_autocast`` or ``cond``.

    Parameters
    ----------
    inputs
        Names that the calls use for what the body is given, in order.
    outputs
        Values that the body returns: `Ref` for tensors, numbers, None.
    nodes, tensors, numbers
        As of `TorchProgram`; the names are the body's own.
    devices
        Torch's types of the devices of these tensors: ``"cpu"``, ``"cuda"``.
    """

    inputs: tuple[str, ...]
    outputs: tuple[Any, ...]
    nodes: tuple[TorchNode, ...]
    tensors: Mapping[str, TorchTensor]
    numbers: Mapping[str, Size]
    devices: frozenset[str]


def _collect(value: Any, found: dict[str, None]) -> None:
    if isinstance(value, Ref):
        found[value.name] = None
    elif isinstance(value, Mapping):
        _collect(list(value.values()), found)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            _collect(each, found)


@dataclass(frozen=True)
class TorchProgram:
    """Program of torch.export for a module.

    Parameters
    ----------
    name
        Name of the model.
    nodes
        The calls, in an order in which they can run.
    tensors
        Type and shape of every tensor by name: inputs, parameters, and what nodes make.
    inputs
        Names of the tensors that the caller gives.
    outputs
        Names of the tensors that the caller gets.
    parameters
        Path by name of every tensor that the module holds: parameters, buffers and constants.
    storage
        Key of the memory behind every parameter, by its path: tied weights share one.
    storage_bytes
        Bytes of that memory, by its key.
    mutations
        Path of a buffer by the name of the tensor that becomes its next value.
    hints
        Number by symbol: the sizes of the example inputs.
    numbers
        Number by name of a node that computes one of sizes: an expression of symbols until `bind`; after it, only those
        that sizes decide.
    """

    name: str
    nodes: tuple[TorchNode, ...]
    tensors: Mapping[str, TorchTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, str]
    storage: Mapping[str, str]
    storage_bytes: Mapping[str, float]
    mutations: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, Size] = field(default_factory=dict)

    def bind(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Self:
        """Return the program with numbers for all sizes: those that `shapes` gives to inputs, else the examples'.

        Parameters
        ----------
        shapes
            Shape by name of an input; the empty name means the only input.

        Raises
        ------
        UnknownNameError
            No such input.
        InvalidProblemError
            Another number of dimensions, another size where torch.export fixed one, or one symbol with two numbers.
        InvalidFileError
            A size that is no expression of known symbols.
        UnsupportedProblemError
            A size that depends on the values of tensors.
        """
        self._refuse_sizes_of_values()
        values = dict(self.hints)
        given: dict[str, tuple[int, str]] = {}
        shapes = {
            self.inputs[0] if not name and len(self.inputs) == 1 else name: shape
            for name, shape in (shapes or {}).items()
        }
        for name, shape in shapes.items():
            if name not in self.inputs:
                raise UnknownNameError(
                    f"model {self.name!r} has no input {name!r}; inputs are {', '.join(self.inputs)}"
                )
            what, sizes = f"shape {list(shape)} of input {name!r}", self.tensors[name].sizes
            if len(sizes) != len(shape):
                raise InvalidProblemError(f"{what}: it has {len(sizes)} dimensions, not {len(shape)}")
            for axis, (size, number) in enumerate(zip(sizes, shape, strict=True)):
                if isinstance(size, str):
                    if size.isidentifier():
                        told, other = given.setdefault(size, (number, name))
                        if told != number:
                            raise InvalidProblemError(f"{what}: dimension {axis} is that of {other!r}, {told}")
                        values[size] = number
                elif size != number:
                    raise InvalidProblemError(
                        f"{what}: torch.export fixed dimension {axis} at {size}; export again with dynamic_shapes to "
                        "leave it open"
                    )
        tensors = {
            name: replace(tensor, sizes=tuple(evaluate_size(size, values, name) for size in tensor.sizes))
            for name, tensor in self.tensors.items()
        }
        for name, shape in shapes.items():
            if tensors[name].shape != tuple(shape):
                raise InvalidProblemError(
                    f"shape {list(shape)} of input {name!r} is not possible; it would be {tensors[name].shape}"
                )
        numbers: dict[str, Size] = {}
        for name, expression in self.numbers.items():
            with suppress(ValueError):  # of values of tensors: not known
                numbers[name] = evaluate(expression, values)
        return replace(self, tensors=tensors, numbers=numbers)

    def _refuse_sizes_of_values(self) -> None:
        made_by = {output: node for node in self.nodes for output in node.outputs}
        for name, tensor in self.tensors.items():
            for size in tensor.sizes:
                if isinstance(size, str) and (symbol := _OF_VALUES.search(size)) and symbol[0] not in self.hints:
                    node = made_by.get(name)
                    where = f"module {node.module!r}" if node is not None and node.module else f"tensor {name!r}"
                    what = f" ({node.target})" if node is not None else ""
                    raise UnsupportedProblemError(
                        f"model {self.name!r}: {where}{what} has a size that depends on the values of tensors, as of a "
                        "mask or of nonzero; replace it by an operation of fixed size, such as torch.where"
                    )


def operator_name(target: str) -> str:
    """Return an operator's name without namespace and overload.

    Examples
    --------
    >>> operator_name("aten.add_.Tensor"), operator_name("torchvision.nms.default")
    ('add_', 'nms.default')
    """
    namespace, _, rest = target.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else rest or namespace


_OF_VALUES = re.compile(r"\bu\d+\b")
"""Symbols that torch.export gives to sizes that only values of tensors decide."""

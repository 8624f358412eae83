"""A program of torch.export, without torch: nodes, tensors and parameters as plain values.

One reader makes it of a saved ``.pt2`` file (:mod:`placekit.pytorch.archive`, which needs no torch and runs nothing) or
of a module, as torch.export would save it (:mod:`placekit.pytorch.exported`). One lowering turns it into an op graph
(:mod:`placekit.pytorch.source`). Sizes that torch.export left open are texts such as ``"2*s0"``; `bind` gives them
numbers.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError, UnsupportedProblemError

__all__ = [
    "Body",
    "Ref",
    "Size",
    "Special",
    "TorchNode",
    "TorchProgram",
    "TorchTensor",
    "evaluate_size",
    "held_bytes",
    "operator_name",
]

Size: TypeAlias = int | str
"""A dimension: a number, or an expression of symbols."""


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
    nodes, tensors
        As of `TorchProgram`; the names are the body's own.
    devices
        Torch's types of the devices of these tensors: ``"cpu"``, ``"cuda"``.
    """

    inputs: tuple[str, ...]
    outputs: tuple[Any, ...]
    nodes: tuple[TorchNode, ...]
    tensors: Mapping[str, TorchTensor]
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
        for name, shape in (shapes or {}).items():
            if name == "" and len(self.inputs) == 1:
                name = self.inputs[0]  # noqa: PLW2901  # the only one
            if name not in self.inputs:
                raise UnknownNameError(
                    f"model {self.name!r} has no input {name!r}; inputs are {', '.join(self.inputs)}"
                )
            sizes = self.tensors[name].sizes
            if len(sizes) != len(shape):
                raise InvalidProblemError(
                    f"shape {list(shape)} of input {name!r}: it has {len(sizes)} dimensions, not {len(shape)}"
                )
            for axis, (size, number) in enumerate(zip(sizes, shape, strict=True)):
                if isinstance(size, int):
                    if size != number:
                        raise InvalidProblemError(
                            f"shape {list(shape)} of input {name!r}: torch.export fixed dimension {axis} at {size}; "
                            "export again with dynamic_shapes to leave it open"
                        )
                elif size.isidentifier():
                    told = given.setdefault(size, (number, name))
                    if told[0] != number:
                        raise InvalidProblemError(
                            f"shape {list(shape)} of input {name!r}: dimension {axis} is that of {told[1]!r}, {told[0]}"
                        )
                    values[size] = number
        tensors = {
            name: replace(tensor, sizes=tuple(evaluate_size(size, values, name) for size in tensor.sizes))
            for name, tensor in self.tensors.items()
        }
        for name, shape in (shapes or {}).items():
            bound = tensors[name or self.inputs[0]].shape
            if bound != tuple(shape):
                raise InvalidProblemError(f"shape {list(shape)} of input {name!r} is not possible; it would be {bound}")
        return replace(self, tensors=tensors)

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


def held_bytes(item_bytes: int, sizes: Sequence[int], strides: Sequence[int]) -> float:
    """Return the bytes that a tensor takes in memory: what is expanded is there once.

    Examples
    --------
    >>> held_bytes(4, (16, 8), (0, 1))
    32.0
    """
    return float(
        item_bytes * math.prod(size for size, stride in zip(sizes, strides, strict=True) if stride or not size)
    )


_OF_VALUES = re.compile(r"\bu\d+\b")
"""Symbols that torch.export gives to sizes that only values of tensors decide."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "Add": lambda *terms: sum(terms),
    "Mul": lambda *factors: math.prod(factors),
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "CeilDiv": lambda a, b: -(-a // b),
    "floor": math.floor,
    "ceiling": math.ceil,
    "abs": abs,
}


def evaluate_size(size: Size, values: Mapping[str, int], where: str) -> int:
    """Return the number of a size: sums, products, quotients, and the functions that torch.export writes.

    The text is parsed, never run.

    Raises
    ------
    InvalidFileError
        Anything else in it, an unknown symbol, or a number below 0.

    Examples
    --------
    >>> evaluate_size("2*s0 + Max(1, s1//2)", {"s0": 3, "s1": 9}, "x")
    10
    """
    if isinstance(size, int):
        return size
    if len(size) > 1000:
        raise InvalidFileError(f"tensor {where!r}: a size of {len(size)} characters; 1000 are the limit")
    try:
        number = _number(ast.parse(size, mode="eval").body, values)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, TypeError, OverflowError) as error:
        raise InvalidFileError(f"tensor {where!r}: size {size!r} cannot be computed: {error}") from None
    if not 0 <= number < 2**63:
        raise InvalidFileError(f"tensor {where!r}: size {size!r} is {number}; it must be from 0 to 2**63 - 1")
    return number


_LARGEST = 2**128
"""Numbers on the way to a size; powers of powers would have more digits than fit into memory."""


def _number(node: ast.expr, values: Mapping[str, int]) -> int:
    number = _unbounded(node, values)
    if abs(number) > _LARGEST:
        raise ValueError(f"{ast.unparse(node)[:40]!r} is beyond {_LARGEST}")
    return number


def _unbounded(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner, values)
        case ast.BinOp(op=ast.Pow(), left=base, right=ast.Constant(value=int(exponent))) if 0 <= exponent <= 8:
            return int(_number(base, values) ** exponent)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(left, values), _number(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            return int(_FUNCTIONS[name](*(_number(each, values) for each in args)))
    raise ValueError(f"{ast.unparse(node)!r} is not understood")

"""Numbers that a program computes of its sizes; with its shapes bound they are known beforehand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.program import Ref, TorchNode, TorchProgram

__all__ = ["known_numbers", "number_of"]

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{
        f"operator.{name}": getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
    },
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")},
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_int": int,
    "torch.sym_float": float,
    "torch.sym_not": operator.not_,
    "builtins.max": max,
    "builtins.min": min,
    "builtins.abs": abs,
    "builtins.round": round,
}


_LARGEST = 2.0**64


def known_numbers(program: TorchProgram) -> dict[str, Any]:
    """Return every number of a bound program that follows from its sizes, by the name of the node that makes it."""
    known: dict[str, Any] = {}
    for node in program.nodes:
        if not any(each in program.tensors for each in node.outputs):
            value = _value(program, node, known)
            if value is not None:
                known |= dict.fromkeys((node.name, *node.outputs), value)
    return known


def _value(program: TorchProgram, node: TorchNode, known: Mapping[str, Any]) -> Any:
    values = list(node.arguments.values())
    name = node.target.removeprefix("aten.").partition(".")[0]
    if (
        name in ("sym_size", "sym_numel")
        and values
        and isinstance(values[0], Ref)
        and values[0].name in program.tensors
    ):
        shape = program.tensors[values[0].name].shape
        return math.prod(shape) if name == "sym_numel" else shape[int(values[1])]
    function = _FUNCTIONS.get(node.target.lstrip("_"))
    if function is None or any(isinstance(each, Ref) and each.name not in known for each in values):
        return None
    given = [known[each.name] if isinstance(each, Ref) else each for each in values]
    if not all(isinstance(each, int | float) and abs(each) < _LARGEST for each in given):
        return None  # what a file makes of texts and of ever longer numbers needs no answer
    try:
        return function(*given)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


def number_of(name: str, known: Mapping[str, Any], node: TorchNode) -> Any:
    """Return the number called `name`, which `node` reads.

    Raises
    ------
    UnsupportedProblemError
        It depends on the values of tensors.
    """
    if name not in known:
        where = f"module {node.module!r}" if node.module else "the program"
        raise UnsupportedProblemError(
            f"{where}: {node.target} reads {name!r}, a number that depends on the values of tensors (item()), so that "
            "it cannot be run in parts; compute it outside of the module and give it as a constant"
        )
    return known[name]

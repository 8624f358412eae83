"""Sizes and other numbers of a program, as expressions of its open dimensions.

torch reads such texts by Python's ``eval``; here they are parsed, and nothing but arithmetic is computed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from placekit.model.errors import InvalidFileError

__all__ = ["Size", "evaluate", "evaluate_size"]

Size: TypeAlias = int | float | str
"""A number, or an expression of symbols."""

_MAX_LENGTH = 1000
_LARGEST = 2**128
"""Numbers on the way to a size; powers of powers would have more digits than fit into memory."""

_MAX_EXPONENT = 8


def _power(base: Any, exponent: Any) -> Any:
    if not 0 <= exponent <= _MAX_EXPONENT:
        raise ValueError(f"exponent {exponent} is not from 0 to {_MAX_EXPONENT}")
    return base**exponent


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": lambda *terms: sum(terms),
    "Mul": lambda *factors: math.prod(factors),
    "CeilDiv": lambda a, b: -(-a // b),
    "Identity": lambda a: a,
    **dict.fromkeys(("Pow", "PowByNatural", "FloatPow"), _power),
    **dict.fromkeys(("FloorDiv", "CleanDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    **dict.fromkeys(("IntTrueDiv", "FloatTrueDiv"), operator.truediv),
    **dict.fromkeys(("floor", "FloorToInt"), math.floor),
    **dict.fromkeys(("ceiling", "CeilToInt"), math.ceil),
    "Max": max, "Min": min, "abs": abs, "Abs": abs, "Rational": Fraction, "ToFloat": float, "TruncToInt": math.trunc,
    "RoundToInt": round, "OpaqueUnaryFn_sqrt": math.sqrt, "Equality": operator.eq, "Unequality": operator.ne,
    "StrictLessThan": operator.lt, "LessThan": operator.le, "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge, "Not": operator.not_,
}  # fmt: skip
"""Functions that torch.export writes, by sympy's names."""


def evaluate(size: Size, values: Mapping[str, int]) -> Any:
    """Return the number of an expression.

    Raises
    ------
    ValueError
        Anything but arithmetic in it, an unknown symbol, or a number that is too large.

    Examples
    --------
    >>> evaluate("IntTrueDiv(s0, 2)", {"s0": 3})
    1.5
    """
    if not isinstance(size, str):
        return size
    if len(size) > _MAX_LENGTH:
        raise ValueError(f"it has {len(size)} characters; {_MAX_LENGTH} are the limit")
    try:
        number = _number(ast.parse(size, mode="eval").body, values)
    except (SyntaxError, KeyError, ZeroDivisionError, RecursionError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(str(error)) from None
    if isinstance(number, Fraction):  # no number of torch
        return int(number) if number.denominator == 1 else float(number)
    return number


def evaluate_size(size: Size, values: Mapping[str, int], where: str) -> int:
    """Return the number of a size.

    Parameters
    ----------
    size
        The size: a number, or an expression.
    values
        Number by symbol.
    where
        Name of the tensor, for messages.

    Raises
    ------
    InvalidFileError
        No expression as torch.export writes it, an unknown symbol, or no whole number from 0 on.

    Examples
    --------
    >>> evaluate_size("2*s0 + Max(1, s1//2)", {"s0": 3, "s1": 9}, "x")
    10
    """
    try:
        number = evaluate(size, values)
    except ValueError as error:
        raise InvalidFileError(f"tensor {where!r}: size {size!r:.1000} cannot be computed: {error}") from None
    if number != number // 1 or not 0 <= number < 2**63:
        raise InvalidFileError(f"tensor {where!r}: size {size!r} is {number}; it must be from 0 to 2**63 - 1")
    return int(number)


def _number(node: ast.expr, values: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            pass
        case ast.Name(id=name):
            number = values[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            number = -_number(inner, values)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            number = _OPERATORS[type(op)](_number(left, values), _number(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            number = _FUNCTIONS[name](*(_number(each, values) for each in args))
        case _:
            raise ValueError(f"{ast.unparse(node)[:40]!r} is not understood")
    if isinstance(number, complex) or not abs(number) <= _LARGEST:
        raise ValueError(f"{ast.unparse(node)[:40]!r} is beyond {_LARGEST}")
    return number

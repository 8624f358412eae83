"""Parameters of a method: one frozen dataclass each, filled from names and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from placekit.model.errors import InvalidProblemError, UnknownParameterError

P = TypeVar("P")


def read_params(cls: type[P], method: str, values: Mapping[str, Any]) -> P:
    """Make the parameters `cls` of `method` from `values`.

    Raises `InvalidProblemError`: a name that the method does not have (the message lists those it has), or a value of
    another type.
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # P is always a dataclass here
    for name, value in values.items():
        if name not in known:
            has = ", ".join(known) or "none"
            raise UnknownParameterError(f"method {method!r} has no parameter {name!r}; parameters are: {has}")
        default = known[name].default
        if default is not None and not isinstance(value, int | float if isinstance(default, float) else type(default)):
            raise InvalidProblemError(
                f"method {method!r}: parameter {name!r} is {value!r}; it must be of type {type(default).__name__}"
            )
    return cls(**values)


@dataclass(frozen=True, slots=True)
class NoParams:
    """Parameters of a method that has none."""

"""Short representations for a notebook: sizes in the place of arrays and long collections."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable
from dataclasses import MISSING, Field, fields
from typing import Any

import numpy as np

MOST_ENTRIES = 4
"""Entries of a collection that are shown; of a longer one the number is shown."""
MOST_CHARACTERS = 80
"""Length of the representation of one field."""


def short_repr(self: Any) -> str:
    """Return ``Class(field=value, ...)`` of a dataclass: its `__repr__` where fields may be large.

    Fields that have their default are left out.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Path:
    ...     ops: tuple[int, ...]
    ...     name: str = ""
    ...     __repr__ = short_repr
    >>> Path((1, 2)), Path(tuple(range(1000)), "long")
    (Path(ops=(1, 2)), Path(ops=<1000 entries>, name='long'))
    """
    told = (
        (field.name, getattr(self, field.name)) for field in fields(self) if field.repr and not _is_default(self, field)
    )
    return f"{type(self).__name__}({', '.join(f'{name}={_short(value)}' for name, value in told)})"


def short_list(names: Iterable[str]) -> str:
    """Return names with commas; of more than a few only the first ones.

    Examples
    --------
    >>> short_list("abcdefgh")
    'a, b, c, ... (8)'
    """
    names = list(names)
    if len(names) <= MOST_ENTRIES:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_ENTRIES - 1])}, ... ({len(names)})"


def _is_default(self: Any, field: Field[Any]) -> bool:
    value = getattr(self, field.name)
    if field.default_factory is not MISSING:
        return isinstance(value, Collection) and not value
    return value is field.default or (isinstance(value, bool | int | float | str) and value == field.default)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {'x'.join(map(str, value.shape))}>"
    if isinstance(value, Collection) and not isinstance(value, str | bytes) and len(value) > MOST_ENTRIES:
        return f"<{len(value)} entries>"
    text = reprlib.repr(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"<{type(value).__name__}>"

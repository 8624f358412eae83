"""The Numba types of a kernel's arguments as JSON, for the pipe to another process and for the list of kernels."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from numba.core import types

__all__ = ["read_type", "spell_type"]

_SCALARS = {str(each): each for each in (types.boolean, types.int64, types.float64, types.npy_rng, types.none)}
_ARRAY = re.compile(r"(readonly )?(\w+)\[(\d)([CFA])\]")


def spell_type(kind: Any) -> Any:
    """Return a Numba type as JSON: a scalar by its name, an array as ``"float64[2C]"``, a tuple by its parts.

    Raises
    ------
    TypeError
        A type that no kernel here takes.

    Examples
    --------
    >>> spell_type(types.Array(types.float64, 2, "C"))
    'float64[2C]'
    """
    if str(kind) in _SCALARS:
        return str(kind)
    if isinstance(kind, types.Array) and kind.aligned:
        return f"{'' if kind.mutable else 'readonly '}{kind.dtype}[{kind.ndim}{kind.layout}]"
    if isinstance(kind, types.BaseTuple):
        of = getattr(kind, "instance_class", tuple)
        return {"class": f"{of.__module__}:{of.__qualname__}", "of": [spell_type(each) for each in list(kind)]}  # type: ignore[call-overload]
    raise TypeError(f"type {kind} of a kernel's argument cannot be written as JSON")


def read_type(spelling: Any) -> Any:
    """Return the Numba type that `spell_type` wrote.

    Raises
    ------
    AttributeError, ImportError
        A class of tuples that is not there any more.
    """
    if isinstance(spelling, str):
        array = _ARRAY.fullmatch(spelling)
        if array is None:
            return _SCALARS[spelling]
        layout: Any
        readonly, dtype, ndim, layout = array.groups()
        return types.Array(getattr(types, dtype.replace("bool", "bool_")), int(ndim), layout, readonly=bool(readonly))
    module, _, name = spelling["class"].partition(":")
    elements = tuple(read_type(each) for each in spelling["of"])
    of = getattr(import_module(module), name)
    return types.BaseTuple.from_types(elements, None if of is tuple else of)  # type: ignore[no-untyped-call]

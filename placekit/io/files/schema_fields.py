"""Base of all file schemas: strict models, and field types with ranges.

Types are strict (``"1"`` is no number, ``1`` is no string), numbers are finite and in range. A whole number may be
written as a float: ``2.0`` is 2.
"""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from placekit.io.reading import MAX_NAME_LENGTH, path_to, place_of

MAX_DEVICES = 4096
"""More devices of one kind than this in a file are taken for a mistake, not for a machine."""

INT64 = 2**63
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number, also where it is written as a float: other programs write ``2.0``."""
Count = Annotated[Whole, Field(ge=0, lt=INT64)]
Label = Annotated[Whole, Field(ge=-INT64, lt=INT64)]


def _finite(value: Any) -> Any:
    """Return free-form values, unless a number among them is none: ``1e999`` reads as infinity, which JSON lacks."""
    path = path_to(value, lambda each: isinstance(each, float) and not math.isfinite(each))
    if path is not None:
        found = reduce(operator.getitem, path, value)
        raise ValueError(f"{place_of(path, value)}: {found} is no value; numbers must be finite")
    return value


FreeForm = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
"""Values that a file carries along: parameters, provenance, what a method wants to say beside."""

Flag = bool | Annotated[Whole, Field(ge=0, le=1)]


class Strict(BaseModel):
    """Model that refuses fields it does not have; made ready when a file of its kind is read."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=(), defer_build=True)


class Columns(Strict):
    """Model of lists that have one length: those of `columns`, or of all fields. A list may be left out."""

    columns: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        first, *others = self.columns or type(self).model_fields
        length = len(getattr(self, first))
        for name in others:
            values = getattr(self, name)
            if values is not None and len(values) != length:
                raise ValueError(f"{name} has {len(values)} entries; there must be {length}, as {first} has")
        return self


class Open(BaseModel):
    """Model of a format that others extend: unknown fields pass."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=(), defer_build=True)

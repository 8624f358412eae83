"""Mechanisms that can be switched off: a table of them for each objective, and the names that users write."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from placekit.errors import InvalidProblemError

__all__ = ["Switches"]


@dataclass(frozen=True, slots=True)
class Switches:
    """True for every mechanism that is used: the fields of the class for an objective."""

    objective: ClassVar[str]
    """Its name, for messages."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all mechanisms, as users write them."""
        return tuple(field.name.replace("_", "-") for field in fields(cls))

    @classmethod
    def without(cls, names: str) -> Self:
        """Return all mechanisms but those of a list with commas.

        Raises
        ------
        InvalidProblemError
            A name that no mechanism has; the message lists them.
        """
        off = [name.strip() for name in names.split(",") if name.strip()]
        for name in off:
            if name not in cls.names():
                listed = ", ".join(cls.names())
                raise InvalidProblemError(f"no mechanism {name!r} of the {cls.objective}; there are {listed}")
        switches: dict[str, Any] = {name.replace("-", "_"): False for name in off}
        return cls(**switches)

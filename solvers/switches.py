"""Mechanisms that can be switched off: a table of them for each objective, and the names that users write."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from placekit.errors import InvalidProblemError

__all__ = ["Switches", "Without"]


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


_Switches = TypeVar("_Switches", bound=Switches)


@dataclass(frozen=True)
class Without(Generic[_Switches]):
    """The parameter of methods whose mechanisms can be switched off; also added to parameters that are there.

    Parameters
    ----------
    without
        Mechanisms that are switched off, by name and with commas: see `Mechanisms`.
    """

    without: str = ""

    table: ClassVar[type[Switches]]
    """The mechanisms of the objective."""

    def __post_init__(self) -> None:
        self.table.without(self.without)
        getattr(super(), "__post_init__", lambda: None)()  # of the parameters that it is added to

    @property
    def mechanisms(self) -> _Switches:
        """What is used."""
        return cast("_Switches", self.table.without(self.without))

"""Extensible tables: names of placekit, of installed packages, and those that a notebook registers.

A package brings a name by an entry point, whose value is ``module:Class``; it is imported when the name is used. A name
that is taken, or that cannot be typed on a command line, is refused: with an error where somebody registers it, with a
warning where a package brings it, so that one broken package does not stop the others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from placekit.model.errors import InvalidProblemError, PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class OpenTable(Mapping[str, T], Generic[T]):
    """Values by name, of which others may add some.

    `what` the table holds is for messages (``"method"``), and `own` comes with placekit. When the name of an entry
    point of the group ``placekit.<what>s`` is first used, `read` makes its value.
    """

    def __init__(self, what: str, own: Mapping[str, T], read: Callable[[EntryPoint], T]) -> None:
        self._what = what
        self._group = f"placekit.{what.replace(' ', '_')}s"
        self._values = dict(own)
        self._read = read
        self._found: dict[str, EntryPoint] | None = None

    def register(self, name: str, value: T) -> None:
        """Add a value.

        Raises `InvalidProblemError`: a name that is taken, or that is not made of lower-case letters, digits and single
        hyphens.
        """
        why_not = self._why_not(name)
        if why_not is None and name in self._plugins:
            why_not = f"{_of(self._plugins[name])} has it"
        if why_not is not None:
            raise InvalidProblemError(f"cannot register {self._what} {name!r}: {why_not}")
        self._values[name] = value

    def replace(self, name: str, value: T) -> None:
        """Replace a value."""
        self._values[name] = value

    def unregister(self, name: str) -> None:
        """Remove a registered value, as tests do."""
        self._values.pop(name, None)

    def _why_not(self, name: object) -> str | None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return "a name is made of lower-case letters, digits and single hyphens, and begins with a letter"
        return "the name is taken" if name in self._values else None

    @property
    def _plugins(self) -> Mapping[str, EntryPoint]:
        if self._found is None:
            from importlib.metadata import entry_points  # tens of milliseconds, once

            self._found = {}
            for point in entry_points(group=self._group):
                why_not = self._why_not(point.name)
                if why_not is None and point.name in self._found:
                    why_not = f"{_of(self._found[point.name])} has it"
                if why_not is None:
                    self._found[point.name] = point
                else:
                    logger.warning("%s: its %s %r is left out: %s", _of(point), self._what, point.name, why_not)
        return self._found

    def __getitem__(self, name: str) -> T:
        if name not in self._values and name in self._plugins:
            self._values[name] = self._read(self._plugins[name])
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._values, *self._plugins]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _of(point: EntryPoint) -> str:
    return f"plugin {(point.dist.name if point.dist else point.value)!r}"


def whose(point: EntryPoint) -> str:
    """Return words for an entry point and its package, for the beginning of a message."""
    return f"{_of(point)}: its entry point '{point.name} = {point.value}'"


def load_class(point: EntryPoint, what: str, check: Callable[[Any, str], object]) -> Any:
    """Return the class of an entry point, which `check` refuses by an `InvalidProblemError` if it is no `what`.

    Raises `PluginError`: it cannot be imported, is refused, or calls itself otherwise than the entry point.
    """
    brought = load(point)
    try:
        check(brought, whose(point))
    except InvalidProblemError as error:
        raise PluginError(str(error)) from None
    if brought.name != point.name:
        raise PluginError(f"{whose(point)}: the {what} calls itself {brought.name!r}; the two names must agree")
    return brought


def load(point: EntryPoint) -> Any:
    """Return the object that an entry point names.

    Raises `PluginError`: it cannot be imported; the message names the package and the entry point.
    """
    try:
        return point.load()
    except Exception as error:  # whatever a stranger's module raises
        raise PluginError(
            f"{whose(point)} in {point.group} cannot be loaded: {type(error).__name__}: {error}"
        ) from error

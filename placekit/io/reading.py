"""Reading without trust: bytes to JSON to a checked model, and every failure a named error.

All readers go through `read_json` and `validated`, so that a broken file of any kind gives one
:class:`~placekit.errors.InvalidFileError` that names the file, the place, the value and the bound.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from placekit.errors import InvalidFileError, PlacekitError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    Model = TypeVar("Model", bound=BaseModel)

__all__ = ["MAX_NAME_LENGTH", "blaming", "read_bytes", "read_json", "read_text", "validated"]

MAX_NAME_LENGTH = 4096
"""Longer names are refused: they come from broken files, and no message could show them."""


def read_bytes(path: str | Path) -> bytes:
    """Return the content of `path`.

    Raises
    ------
    InvalidFileError
        It does not exist or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidFileError(f"cannot read {path}: {reason}") from error


def read_text(path: str | Path) -> str:
    """Return the content of `path` as UTF-8 text; a byte-order mark is dropped.

    Raises
    ------
    InvalidFileError
        It cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"{path}: not UTF-8 text: byte {error.start}: {error.reason}") from error


def read_json(path: str | Path) -> Any:
    """Return the JSON value in `path`.

    Stricter than the standard library's reader: NaN and infinity are refused, and so is an object that has a key
    twice, of which the reader would silently drop one.

    Raises
    ------
    InvalidFileError
        It cannot be read, or is not JSON; the message gives line and column.
    """
    text = read_text(path)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InvalidFileError(f"{path}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise InvalidFileError(f"{path}: not readable JSON: nested too deeply") from None
    except ValueError as error:  # NaN, a key twice, an integer with thousands of digits
        raise InvalidFileError(f"{path}: {error}") from error


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number; numbers must be finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if max(map(len, result), default=0) > MAX_NAME_LENGTH:
        longest = max(result, key=len)
        raise ValueError(f"key {longest[:40]!r}... has {len(longest)} characters; the limit is {MAX_NAME_LENGTH}")
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key!r} appears twice in one object; keys must be unique")
            seen.add(key)
    return result


def validated(model: type[Model], data: Any, path: str | Path) -> Model:
    """Return `data` as a `model`.

    Parameters
    ----------
    model
        One of the models of :mod:`placekit.io.schemas`.
    data
        A JSON value.
    path
        The file it comes from, for the message.

    Raises
    ------
    InvalidFileError
        The data does not fit; the message names the file, the place, the value and what is expected.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidFileError(f"{path}: {_first_problem(error, data)}") from None
    except (OverflowError, RecursionError) as error:  # an integer beyond every float; nesting beyond the stack
        raise InvalidFileError(f"{path}: a value is out of range: {error}") from None


def _first_problem(error: ValidationError, data: Any) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    location = first["loc"]
    place = _place(location, data)
    if first["type"] == "missing":
        return f"{place} is missing{more}"
    if first["type"] == "extra_forbidden":
        return f"{place} is an unknown field{more}"
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if first["type"] == "too_short" and not first["input"]:
        return f"{place} is {first['input']!r}; it must not be empty{more}"
    if first["type"] == "value_error":
        return f"{place}: {message}{more}" if location else f"{message}{more}"
    return f"{place} is {reprlib.repr(first['input'])}; it should be {message}{more}"


def _place(location: tuple[int | str, ...], data: Any) -> str:
    """Spell a location, with the id or name of every list item that has one: ``nodes[3] (id 17).cpuLatency``."""
    text = ""
    shown = location if len(location) <= 12 else (*location[:12], "...")
    for step in shown:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
        try:
            data = data[step]
        except (LookupError, TypeError):
            data = None
        if isinstance(step, int) and isinstance(data, dict):
            label = next((key for key in ("id", "name", "op", "device") if isinstance(data.get(key), int | str)), None)
            text += f" ({label} {reprlib.repr(data[label])})" if label else ""
    return text or "the file"


@contextmanager
def blaming(path: str | Path) -> Iterator[None]:
    """Name the file `path` in every error that placekit raises while it builds objects from it."""
    try:
        yield
    except InvalidFileError:
        raise
    except PlacekitError as error:
        raise InvalidFileError(f"{path}: {error}") from None

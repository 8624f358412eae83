"""Reading without trust: bytes to JSON to a checked model, and every failure a named error.

All readers open their files with `open_input`, which takes regular files of bounded size only, and go through
`parse_json` and `validated`, so that a broken file of any kind gives one
:class:`~placekit.model.errors.InvalidFileError` that names the file, the place, the value and the bound.
"""

from __future__ import annotations

import json
import os
import reprlib
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from placekit.model.errors import InvalidFileError, PlacekitError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    Model = TypeVar("Model", bound=BaseModel)

MAX_NAME_LENGTH = 4096
"""Longer names are refused: they come from broken files, and no message could show them."""

MAX_TEXT_BYTES = 128 << 20
"""Longer JSON and TOML files are refused: their values can take 25 times as much memory. A problem of a million ops
with its arrays in a sibling takes half of it."""

MAX_FILE_BYTES = 1 << 30
"""Longer binary files that are read as a whole are refused: policies and arrays."""

MAX_NAMES = 10_000
"""Files of a folder among which the nearest name is looked for."""


@contextmanager
def open_input(path: str | Path, max_bytes: int | None = MAX_FILE_BYTES) -> Iterator[BufferedReader]:
    """Open the regular file `path` for reading; a link is followed.

    A pipe would never end, and a device may be endless or act when it is read: neither is opened. Any length is
    accepted if `max_bytes` is None, where the reader takes a bounded part at a time. An OSError in the block becomes
    an InvalidFileError, too.
    """
    try:
        # without O_NONBLOCK opening a pipe waits for its writer; for regular files it means nothing
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError as error:
        raise InvalidFileError(f"cannot read {path}: {_reason(error)}{_nearest_file(Path(path))}") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise InvalidFileError(f"cannot read {path}: {_reason(error)}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidFileError(f"cannot read {path}: {_kind_of(found.st_mode)}")
        if max_bytes is not None and found.st_size > max_bytes:
            raise InvalidFileError(f"cannot read {path}: {found.st_size} bytes are too many; the limit is {max_bytes}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise InvalidFileError(f"cannot read {path}: {_reason(error)}") from error
    finally:
        os.close(descriptor)


def no_such_file(path: str | Path) -> str:
    """Return words for a path where nothing is, with the nearest name in its folder."""
    return f"{path}: no such file or folder{_nearest_file(Path(path))}"


def _nearest_file(path: Path) -> str:
    """Return the question for the file of a folder that a missing path is likely a misspelling of."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    with suppress(OSError):
        return did_you_mean(path.name, [each.name for each in islice(path.parent.iterdir(), MAX_NAMES)])
    return ""


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "Is a directory"
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return f"a {next((name for is_kind, name in kinds if is_kind(mode)), 'thing')}, not a regular file"


def read_bytes(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of `path`."""
    with open_input(path, max_bytes) as file:
        content = file.read(max_bytes + 1)  # the size of a file can be a lie: those in /proc have 0
        if len(content) > max_bytes:
            raise InvalidFileError(f"cannot read {path}: it has more than {max_bytes} bytes, the limit")
        return content


def read_text(path: str | Path) -> str:
    """Return the content of `path` as UTF-8 text; a byte-order mark is dropped."""
    try:
        return read_bytes(path, MAX_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"{path}: not UTF-8 text: byte {error.start}: {error.reason}") from error


def read_json(path: str | Path) -> Any:
    """Return the JSON value in `path`; see `parse_json`."""
    return parse_json(read_text(path), path)


def parse_json(text: str | bytes, where: str | Path) -> Any:
    """Return the JSON value that `text` (if bytes, in UTF-8) is; `where` names its source in messages.

    Stricter than the standard library's reader: NaN and infinity are refused, and so is an object that has a key
    twice, of which the reader would silently drop one.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InvalidFileError(f"{where}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise InvalidFileError(f"{where}: not readable JSON: nested too deeply") from None
    except _NoNumberError as error:
        raise InvalidFileError(f"{where}: {_place_of_constant(text)}{error}") from None
    except ValueError as error:  # a key twice, an integer with thousands of digits, bytes that are no UTF-8
        raise InvalidFileError(f"{where}: {error}") from error


def inside(folder: Path, name: str, where: str | Path) -> Path:
    """Return the path `name`, that the file `where` gives, below `folder`; what leads out of the folder is refused."""
    path = Path(name)
    # a drive or a backslash means something on Windows only, but a file that has one is made for nothing else
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name[:2] or "\0" in name:
        raise InvalidFileError(f"{where}: path {name!r} leads out of the folder {folder}; it must lie below it")
    return folder / path


class _NoNumberError(ValueError):
    """NaN or infinity among JSON values."""


def _refuse_constant(constant: str) -> Any:
    raise _NoNumberError(f"{constant} is no JSON number; numbers must be finite")


def _place_of_constant(text: str | bytes) -> str:
    """Return where the first NaN or infinity of a JSON text is; empty if it has none, or is broken behind it."""
    try:
        data = json.loads(text, parse_constant=_NoNumberError)
    except (ValueError, RecursionError):
        return ""
    path = path_to(data, lambda value: isinstance(value, _NoNumberError))
    if not path:
        return ""
    return f"{place_of(path, data)}{_op_at(path, data)}: "


def path_to(data: Any, is_it: Callable[[Any], bool]) -> tuple[int | str, ...] | None:
    """Return the keys and indices that lead to the first value below `data` that is so; None if there is none."""
    waiting: list[tuple[tuple[int | str, ...], Any]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if is_it(value):
            return path
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [((*path, key), each) for key, each in inner if isinstance(each, dict | list) or is_it(each)][::-1]
    return None


def _op_at(path: tuple[int | str, ...], data: Any) -> str:
    """Return the name of the op that an entry of a column is of, if the file has a column of names as long."""
    ops = data.get("ops") if isinstance(data, dict) else None
    names = ops.get("name") if isinstance(ops, dict) else ops
    step = next((step for step in path if isinstance(step, int)), -1)
    is_column = not {"transfer_time_s", "direct_time_s", "tensors", "provenance"}.intersection(path)
    if not is_column or not isinstance(names, list) or not 0 <= step < len(names) or not isinstance(names[step], str):
        return ""
    return f" (op {reprlib.repr(names[step])})"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if max(map(len, result), default=0) > MAX_NAME_LENGTH:
        longest = max(result, key=len)
        raise ValueError(f"key {longest[:40]!r}... has {len(longest)} characters; the limit is {MAX_NAME_LENGTH}")
    if len(result) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {twice!r} appears twice in one object; keys must be unique")
    return result


def validated(model: type[Model], data: Any, path: str | Path) -> Model:
    """Return `data` as a `model`.

    `model` is one of the models of :mod:`placekit.io.files.schemas`, `path` the file for messages.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidFileError(f"{path}: {_first_problem(error, data, model)}") from None
    except (OverflowError, RecursionError) as error:  # an integer beyond every float; nesting beyond the stack
        raise InvalidFileError(f"{path}: a value is out of range: {error}") from None


def _first_problem(error: ValidationError, data: Any, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    location = first["loc"]
    place = place_of(location, data)
    if first["type"] == "missing":
        return f"{place} is missing{more}"
    if first["type"] == "extra_forbidden":
        return f"{place} is an unknown field{more}; fields are {', '.join(_fields_at(model, location[:-1]))}"
    place += _op_at(location, data) if isinstance(first["input"], float) else ""
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if first["type"] == "too_short" and not first["input"]:
        return f"{place} is {first['input']!r}; it must not be empty{more}"
    if first["type"] == "value_error":
        return f"{place}: {message}{more}" if location else f"{message}{more}"
    return f"{place} is {reprlib.repr(first['input'])}; it should be {message}{more}"


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields that the object at `location` can have."""
    models = [model]
    for step in location:  # keys and indices of containers do not name a field: the models stay
        annotations = [each.model_fields[step].annotation for each in models if step in each.model_fields]
        models = [inner for annotation in annotations for inner in _models_in(annotation)] or models
    return [field.alias or name for each in models for name, field in each.model_fields.items()]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation holds, such as ``dict[str, Model] | None``."""
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def place_of(location: tuple[int | str, ...], data: Any) -> str:
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

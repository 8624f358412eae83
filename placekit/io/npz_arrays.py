"""Long columns of a JSON file in a sibling ``.npz``.

In the JSON file the column is replaced by ``{"npz": key}`` (or ``{"npz_rows": key}`` for a list of lists), where the
key is its own place in the file, such as ``costs.op_time_s.cpu``; ``arrays`` names the sibling and its digest, so that
a pair of files that do not belong together is noticed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.errors import InvalidFileError
from placekit.io.atomic import write_bytes
from placekit.io.reading import read_bytes

__all__ = ["pack_arrays", "sibling_path", "unpack_arrays"]

MIN_LENGTH = 16
"""Shorter columns stay in the JSON file, where people can read them."""

MAX_UNPACKED_BYTES = 1 << 32
"""A sibling that would unpack to more than this is refused (a few kilobytes can unpack to terabytes)."""


def sibling_path(path: str | Path) -> Path:
    """Return the ``.npz`` that belongs to the JSON file `path`."""
    return Path(path).with_suffix(".npz")


def pack_arrays(document: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Write the long columns of `document` to the sibling of `path`; return the document that refers to them."""
    arrays: dict[str, NDArray[Any]] = {}
    packed = _pack(document, "", arrays)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]  # the stub takes a key for its own flag
    sibling = sibling_path(path)
    write_bytes(sibling, content.getvalue())
    digest = hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()
    return {**packed, "arrays": {"file": sibling.name, "blake2b": digest}}


def _pack(value: Any, key: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if key.endswith("provenance"):  # free-form: its keys could make two places look the same
        return value
    if isinstance(value, dict):
        return {name: _pack(item, f"{key}.{name}" if key else name, arrays) for name, item in value.items()}
    if not isinstance(value, list) or len(value) < MIN_LENGTH:
        return value
    if (column := _column(value)) is not None:
        arrays[key] = column
        return {"npz": key}
    if {type(row) for row in value} == {list}:
        flat = list(chain.from_iterable(value))
        if {type(item) for item in flat} <= {int}:
            arrays[key] = np.array(flat, dtype=np.int64)
            arrays[f"{key}.offsets"] = np.cumsum([0, *map(len, value)], dtype=np.int64)
            return {"npz_rows": key}
    return value


def _column(values: list[Any]) -> NDArray[Any] | None:
    """Return numbers as an array, null as NaN; None for anything else."""
    types = {type(value) for value in values}
    if types == {bool}:
        return np.array(values, dtype=np.bool_)
    if types == {int}:
        return np.array(values, dtype=np.int64)
    if float in types and types <= {float, type(None)}:
        return np.array(values, dtype=np.float64)
    return None


def unpack_arrays(document: Any, path: str | Path) -> Any:
    """Return `document`, read from `path`, with the columns of its sibling back in place.

    Raises
    ------
    InvalidFileError
        The sibling is missing, is another than the one that was written, or lacks a column.
    """
    if not isinstance(document, dict) or not isinstance(document.get("arrays"), dict):
        return document
    name, digest = document["arrays"].get("file"), document["arrays"].get("blake2b")
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".npz"):
        raise InvalidFileError(f"{path}: arrays.file is {name!r}; it should be the name of a .npz in the same folder")
    sibling = Path(path).with_name(name)
    content = read_bytes(sibling)
    if hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
        raise InvalidFileError(f"{sibling}: not the arrays that {path} was written with (its digest differs)")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_UNPACKED_BYTES:
            raise InvalidFileError(f"{sibling}: unpacks to {size} bytes; the limit is {MAX_UNPACKED_BYTES}")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidFileError(f"{sibling}: not readable arrays: {error}") from error
    return _unpack(document, "", arrays)


def _unpack(value: Any, key: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    # an op or a kind may be called "npz": only the column's own place makes a reference
    if value == {"npz": key} and key in arrays:
        column = arrays[key]
        items = column.tolist()
        if column.dtype.kind == "f":
            for at in np.flatnonzero(np.isnan(column)).tolist():
                items[at] = None
        return items
    if value == {"npz_rows": key} and key in arrays and f"{key}.offsets" in arrays:
        flat, offsets = arrays[key].tolist(), arrays[f"{key}.offsets"].tolist()
        return [flat[start:end] for start, end in pairwise(offsets)]
    return {name: _unpack(item, f"{key}.{name}" if key else name, arrays) for name, item in value.items()}

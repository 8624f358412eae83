"""Long columns of a JSON file in a sibling ``.npz``.

In the JSON file the column is replaced by ``{"npz": key}`` (or ``{"npz_rows": key}`` for a list of lists), where the
key is its own place in the file, such as ``costs.op_time_s.cpu``; ``arrays`` names the sibling and its digest, so that
a pair of files that do not belong together is noticed.

`read_npz` is the only reader of such archives. It believes nothing that a file says about its own size: a few
kilobytes can unpack to terabytes, and a header can promise an array that is not there. Only plain values are read,
never pickles.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import encode_json, write_json, write_together
from placekit.io.reading import read_bytes
from placekit.model.errors import InvalidFileError

MIN_LENGTH = 16
"""Shorter columns stay in the JSON file, where people can read them."""

MAX_UNPACKED_BYTES = 1 << 28
"""An archive that would unpack to more than this is refused: 33 million numbers, a problem of a million ops."""

_DTYPES = "biufU"
"""Kinds of numpy types that are read: truth values, numbers, and text."""

_MAX_REASON = 200


def sibling_path(path: str | Path) -> Path:
    """Return the ``.npz`` that belongs to the JSON file `path`."""
    return Path(path).with_suffix(".npz")


def write_document(document: dict[str, Any], path: str | Path, *, arrays: Literal["inline", "npz"]) -> None:
    """Write `document` to `path`, for ``"npz"`` with its long columns in the sibling; see `write_together`."""
    if arrays == "inline":
        write_json(path, document)
        return
    packed, content = _packed(document, path)
    write_together([(sibling_path(path), content), (path, encode_json(path, packed))])


def _packed(document: dict[str, Any], path: str | Path) -> tuple[dict[str, Any], bytes]:
    """Return the document that refers to the sibling of `path`, and the sibling's content."""
    columns: dict[str, NDArray[Any]] = {}
    packed = _pack(document, "", columns)
    content = io.BytesIO()
    np.savez_compressed(content, **columns)  # type: ignore[arg-type]  # the stub takes a key for its own flag
    digest = hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()
    return {**packed, "arrays": {"file": sibling_path(path).name, "blake2b": digest}}, content.getvalue()


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


def nullable(values: NDArray[np.float64]) -> list[float | None]:
    """Return `values` as a list with None for NaN."""
    items: list[float | None] = values.tolist()
    for at in np.flatnonzero(np.isnan(values)).tolist():
        items[at] = None
    return items


def unpack_arrays(document: Any, path: str | Path) -> Any:
    """Return `document`, read from `path`, with the columns of its sibling back in place."""
    if not isinstance(document, dict) or not isinstance(document.get("arrays"), dict):
        return document
    name, digest = document["arrays"].get("file"), document["arrays"].get("blake2b")
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".npz") or "\0" in name:
        raise InvalidFileError(f"{path}: arrays.file is {name!r}; it should be the name of a .npz in the same folder")
    sibling = Path(path).with_name(name)
    content = read_bytes(sibling)
    if hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
        raise InvalidFileError(f"{sibling}: not the arrays that {path} was written with (its digest differs)")
    return _unpack(document, "", read_npz(content, sibling))


def read_npz(content: bytes, where: str | Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in an ``.npz`` archive; `where` names it in messages.

    Every size is checked against the archive's directory before anything is unpacked: the sum of all members against
    `MAX_UNPACKED_BYTES`, and the shape in the header of each against its member.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > MAX_UNPACKED_BYTES:
                raise InvalidFileError(f"{where}: unpacks to {size} bytes; the limit is {MAX_UNPACKED_BYTES}")
            return {entry.filename.removesuffix(".npy"): _read_member(archive, entry) for entry in entries}
    except InvalidFileError:
        raise
    except Exception as error:  # for damaged files zipfile, zlib and numpy raise a dozen types, MemoryError among them
        reason = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise InvalidFileError(f"{where}: not readable arrays: {reason}") from None


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, is_fortran, dtype = read_header[version](member)
        if dtype.kind not in _DTYPES or dtype.hasobject:
            raise ValueError(f"{entry.filename} holds values of type {dtype}")
        count = math.prod(shape)  # of Python's integers, which do not overflow
        there = entry.file_size - member.tell()
        if any(length < 0 for length in shape) or count * dtype.itemsize != there:
            raise ValueError(f"{entry.filename} of shape {shape} and type {dtype} has {there} bytes")
        data = member.read()  # at most what the directory says, and its checksum is compared
    array = np.frombuffer(data, dtype) if dtype.itemsize else np.zeros(count, dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")


def _unpack(value: Any, key: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    # an op or a kind may be called "npz": only the column's own place makes a reference
    if value == {"npz": key} and key in arrays:
        return nullable(arrays[key]) if arrays[key].dtype.kind == "f" else arrays[key].tolist()
    if value == {"npz_rows": key} and key in arrays and f"{key}.offsets" in arrays:
        flat, offsets = arrays[key].ravel().tolist(), arrays[f"{key}.offsets"].ravel().tolist()
        # rows that overlap would multiply: a million offsets over a million values
        if any(not isinstance(each, int) for each in offsets) or offsets != sorted(offsets) or offsets[0:1] != [0]:
            raise InvalidFileError(f"column {key}: its offsets do not rise from 0")
        return [flat[start:end] for start, end in pairwise(offsets)]
    return {name: _unpack(item, f"{key}.{name}" if key else name, arrays) for name, item in value.items()}

"""Rows of measurements in a JSON Lines file: appended one at a time, safe against a crash in the middle of one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from placekit.io.reading import parse_json, read_bytes
from placekit.model.errors import InvalidFileError, PlacekitError

__all__ = ["append_row", "read_lines"]


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append `row` to `path` as one line, and wait until it is on the disk.

    What a crash left of an unfinished last line is cut off first.

    Raises
    ------
    PlacekitError
        The file cannot be written; it is as before then.
    """
    line = json.dumps(dict(row), allow_nan=False).encode() + b"\n"
    try:
        with path.open("a+b") as file:
            whole = _end_of_last_line(file)
            try:
                file.truncate(whole)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise
    except OSError as error:
        raise PlacekitError(f"cannot write {path}: {error.strerror or error}") from error


def _end_of_last_line(file: IO[bytes]) -> int:
    """Return where the last finished line ends, looking from the end: files of many rows grow large."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - 65536)
        file.seek(begin)
        at = file.read(end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and row for every finished line of `path`; nothing if there is no file.

    Raises
    ------
    InvalidFileError
        A line that is no JSON object.
    """
    if not path.exists():
        return
    content = read_bytes(path)
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        row = parse_json(line, f"{path}, line {number}")
        if not isinstance(row, dict):
            raise InvalidFileError(f"{path}, line {number}: not a JSON object")
        yield number, row

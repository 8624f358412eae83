"""The folder of results: one row per case in ``rows.jsonl``, written by one process at a time.

Rows are lines of JSON, appended one at a time. A row is there completely or not at all, so whatever stops a run, the
next one knows what is done.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from placekit.benchmarks.row_schema import MeasuredModel, RowModel
from placekit.io.reading import parse_json, read_bytes, validated
from placekit.model.errors import InvalidFileError, PlacekitError


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append `row` to `path` as one line, and wait until it is on the disk.

    What a crash left of an unfinished last line is cut off first.
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
    """Yield line number and row for every finished line of `path`; nothing if there is no file."""
    if not path.exists():
        return
    content = read_bytes(path)
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        row = parse_json(line, f"{path}, line {number}")
        if not isinstance(row, dict):
            raise InvalidFileError(f"{path}, line {number}: not a JSON object")
        yield number, row


Row = dict[str, Any]


class Store:
    """The rows in a folder of results.

    Parameters
    ----------
    folder
        The folder; made when the first row is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "rows.jsonl"
        self.measured_path = folder / "measured.jsonl"

    def rows(self, path: Path | None = None) -> dict[str, Row]:
        """Return the latest row of every case, by the case's address; of the folder, or of the file `path`."""
        return self._read(path or self.path, RowModel, "placekit/row/1", "suite")

    def measured(self, path: Path | None = None) -> dict[str, Row]:
        """Return what was measured for real, by the case's address; of the folder, or of the file `path`."""
        return self._read(path or self.measured_path, MeasuredModel, "placekit/measured/1", "measurement")

    @staticmethod
    def _read(path: Path, model: type[RowModel | MeasuredModel], schema: str, what: str) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for number, row in read_lines(path):
            if row.get("schema") != schema:
                raise InvalidFileError(f"{path}, line {number}: no row of a {what}")
            for name, field in model.model_fields.items():
                if field.is_required() and (field.alias or name) not in row:
                    raise InvalidFileError(f"{path}, line {number}: a row lacks {name!r}")
            found[validated(model, row, f"{path}, line {number}").case] = row
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer; the lock is the process's, so that it is gone when the process is, however it ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(_open_lock(self.folder / ".lock"), "r+") as file:
                with suppress(ImportError):  # no such locks on Windows: there it is the user's care
                    import fcntl

                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        raise PlacekitError(f"{self.folder}: another process is writing results there") from None
                yield
        except OSError as error:
            raise PlacekitError(f"cannot write {self.folder}: {error.strerror or error}") from error


def _open_lock(path: Path) -> int:
    """Return a descriptor of the lock file `path`, which is made if it is not there.

    Anything but a regular file is refused: somebody may have put a link there, so that its target is written to.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise PlacekitError(f"the lock file {path} of results cannot be opened: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PlacekitError(f"the lock file {path} of results is no regular file")
    return descriptor

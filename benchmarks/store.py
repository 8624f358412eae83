"""The folder of results: one row per case in ``rows.jsonl``, written by one process at a time.

A row is there completely or not at all (see :mod:`placekit.benchmarks.rows`), so whatever stops a run, the next one
knows what is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from placekit.benchmarks.row_schema import MeasuredModel, RowModel
from placekit.benchmarks.rows import append_row, read_lines
from placekit.io.locks import open_lock
from placekit.io.reading import validated
from placekit.model.errors import InvalidFileError, PlacekitError

__all__ = ["Store"]

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
        """Return the latest row of every case, by the case's address; of the folder, or of the file `path`.

        Raises
        ------
        InvalidFileError
            A line that is no row of a suite.
        """
        return self._read(path or self.path, RowModel, "placekit/row/1", "suite")

    def measured(self, path: Path | None = None) -> dict[str, Row]:
        """Return what was measured for real, by the case's address; of the folder, or of the file `path`.

        Raises
        ------
        InvalidFileError
            A line that is no such row.
        """
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

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row, durably; call it inside `locked`."""
        append_row(self.path, row)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer; the lock is the process's, so that it is gone when the process is, however it ends.

        Raises
        ------
        PlacekitError
            Another process writes to the folder, or the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_lock(self.folder / ".lock", "results"), "r+") as file:
                with suppress(ImportError):  # no such locks on Windows: there it is the user's care
                    import fcntl

                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        raise PlacekitError(f"{self.folder}: another process is writing results there") from None
                yield
        except OSError as error:
            raise PlacekitError(f"cannot write {self.folder}: {error.strerror or error}") from error

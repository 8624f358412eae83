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

from placekit.benchmarks.rows import append_row, read_lines
from placekit.errors import InvalidFileError, PlacekitError
from placekit.io.locks import open_lock

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

    def rows(self) -> dict[str, Row]:
        """Return the latest row of every case, by the case's address.

        Raises
        ------
        InvalidFileError
            A line that is no row of a suite.
        """
        found: dict[str, Row] = {}
        for number, row in read_lines(self.path):
            if row.get("schema") != "placekit/row/1" or not isinstance(row.get("case"), str):
                raise InvalidFileError(f"{self.path}, line {number}: no row of a suite")
            found[row["case"]] = row
        return found

    def measured(self) -> dict[str, Row]:
        """Return what was measured for real, by the case's address.

        Raises
        ------
        InvalidFileError
            A line that is no such row.
        """
        found: dict[str, Row] = {}
        for number, row in read_lines(self.measured_path):
            if row.get("schema") != "placekit/measured/1":
                raise InvalidFileError(f"{self.measured_path}, line {number}: no row of a measurement")
            found[row["case"]] = row
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

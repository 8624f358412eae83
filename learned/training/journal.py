"""Journal of a training: one JSON line per update, and TensorBoard events where it is installed."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from placekit.learned.training.loop import Metrics
from placekit.model.errors import PlacekitError


class Journal:
    """Appends the metrics of every update to ``metrics.jsonl``, and to TensorBoard events beside it.

    Parameters
    ----------
    folder
        Where; made if it does not exist. What is there is kept.
    resumed_at
        Updates done at the checkpoint that the training goes on from. Lines of later updates, and one that a crash
        tore, are cut off: those updates are made, and written, once more. None for a training that begins.

    Raises
    ------
    PlacekitError
        The folder or the file cannot be made.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "metrics.jsonl"
            if path.is_file():
                _cut_off(path, resumed_at)
            self._lines = path.open("a", encoding="utf-8")
        except OSError as error:
            raise PlacekitError(f"cannot write {folder}: {error.strerror or error}") from error
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder), purge_step=None if resumed_at is None else resumed_at + 1)

    def __call__(self, metrics: Metrics) -> None:
        """Write one line; it is on disk when this returns."""
        try:
            self._lines.write(json.dumps({"update": metrics.update} | metrics.values) + "\n")
            self._lines.flush()
        except OSError as error:
            raise PlacekitError(f"cannot write {self._lines.name}: {error.strerror or error}") from error
        if self._board is not None:
            for tag, value in metrics.values.items():
                self._board.add_scalar(tag, value, metrics.update)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        if self._board is not None:
            self._board.close()


def _cut_off(path: Path, resumed_at: int | None) -> None:
    """Cut off an unfinished last line, and from the first line on that is of an update still to come."""
    lines = path.read_bytes().splitlines(keepends=True)
    kept = takewhile(lambda line: line.endswith(b"\n") and not _is_to_come(line, resumed_at), lines)
    os.truncate(path, sum(map(len, kept)))


def _is_to_come(line: bytes, resumed_at: int | None) -> bool:
    try:
        return resumed_at is not None and int(json.loads(line)["update"]) > resumed_at
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # what this is, is not known: it stays
        return False

"""What a training writes down: one JSON line per update, and TensorBoard events where it is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from placekit.learned.training import Metrics

__all__ = ["Journal"]


class Journal:
    """Appends the metrics of every update to ``metrics.jsonl``, and to TensorBoard events beside it.

    Parameters
    ----------
    folder
        Where; made if it does not exist. A resumed training appends.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder))

    def __call__(self, metrics: Metrics) -> None:
        """Write one line; it is on disk when this returns."""
        self._lines.write(json.dumps({"update": metrics.update} | metrics.values) + "\n")
        self._lines.flush()
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

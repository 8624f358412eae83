"""Where output goes: tables and JSON to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.errors import PlacekitError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["check_writable", "diagnostics", "print_json", "show_parts"]


def _console(to_stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=to_stderr, highlight=False, emoji=False, markup=False)


def diagnostics() -> Console:
    """Return the console for progress: stderr."""
    return _console(to_stderr=True)


def show_parts(parts: Iterable[RenderableType]) -> None:
    """Print renderables to stdout, one under the other."""
    console = _console(to_stderr=False)
    for part in parts:
        with console.capture() as captured:
            console.print(part)
        for line in captured.get().splitlines():  # tables are padded to their full width; files need no such spaces
            print(line.rstrip())


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout."""
    print(json.dumps(value, indent=1, allow_nan=False))


def check_writable(*paths: Path) -> None:
    """Refuse now what could not be written at the end of a long run.

    Raises
    ------
    PlacekitError
        A folder that does not exist or cannot be written, or a path that is a folder itself.
    """
    for path in paths:
        folder = path.resolve().parent
        if path.is_dir():
            raise PlacekitError(f"cannot write {path}: it is a folder")
        if not folder.is_dir():
            raise PlacekitError(f"cannot write {path}: there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise PlacekitError(f"cannot write {path}: no permission to write in {folder}")

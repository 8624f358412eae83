"""Folders that appear complete or not at all, and the folder of the cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from placekit.model.errors import PlacekitError


def cache_directory() -> Path:
    """Return the directory of the cache: ``$PLACEKIT_CACHE``, ``$XDG_CACHE_HOME/placekit`` or ``~/.cache/placekit``."""
    if own := os.environ.get("PLACEKIT_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "placekit"
    return Path("~/.cache/placekit").expanduser()


def write_folder(
    folder: str | Path, what: str, is_one: Callable[[Path], str | None], write: Callable[[Path], None]
) -> None:
    """Let `write` fill a new folder, and put it in the place of `folder`; one of the same kind is replaced.

    Messages call the folder `what`. `is_one` says of a folder that is there why it is none; None if it is one.
    The parent of the folder must exist.
    """
    target = Path(folder).absolute()
    try:
        is_free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
        reason = None if is_free else is_one(target)
        if reason is not None:
            raise PlacekitError(f"cannot write {folder}: it exists and is no {what} ({reason})")
        # beside the target, because a rename does not cross file systems
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent) as work:
            new = Path(work) / "new"
            new.mkdir()
            write(new)
            old = Path(work) / "old"
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except BaseException:
                if old.exists():
                    old.rename(target)
                raise
    except OSError as error:
        raise PlacekitError(f"cannot write {folder}: {error.strerror or error}") from error

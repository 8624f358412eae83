"""Folders that appear complete or not at all, files that take their places together, and the folder of the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from placekit.model.errors import PlacekitError


def cache_directory() -> Path:
    """Return the directory of the cache: ``$PLACEKIT_CACHE``, ``$XDG_CACHE_HOME/placekit`` or ``~/.cache/placekit``."""
    if own := os.environ.get("PLACEKIT_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "placekit"
    return Path("~/.cache/placekit").expanduser()


def link_or_copy(source: Path, target: Path) -> None:
    """Let `target` have the content of `source`, without a copy where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        copy_file(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; an OSError names the copy and its bytes."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise OSError(error.errno, f"{target} ({source.stat().st_size:,} bytes): {error.strerror}") from error


@contextmanager
def written_together(target: Path) -> Iterator[Path]:
    """Yield a hidden folder whose files take their places beside `target` when the block ends, `target` as the last.

    Where the block or the disk fails, everything stays as it was. Subfolders are for the block alone.
    """
    with _work_beside(target, target) as work:
        yield work
        for file in sorted(filter(Path.is_file, work.iterdir()), key=lambda file: file.name == target.name):
            file.replace(target.with_name(file.name))


def write_folder(
    folder: str | Path, what: str, is_one: Callable[[Path], str | None], write: Callable[[Path], None]
) -> None:
    """Let `write` fill a new folder, and put it in the place of `folder`; one of the same kind is replaced.

    Messages call the folder `what`. `is_one` says of a folder that is there why it is none; None if it is one.
    The parent of the folder must exist.
    """
    target = Path(folder).absolute()
    with _work_beside(target, Path(folder)) as work:
        is_free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
        reason = None if is_free else is_one(target)
        if reason is not None:
            raise PlacekitError(f"cannot write {folder}: it exists and is no {what} ({reason})")
        new = work / "new"
        new.mkdir()
        write(new)
        old = work / "old"
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise


@contextmanager
def _work_beside(target: Path, told: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which a rename reaches; errors call the target `told`."""
    work, parent = "", target.parent.absolute()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=parent) as work:
            yield Path(work)
    except OSError as error:
        raise PlacekitError(f"cannot write {told}: {_as_told(error.strerror or error, work, told)}") from error
    except PlacekitError as error:
        if type(error) is not PlacekitError or not work or work not in str(error):
            raise
        raise PlacekitError(_as_told(error, work, told)) from error


def _as_told(message: object, work: str, told: Path) -> str:
    """Return a message with the names that files will have: nobody knows the temporary folder."""
    if not work:
        return str(message)
    return str(message).replace(f"{work}/new", str(told)).replace(f"{work}/", str(told)[: -len(told.name)])

"""Writes that either happen or do not: a temporary file in the same folder, flushed to disk, then renamed.

Whoever reads the path sees the old content or the new one, never half of it, also after a crash or on a full disk.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from typing import Any

from placekit.model.errors import InvalidFileError, PlacekitError

_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""A full disk, and limits on files of a process or a user."""

STDOUT = Path("-")
"""In place of a file that is written: what comes after this program in a pipe (``./-`` is the same, by its full name a
file may be called so)."""


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` in one step; an existing file keeps its permissions."""
    write_together([(path, content)])


def write_together(files: Sequence[tuple[str | Path, bytes]]) -> None:
    """Write several files that belong together: all of them are on disk before the first is renamed to its name.

    A full disk or a folder that cannot be written leaves every file as it was. Between two of the renames, which take
    microseconds, nothing can be done about a power cut: files that must be told apart then say so by a hash.

    What is no regular file, such as `STDOUT`, a device or a named pipe, is written into: it is not replaced. The files
    are given in the order in which they appear.
    """
    staged: list[tuple[Path, Path]] = []
    path: str | Path = ""
    content = b""
    try:
        for path, content in files:
            if Path(path) == STDOUT:
                sys.stdout.flush()
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
                continue
            if is_special(path):
                with Path(path).open("wb", buffering=0) as file:
                    left = memoryview(content)
                    while left:  # a pipe takes what fits into it
                        left = left[file.write(left) :]
                continue
            # a link is followed, so that the file it points to is replaced and the link stays
            target = Path(path).resolve()
            if target.is_dir():
                raise IsADirectoryError(21, "it is a folder")
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
            staged.append((Path(name), target))
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(_mode_for(target))
        for temporary, target in staged:
            path = target
            temporary.replace(target)
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a null byte; RuntimeError: a loop of links
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        size = f" ({len(content):,} bytes)" if isinstance(error, OSError) and error.errno in _FULL else ""
        raise PlacekitError(f"cannot write {path}{size}: {reason}") from error
    finally:  # Ctrl-C must not leave temporary files either
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)


def disk_error(path: Path, num_bytes: int) -> OSError | None:
    """Return the system's error, if it has one, for a file of `num_bytes` that a library failed to write.

    Libraries have words of their own for a full disk, such as "basic_ios::clear: iostream error".
    """
    try:
        if shutil.disk_usage(path.parent).free < num_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with path.open("ab", buffering=0) as file:  # a limit on files, or a quota: one block more says it
            left = 1 << 20
            while left:
                left -= file.write(bytes(left))
            os.fsync(file.fileno())
    except OSError as error:
        return OSError(error.errno, f"{path} ({num_bytes:,} bytes): {error.strerror}")
    return None


class SteadyFile(io.RawIOBase):
    """File for a library that ends the process if a write fails: `error` has the first failure, later bytes are gone.

    PyTorch's writer of archives is one.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self.error: OSError | None = None
        self.num_bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to another place."""
        return self._file.seek(offset, whence)

    def write(self, content: Any) -> int:
        """Write, or remember why not."""
        size = memoryview(content).nbytes
        self.num_bytes += size
        if self.error is None:
            try:
                left = memoryview(content).cast("B")
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                self.error = error
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def is_special(path: str | Path) -> bool:
    """Return whether there is something that a rename would destroy: `STDOUT`, a device, a pipe, a socket."""
    if Path(path) == STDOUT:
        return True
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _mode_for(target: Path) -> int:
    """Return the mode of the file that is replaced, or what the umask gives a new file."""
    try:
        return target.stat().st_mode & 0o7777
    except OSError:
        mask = os.umask(0o022)
        os.umask(mask)
        return 0o666 & ~mask


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 in one step; see `write_bytes`."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise PlacekitError(f"cannot write {path}: character {error.start} has no UTF-8 form") from error
    write_bytes(path, content)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` to `path` as JSON in one step; see `render_json` and `write_bytes`."""
    write_bytes(path, encode_json(path, value))


def encode_json(path: str | Path, value: Any) -> bytes:
    """Return what `write_json` would write to `path`."""
    try:
        return render_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFileError(f"cannot write {path}: not a JSON value: {error}") from error


def render_json(value: Any) -> str:
    """Return `value` as JSON for people and programs: one line per key, but arrays of plain values on one line.

    Examples
    --------
    >>> print(render_json({"a": [1, 2, 3], "b": {"c": None}}), end="")
    {
     "a": [1, 2, 3],
     "b": {
      "c": null
     }
    }
    """
    return _render(value, "\n") + "\n"


def _render(value: Any, newline: str) -> str:
    if not value or not isinstance(value, dict | list):
        return _PLAIN.encode(value)
    inner = newline + " "
    if isinstance(value, dict):
        items = [
            f"{quote(key)}: {quote(item) if type(item) is str else item if type(item) is int else _render(item, inner)}"
            for key, item in value.items()  # most are texts or whole numbers: without a call for each
        ]
        return "{" + inner + ("," + inner).join(items) + newline + "}"
    if isinstance(value[0], dict | list):
        rows = _number_rows(value, inner) or ",".join(inner + _PLAIN.encode(item) for item in value)
        return "[" + rows + newline + "]"
    return _PLAIN.encode(value)


def _number_rows(rows: list[Any], inner: str) -> str | None:
    """Return lists of numbers one to a line, encoded in one go; None for other rows."""
    text = _PLAIN.encode(rows)
    # without text, and with one bracket to a row, nothing but the end of a row looks like one
    if {type(row) for row in rows} != {list} or '"' in text or text.count("[") != len(rows) + 1:
        return None
    return inner + text[1:-1].replace("], [", f"],{inner}[")


_PLAIN = json.JSONEncoder(allow_nan=False)
"""Made once: making one takes longer than it takes to encode a number."""

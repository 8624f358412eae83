"""Keeping native libraries off standard output, which belongs to the command line: it may carry JSON."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_stdout"]


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send to nowhere what C code prints while the ``with`` block runs; other threads' output goes there, too.

    Does nothing where there is no standard output, or no POSIX to redirect it.
    """
    if os.name != "posix":
        yield
        return
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    libc = ctypes.CDLL(None)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        libc.fflush(None)  # what was printed before is to be seen
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        libc.fflush(None)  # C buffers: what was printed inside must leave before the way out is back
        os.dup2(kept, 1)
        os.close(kept)

"""One measurement at a time: a lock that all of placekit's timings on a machine share."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from placekit.io.locks import open_lock, private_folder
from placekit.model.errors import PlacekitError, ProfileError

__all__ = ["lock_path", "measuring"]

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1
_MAX_TOLD = 1 << 16
_MAX_SHOWN = 200


def lock_path() -> Path:
    """Return the lock file of this user: in a folder that is the user's alone and outlives no boot.

    Raises
    ------
    PlacekitError
        There can be no such folder.
    """
    return private_folder() / "measuring.lock"


@contextmanager
def measuring(
    what: str,
    *,
    wait_s: float | None = None,
    path: Path | None = None,
    gives_up: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Hold the lock while the block runs; wait for whoever holds it, and say so in the log.

    The operating system holds the lock for the process (``flock``) and lets go of it when the process ends, however it
    ends: a file that a dead process left behind locks nothing. What stands in the file is for messages only. A
    system without ``flock`` (Windows) is not locked, which is logged.

    Parameters
    ----------
    what
        What is measured, for the messages of others who wait.
    wait_s
        Longest time to wait; None for ever.
    path
        The lock file; `lock_path` if None.
    gives_up
        Asked ten times a second while waiting; True ends the wait.

    Raises
    ------
    ProfileError
        Somebody else still measures after `wait_s` or when `gives_up` says so, or the file cannot be opened.
    """
    path = path or lock_path()
    try:
        import fcntl
    except ImportError:
        _LOGGER.warning("this system has no file locks; nothing keeps other measurements away")
        yield
        return
    try:
        file = open_lock(path, "measurements")
    except PlacekitError as error:
        raise ProfileError(str(error)) from error
    try:
        start = time.perf_counter()
        is_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = _holder(file)
            waited_s = time.perf_counter() - start
            if wait_s is not None and waited_s >= wait_s:
                raise ProfileError(
                    f"{what} cannot be measured: {holder} is being measured since before {waited_s:.0f} s, the longest "
                    f"wait is {wait_s:g} s"
                )
            if gives_up is not None and gives_up():
                raise ProfileError(f"{what} was not measured: it gave up waiting for {holder}")
            if not is_told:
                _LOGGER.warning("%s waits: %s is being measured", what, holder)
                is_told = True
            time.sleep(_POLL_S)
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps({"pid": os.getpid(), "what": what}).encode())
        yield
    finally:
        os.close(file)  # and with it the lock; the file stays, as others may be waiting for this very file


def _holder(file: int) -> str:
    """Return who holds the lock, as far as the file tells."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
        told = json.loads(os.read(file, _MAX_TOLD))
        return f"{str(told['what'])[:_MAX_SHOWN]} (process {told['pid']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # just being written
        return "something else"

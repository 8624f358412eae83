"""One lock for all runs of suites on a machine: solves may run beside each other, real timings beside nothing."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placekit.cost_models.measuring import lock_path
from placekit.io.locks import open_lock

__all__ = ["quiet"]

logger = logging.getLogger(__name__)

_POLL_S = 0.1


@contextmanager
def quiet(path: Path | None = None, *, is_alone: bool) -> Iterator[None]:
    """Solve or measure inside; wait until no other run is in the way.

    Parameters
    ----------
    path
        The lock file; one for this user if None.
    is_alone
        True to measure: no other run solves or measures. False to solve: no other run measures.

    Raises
    ------
    PlacekitError
        The file cannot be opened.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: there it is the user's care
        yield
        return
    # the lock goes with the file, and with the process, however it ends
    with os.fdopen(open_lock(path or lock_path().with_suffix(".suites"), "suites"), "r+") as file:
        is_told = False
        while True:
            try:
                fcntl.flock(file, (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_told:
                    what, other = ("timings", "solving or measuring") if is_alone else ("solves", "measuring")
                    logger.warning("the %s of this suite wait: another run is %s", what, other)
                    is_told = True
                time.sleep(_POLL_S)
        yield

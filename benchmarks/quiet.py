"""Solves may run beside each other, real timings beside nothing: one lock for all runs of suites on a machine.

Solving shares it, measuring has it alone. It comes on top of the lock that keeps timings apart from each other
(:mod:`placekit.cost_models.measuring`), which solves do not take.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placekit.cost_models.measuring import lock_path
from placekit.io.locks import open_lock

__all__ = ["measuring_alone", "solving"]

logger = logging.getLogger(__name__)

_POLL_S = 0.1


@contextmanager
def solving(path: Path | None = None) -> Iterator[None]:
    """Solve inside: others may solve, too; a run that measures is waited for.

    Parameters
    ----------
    path
        The lock file; one for this user if None.

    Raises
    ------
    PlacekitError
        The file cannot be opened.
    """
    with _held(path, "the solves of this suite wait: another run is measuring", is_alone=False):
        yield


@contextmanager
def measuring_alone(path: Path | None = None) -> Iterator[None]:
    """Measure inside: waits until no other run solves or measures.

    Parameters
    ----------
    path
        The lock file; one for this user if None.

    Raises
    ------
    PlacekitError
        The file cannot be opened.
    """
    with _held(path, "the timings of this suite wait: another run is solving or measuring", is_alone=True):
        yield


@contextmanager
def _held(path: Path | None, told: str, *, is_alone: bool) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: there it is the user's care
        yield
        return
    path = path or lock_path().with_suffix(".suites")
    # the lock goes with the file, and with the process, however it ends
    with os.fdopen(open_lock(path, "suites"), "r+") as file:
        is_told = False
        while True:
            try:
                fcntl.flock(file, (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_told:
                    logger.warning("%s", told)
                    is_told = True
                time.sleep(_POLL_S)
        yield

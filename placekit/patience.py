"""How long a solve waits for kernels that are being compiled.

Whoever works under a limit says with `waiting_while` how long it is worth waiting. Outside of it, and where the
environment says ``PLACEKIT_COMPILE=inline``, kernels are compiled by the process that needs them, however long that
takes, and the clocks of all solves stand still meanwhile: for benchmarks and tests, which want the same run whether
the kernels are on disk or not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["MODE", "compiles_inline", "is_patient", "is_wanted", "waiting_while"]

MODE = "PLACEKIT_COMPILE"
"""Environment variable: ``inline``, or anything else for a process beside."""

_mine: ContextVar[Callable[[], bool] | None] = ContextVar("patience", default=None)
_all: list[Callable[[], bool]] = []
"""Of all threads, the latest last: the threads that a method starts wait as long as the method does."""
_lock = threading.Lock()


def compiles_inline() -> bool:
    """Return whether kernels are compiled by the process that needs them, while the clocks stand still."""
    return os.environ.get(MODE) == "inline"


@contextmanager
def waiting_while(is_worth_it: Callable[[], bool]) -> Iterator[None]:
    """Wait for kernels, inside the ``with`` block, while `is_worth_it`, as well as what it said outside of it."""
    outer = _mine.get()
    both = is_worth_it if outer is None else lambda: outer() and is_worth_it()
    token = _mine.set(both)
    with _lock:
        _all.append(both)
    try:
        yield
    finally:
        with _lock:
            _all.remove(both)
        _mine.reset(token)


def is_patient() -> Callable[[], bool] | None:
    """Return what says whether to go on waiting; None to compile in this process."""
    return None if compiles_inline() else _says()


def is_wanted() -> bool:
    """Return whether the solve that this thread works for, if any, is to go on."""
    says = _says()
    return says is None or says()


def _says() -> Callable[[], bool] | None:
    with _lock:
        return _mine.get() or (_all[-1] if _all else None)

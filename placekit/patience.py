"""How long a solve waits for kernels that are being compiled.

Whoever works under a limit says with `waiting_while` how long it is worth waiting; a part that others can do without
meanwhile waits for its kernels less long than it may work. Outside of it, and where the environment says
``PLACEKIT_COMPILE=inline``, kernels are compiled by the process that needs them, however long that takes, and the
clocks of all solves stand still meanwhile: for benchmarks and tests, which want the same run whether the kernels are on
disk or not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["MODE", "compiles_inline", "is_patient", "is_wanted", "waiting_while"]

MODE = "PLACEKIT_COMPILE"
"""Environment variable: ``inline``, or anything else for a process beside."""


@dataclass(frozen=True, slots=True)
class _Says:
    """Whether kernels are worth waiting for, and whether work is to go on: the one may end long before the other."""

    kernels: Callable[[], bool]
    work: Callable[[], bool]


_mine: ContextVar[_Says | None] = ContextVar("patience", default=None)
_all: list[_Says] = []
"""Of all threads, the latest last: the threads that a method starts wait as long as the method does."""
_lock = threading.Lock()


def compiles_inline() -> bool:
    """Return whether kernels are compiled by the process that needs them, while the clocks stand still."""
    return os.environ.get(MODE) == "inline"


@contextmanager
def waiting_while(is_worth_it: Callable[[], bool], *, for_kernels_only: bool = False) -> Iterator[None]:
    """Wait for kernels, inside the ``with`` block, while `is_worth_it`, as well as what it said outside of it.

    With `for_kernels_only` work that needs none goes on as long as it did outside.
    """
    outer = _mine.get()
    if outer is None:
        says = _Says(is_worth_it, _always if for_kernels_only else is_worth_it)
    else:
        work = outer.work if for_kernels_only else _both(outer.work, is_worth_it)
        says = _Says(_both(outer.kernels, is_worth_it), work)
    token = _mine.set(says)
    with _lock:
        _all.append(says)
    try:
        yield
    finally:
        with _lock:
            _all.remove(says)
        _mine.reset(token)


def _both(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: one() and other()


def _always() -> bool:
    return True


def is_patient() -> Callable[[], bool] | None:
    """Return what says whether to go on waiting; None to compile in this process."""
    says = None if compiles_inline() else _says()
    return None if says is None else says.kernels


def is_wanted() -> bool:
    """Return whether the solve that this thread works for, if any, is to go on."""
    says = _says()
    return says is None or says.work()


def _says() -> _Says | None:
    with _lock:
        return _mine.get() or (_all[-1] if _all else None)

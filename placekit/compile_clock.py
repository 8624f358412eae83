"""Seconds that this process has spent compiling kernels; no time limit counts them.

Compiling happens once per installation. A first solve under a limit of ten seconds would spend all of them on it and
return nothing worth having, so `Run` adds what passed here to what it may take. This module knows no numba: kernels
tell it through :mod:`placekit.compiled`, and it is imported where numba must not be.
"""

from __future__ import annotations

import threading
from time import perf_counter

__all__ = ["compiling_begins", "compiling_ends", "compiling_s"]


class _Clock:
    """Measures the union of intervals, which may nest (a kernel calls another) or overlap (threads)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._since_s = 0.0
        self._total_s = 0.0

    def begin(self) -> None:
        with self._lock:
            if self._open == 0:
                self._since_s = perf_counter()
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._total_s += perf_counter() - self._since_s

    def read_s(self) -> float:
        with self._lock:
            return self._total_s + (perf_counter() - self._since_s if self._open else 0.0)


_clock = _Clock()


def compiling_begins() -> None:
    """Say that a kernel is about to be compiled."""
    _clock.begin()


def compiling_ends() -> None:
    """Say that it is compiled, or has failed to."""
    _clock.end()


def compiling_s() -> float:
    """Return the wall seconds so far during which at least one kernel was being compiled."""
    return _clock.read_s()

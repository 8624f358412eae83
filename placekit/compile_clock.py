"""Seconds that this process has spent compiling kernels, or waiting for another process that compiles them.

Results say how much of their runtime it was (`Result.compile_s`). This module knows no numba: kernels tell it through
:mod:`placekit.compiled`, and it is imported where numba must not be.
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
    """Say that a kernel is about to be compiled, or waited for."""
    _clock.begin()


def compiling_ends() -> None:
    """Say that it is compiled, or that compiling or waiting has ended otherwise."""
    _clock.end()


def compiling_s() -> float:
    """Return the wall seconds so far during which a kernel was compiled here or waited for."""
    return _clock.read_s()

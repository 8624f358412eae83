"""Numba's ``njit`` for the kernels, with a word to the user when compiling makes a first call slow.

Kernels are compiled on first use and cached on disk, so that this happens once per installation.
"""

from __future__ import annotations

import logging
import threading

from numba import njit, prange
from numba.core import event

__all__ = ["njit", "prange"]

logger = logging.getLogger(__name__)


class _SayOnce(event.Listener):
    """Logs one warning when the first kernel of this process is compiled, not when it is loaded from the cache."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002  # numba's signature
        if not self._said.is_set():
            self._said.set()
            logger.warning("compiling kernels for this machine: once per installation, up to half a minute")

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _SayOnce())  # type: ignore[no-untyped-call]  # numba has no types here

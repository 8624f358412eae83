"""Numba's ``njit`` for the kernels, with a word to the user when compiling makes a first call slow.

Kernels are compiled on first use and cached on disk, so that this happens once per installation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, prange
from numba.core import event

from placekit.compile_clock import compiling_begins, compiling_ends

__all__ = ["inlined", "kernel", "njit", "prange"]

logger = logging.getLogger(__name__)


class _Compiling(event.Listener):
    """Keeps the clock of compiling, and logs one warning at its first start; loading from the cache is neither."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002  # numba's signature
        if not self._said.is_set():
            self._said.set()
            logger.warning(
                "compiling kernels for this machine: once per installation, some minutes at most that no limit counts"
            )
        compiling_begins()

    def on_end(self, event: event.Event) -> None:  # noqa: ARG002
        compiling_ends()


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]  # numba has no types here

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that is called millions of times with tuples of many arrays.

    Numba counts a reference to each array at every call, and copies the descriptors of all of them, which takes longer
    than a small function does. Without counting nothing may be allocated, so scratch arrays are arguments, and the
    caller keeps all of them alive; inlined into the kernel that calls it, a kernel copies nothing.
    """
    compiled: Function = njit(  # type: ignore[call-overload]  # `_nrt` is not public
        cache=True, nogil=True, forceinline=True, _nrt=False
    )(function)
    return compiled


def inlined(function: Function) -> Function:
    """Compile a function that hot loops call with tuples of arrays, and that may allocate.

    Inlined into its callers it copies no descriptors of arrays, which takes longer than what a small function does.
    """
    compiled: Function = njit(cache=True, nogil=True, forceinline=True)(function)  # type: ignore[assignment]  # the stubs say Dispatcher
    return compiled

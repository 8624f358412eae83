"""Kernels compiled by another process, which puts them into the cache on disk, while this one need not wait.

There is one such process, started when the first kernel is missing. It compiles one kernel after the other, and ends
when it is done and the process that asked has ended: what was asked for is there at the next start.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from placekit.compile_clock import compiling_begins, compiling_ends
from placekit.errors import KernelsPendingError
from placekit.patience import is_patient

__all__ = ["compile_elsewhere"]

POLL_S = 0.02
"""Seconds between two looks at whether waiting is still worth it."""

logger = logging.getLogger(__name__)


class _Queue:
    """What this process has asked the other one for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._done: dict[bytes, threading.Event] = {}
        self._asked: list[threading.Event] = []

    def ask(self, request: bytes) -> threading.Event:
        """Return what is set when the kernel is on disk, or the other process could not compile it."""
        with self._lock:
            if request in self._done:
                return self._done[request]
            done = self._done[request] = threading.Event()
            if self._worker is None:
                self._worker = self._start()
            assert self._worker.stdin is not None
            self._asked.append(done)
            try:
                self._worker.stdin.write(len(request).to_bytes(8, "little") + request)
                self._worker.stdin.flush()
            except OSError:  # it has died: who waits compiles for itself
                done.set()
            return done

    def _start(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "placekit.compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            start_new_session=True,  # Ctrl-C is for the solve
        )
        threading.Thread(target=self._listen, args=(worker,), name="compile-queue", daemon=True).start()
        return worker

    def _listen(self, worker: subprocess.Popen[bytes]) -> None:
        """Set the events, in the order in which they were asked for: one byte says that one is done."""
        assert worker.stdout is not None
        number = 0
        while worker.stdout.read(1):
            self._asked[number].set()
            number += 1
        with self._lock:  # it has ended, which it does not do by itself
            for done in self._asked:
                done.set()


_queue = _Queue()


def compile_elsewhere(function: Callable[..., Any], arguments: tuple[Any, ...], say: Callable[[], None]) -> None:
    """Have a kernel put into the cache on disk, and wait for that as long as it is worth it.

    Returns at once where the kernel must be compiled in this process: outside of a solve, or because no other process
    could find the function or its types.

    Parameters
    ----------
    function
        What is behind the kernel.
    arguments
        Numba types of its arguments.
    say
        Called before anything is compiled.

    Raises
    ------
    KernelsPendingError
        Waiting is not worth it any more; the other process goes on.
    """
    go_on = is_patient()
    if go_on is None or function.__module__ == "__main__" or "<" in function.__qualname__ or not sys.executable:
        return
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        request = pickle.dumps((function.__module__, function.__qualname__, pickle.dumps(arguments)))
    except (pickle.PicklingError, TypeError, AttributeError):
        logger.debug("the types of kernel %s cannot be sent to another process", name)
        return
    begin = perf_counter()
    say()
    done = _queue.ask(request)
    compiling_begins()
    try:
        while not done.wait(POLL_S):
            if not go_on():
                raise KernelsPendingError(f"kernel {name!r} is still being compiled")
    finally:
        compiling_ends()
        logger.debug("waited %.2f s for kernel %s", perf_counter() - begin, name)

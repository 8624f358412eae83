"""Kernels compiled by other processes, which put them into the cache on disk, while this one need not wait.

When the first kernel is missing, one such process per core is started, `MAX_WORKERS` at most, and not only that kernel
is asked for, but all those that the solve is expected to need (:mod:`placekit.compile_ahead`), in their order; what
nobody expected comes first. When the process that asked has ended, each of the others ends what it is at: the next
start finds it.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

from placekit.compile_clock import compiling_begins, compiling_ends
from placekit.cores import num_usable_cpus
from placekit.errors import KernelsPendingError
from placekit.patience import is_patient

__all__ = ["compile_elsewhere", "expect"]

POLL_S = 0.02
"""Seconds between two looks at whether waiting is still worth it."""
MAX_WORKERS = 4
"""Processes that compile; each takes a quarter of a gigabyte."""

logger = logging.getLogger(__name__)


class _Queue:
    """What this process has asked the others for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_workers = self._num_idle = 0
        self._are_dead = False
        self._todo: deque[bytes] = deque()
        self._done: dict[bytes, threading.Event] = {}
        self._expected: list[bytes] = []

    def ask(self, request: bytes) -> threading.Event:
        """Return what is set when the kernel is on disk, or the other processes could not compile it."""
        with self._changed:
            self._put(request, is_first=True)
            self.expect([])
            return self._done[request]

    def expect(self, requests: Iterable[bytes]) -> None:
        """Ask for kernels once any other kernel is missing."""
        with self._changed:
            self._expected += requests
            if self._done:
                for each in self._expected:
                    self._put(each, is_first=False)
                self._expected.clear()

    def _put(self, request: bytes, *, is_first: bool) -> None:
        """Put a kernel at one end of the queue, unless it is in there: what is expected is in the order of need.

        Who asks early for one of those has others to wait for that come before.
        """
        if request in self._done:
            return
        self._done[request] = threading.Event()
        (self._todo.appendleft if is_first else self._todo.append)(request)
        if self._are_dead:
            self._give_up()
        elif self._num_idle < len(self._todo) and self._num_workers < min(num_usable_cpus(), MAX_WORKERS):
            self._num_workers += 1
            threading.Thread(target=self._feed, args=(_start(),), name="compile-queue", daemon=True).start()
        self._changed.notify()

    def _give_up(self) -> None:
        """Let everybody compile for themselves."""
        self._are_dead = True
        self._todo.clear()
        for done in self._done.values():
            done.set()

    def _feed(self, worker: subprocess.Popen[bytes]) -> None:
        """Have one request after the other done by a worker, until it has died, which it does not do by itself."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        answer = b"."
        while answer:
            with self._changed:
                self._num_idle += 1
                while not self._todo:
                    self._changed.wait()
                self._num_idle -= 1
                request = self._todo.popleft()
            try:
                worker.stdin.write(request + b"\n")
                worker.stdin.flush()
                answer = worker.stdout.read(1)
            except OSError:
                answer = b""
            self._done[request].set()  # if not by the worker, then by who waits
        with self._changed:
            self._num_workers -= 1
            if self._num_workers == 0:
                self._give_up()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "placekit.compile_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        process_group=0,  # Ctrl-C is for the solve; in one session, or the scheduler would take no notice of niceness
    )


_queue = _Queue()


def expect(kernels: Iterable[list[Any]]) -> None:
    """Have kernels compiled as soon as any kernel is missing, beside those that somebody waits for.

    Parameters
    ----------
    kernels
        For each its module, its name and the types of its arguments as :mod:`placekit.kernel_types` writes them, in
        the order in which they will be needed.
    """
    if sys.executable:
        _queue.expect(json.dumps(each).encode() for each in kernels)


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
        Waiting is not worth it any more; the other processes go on.
    """
    from placekit.kernel_types import spell_type  # numba, which who only expects kernels may never need

    go_on = is_patient()
    if go_on is None or function.__module__ == "__main__" or "<" in function.__qualname__ or not sys.executable:
        return
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        types = [spell_type(each) for each in arguments]
    except TypeError as error:
        logger.debug("kernel %s cannot be compiled by another process: %s", name, error)
        return
    begin = perf_counter()
    say()
    done = _queue.ask(json.dumps([function.__module__, function.__qualname__, types]).encode())
    compiling_begins()
    try:
        while not done.wait(POLL_S):
            if not go_on():
                raise KernelsPendingError(f"kernel {name.rpartition('.')[2]!r} is still being compiled", done.is_set)
    finally:
        compiling_ends()
        logger.debug("waited %.2f s for kernel %s", perf_counter() - begin, name)

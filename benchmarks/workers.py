"""Where cases are solved: processes of this machine, each of which dies with the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Executor, ProcessPoolExecutor

from placekit.errors import InvalidProblemError, UnknownNameError

__all__ = ["EXECUTORS", "make_executor"]

EXECUTORS = ("process", "ray")


def make_executor(kind: str, num_workers: int) -> Executor:
    """Return an executor of `num_workers` workers; the caller shuts it down.

    Parameters
    ----------
    kind
        ``"process"``: new processes of this machine. ``"ray"``: a Ray cluster, the one that ``RAY_ADDRESS`` names or
        a local one.
    num_workers
        Cases that run beside each other.

    Raises
    ------
    UnknownNameError
        Another kind.
    InvalidProblemError
        No worker.
    SolverUnavailableError
        Ray is not installed.
    """
    if num_workers < 1:
        raise InvalidProblemError(f"{num_workers} workers; there must be at least 1")
    if kind == "ray":
        from placekit.benchmarks.ray_executor import RayExecutor

        return RayExecutor()
    if kind != "process":
        raise UnknownNameError(f"no executor {kind!r}; it is one of {', '.join(EXECUTORS)}")
    # spawn: a fork of a process with threads (solvers, OpenVINO) may deadlock
    return ProcessPoolExecutor(num_workers, multiprocessing.get_context("spawn"), _die_with_parent)


def _die_with_parent() -> None:
    """End this worker as soon as its parent is gone: after kill -9 nobody else would, and it would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()

"""Workers that solve cases: processes of this machine, each on its own cores, ended with their parent."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from itertools import pairwise
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from placekit.machine import usable_cpus
from placekit.model.errors import InvalidProblemError

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Where libraries look for the size of their thread pools; one that the user has set to less is left alone."""


def make_executor(num_workers: int, among: Sequence[int] | None = None) -> Executor:
    """Return an executor of `num_workers` new processes, which share the cores evenly; the caller shuts it down.

    The cores are all that this process may use, or those `among` them.
    """
    if num_workers < 1:
        raise InvalidProblemError(f"{num_workers} workers; there must be at least 1")
    # spawn: a fork of a process with threads (solvers, OpenVINO) may deadlock
    context = multiprocessing.get_context("spawn")
    cores: SimpleQueue[tuple[int, ...]] = context.SimpleQueue()
    for share in shares_of(among or usable_cpus(), num_workers):
        cores.put(share)
    return ProcessPoolExecutor(num_workers, context, _begin, (cores,))


def shares_of(cores: Sequence[int], num_workers: int) -> tuple[tuple[int, ...], ...]:
    """Return the cores of every worker: neighbours stay together, and nobody goes without.

    Workers on cores of their own cannot take each other's time, however many threads a solver starts; and what asks
    the system how many cores there are (HiGHS, CP-SAT, numba, torch) gets the right answer.

    Examples
    --------
    >>> shares_of([0, 1, 2, 3], 2), shares_of([0, 1, 2], 2), shares_of([4, 5], 3)
    (((0, 1), (2, 3)), ((0, 1), (2,)), ((4,), (5,), (4,)))
    """
    if len(cores) <= num_workers:
        return tuple((cores[at % len(cores)],) for at in range(num_workers))
    least, rest = divmod(len(cores), num_workers)
    starts = [at * least + min(at, rest) for at in range(num_workers + 1)]
    return tuple(tuple(cores[begin:end]) for begin, end in pairwise(starts))


def _begin(cores: SimpleQueue[tuple[int, ...]]) -> None:
    """Start a worker: it takes the next share of cores, and ends as soon as its parent is gone."""
    _stay_on(cores.get())
    _die_with_parent()


def _stay_on(cores: tuple[int, ...]) -> None:
    """Keep this process on `cores`, where the system can do that, and its thread pools at their number."""
    for name in _POOLS:
        asked = os.environ.get(name, "")
        if not asked.isdecimal() or not 1 <= int(asked) <= len(cores):
            os.environ[name] = str(len(cores))
    if not hasattr(os, "sched_setaffinity"):
        return
    # threads that exist already (numpy starts its pool when it is imported) are not moved with the process
    tasks = Path("/proc/self/task")
    for thread in [0, *(int(task.name) for task in tasks.iterdir())] if tasks.is_dir() else [0]:
        with suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cores)


def _die_with_parent() -> None:
    """End this worker as soon as its parent is gone: after kill -9 nobody else would, and it would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()

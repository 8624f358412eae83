"""Cases on the workers of a cluster: each in a process of its own there, on its own cores, as on one machine.

A worker of the engine starts one process per thread that it has, when the first case comes, and ends the processes when
the run ends, or when nobody waits for their case any longer. The workers of a host that may use the same cores share
them; a file lock per share says which are taken.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from filelock import FileLock, Timeout

from placekit.benchmarks.cases.plan import Job
from placekit.benchmarks.cases.solve_case import failed_row, solve_case
from placekit.benchmarks.circumstances import PACKAGES
from placekit.benchmarks.workers import make_executor, shares_of
from placekit.cluster.engine import Cluster, ClusterExecutor, is_wanted_here
from placekit.cost_models.measured.measuring import lock_path
from placekit.machine import usable_cpus

_POLL_S = 0.5
_TRIES = 2
"""A case is tried again where its process died: something else may have ended it."""
Machine = tuple[str, tuple[int, ...]]
"""Host, and the cores that a worker there may use."""


class CaseExecutor(ClusterExecutor):
    """Executor of `solve_case` on a cluster; the files of a case travel with it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        told = cluster.ask(_machine)
        threads = {worker.address: worker.threads for worker in cluster.workers()}
        self._slots: dict[Machine, int] = {}
        for address, machine in told.items():
            self._slots[machine] = self._slots.get(machine, 0) + threads.get(address, 1)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Solve a case on some worker; `function` is `solve_case`."""
        assert function is solve_case
        (job,) = arguments
        content = {name: (Path(path).name, Path(path).read_bytes()) for name, path in job.files.items()}
        return super().submit(_solve_there, job, content, self._slots, **named)

    def before_leaving(self) -> None:
        """End the processes that have nothing to do; those whose case was cancelled end by themselves."""
        with suppress(Exception):  # a worker that is gone took its processes with it
            self.cluster.ask(_end_processes)


def cluster_executor(address: str) -> CaseExecutor:
    """Return an executor of cases on the cluster at `address`.

    Raises
    ------
    ClusterError
        Nobody answers, there is no worker, or one has other versions than this process.
    """
    cluster = Cluster(address)
    try:
        cluster.require_same_versions(PACKAGES)
        return CaseExecutor(cluster)
    except BaseException:
        cluster.close()
        raise


def _machine() -> Machine:
    return socket.gethostname(), tuple(usable_cpus())


@dataclass
class _Slot:
    """Process of its own for one case at a time, on its cores."""

    cores: tuple[int, ...]
    lock: FileLock | None  # held as long as the cores are this slot's; None if others have them, too
    pool: Executor | None = field(default=None, init=False)
    pid: int = field(default=0, init=False)

    def solve(self, job: Job, is_wanted: Callable[[], bool]) -> dict[str, Any]:
        """Return the row of a case.

        Raises `CancelledError` where nobody waits for it any longer.
        """
        for _ in range(_TRIES):
            try:
                if self.pool is None:
                    self.pool = make_executor(1, self.cores)
                    self.pid = self.pool.submit(_begin).result()
                row = self.pool.submit(solve_case, job)
                while True:
                    with suppress(TimeoutError):
                        return row.result(timeout=_POLL_S)
                    if not is_wanted():
                        raise CancelledError
            except BrokenExecutor:
                self.end()
            except BaseException:
                self.end()
                raise
        return failed_row(job, "the worker process died")

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.pool is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None


_FREE: SimpleQueue[_Slot] = SimpleQueue()
_MAKING = Lock()


def _solve_there(job: Job, content: Mapping[str, tuple[str, bytes]], slots: Mapping[Machine, int]) -> dict[str, Any]:
    """Solve a case in a process of this worker."""
    num_slots = slots.get(_machine(), 1)
    folder = Path(tempfile.mkdtemp(prefix="placekit-"))
    slot = _take(num_slots)
    try:
        files = {name: str(folder / f"{at}-{file}") for at, (name, (file, _)) in enumerate(content.items())}
        for name, path in files.items():
            Path(path).write_bytes(content[name][1])
        return slot.solve(replace(job, files=files), is_wanted_here()) | {"num_workers": num_slots}
    finally:
        _FREE.put(slot)
        shutil.rmtree(folder, ignore_errors=True)


def _take(num_slots: int) -> _Slot:
    """Return a slot that is free, or a new one on the first share of cores that no other process has."""
    with _MAKING:
        with suppress(Empty):
            return _FREE.get_nowait()
        shares = shares_of(usable_cpus(), num_slots)
        for share in dict.fromkeys(shares):
            name = f"cores-{'-'.join(map(str, share))}.lock"
            lock = FileLock(lock_path().with_name(name), thread_local=False)
            with suppress(Timeout):
                lock.acquire(timeout=0)
                return _Slot(share, lock)
        return _Slot(shares[0], None)  # more workers than when the run began


def _begin() -> int:
    """Let Ctrl-C of a terminal be the business of the worker, and tell the number of this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return os.getpid()


def _end_processes() -> None:
    """End the processes of this worker that have nothing to do, and give their cores back."""
    with suppress(Empty):
        while True:
            slot = _FREE.get_nowait()
            slot.end()
            if slot.lock is not None:
                slot.lock.release()

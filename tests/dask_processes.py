"""A real scheduler and real workers of Dask, as processes of this machine that stand for several."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
from limits import SOON_S

ROOT = Path(__file__).parents[1]
_DASK = [sys.executable, "-m", "dask"]
_ON_CORE = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])]); os.execv(sys.argv[2], sys.argv[2:])"


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DaskProcesses:
    """A scheduler, and workers by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.start_scheduler()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers.values(), self.scheduler]:
            end(process)

    def start_scheduler(self) -> None:
        """Start the scheduler, again at the same address."""
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        self.scheduler = self._start([*_DASK, "scheduler", *where], "scheduler")

    def start_worker(self, name: str, core: int, *, path: Sequence[Path] = (), **variables: str) -> None:
        """Start a worker with one thread on one core; `path` goes before what it imports."""
        cores = sorted(os.sched_getaffinity(0))
        command = [sys.executable, "-c", _ON_CORE, str(cores[core % len(cores)])]
        command += [*_DASK, "worker", f"tcp://{self.address}", "--nthreads", "1", "--name", name, "--no-nanny"]
        folder = str(self.folder / name)
        found = {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))} | variables
        self.workers[name] = self._start([*command, "--no-dashboard", "--local-directory", folder], name, found)

    def _start(
        self, command: Sequence[str], name: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})},
            )  # fmt: skip

    def wait_for(self, num_workers: int) -> None:
        """Return when so many workers are there."""
        from distributed import Client

        make: Any = Client
        with make(self.address, timeout=SOON_S, set_as_default=False) as client:
            client.wait_for_workers(num_workers, timeout=SOON_S)

    def children(self, *, used_s: float = 0.0) -> list[psutil.Process]:
        """Return the processes that the workers have started, that have not ended, and used so many CPU seconds."""
        found = []
        for process in self.workers.values():
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return [each for each in found if _is_at_work(each, used_s)]


def end(process: subprocess.Popen[Any], number: signal.Signals = signal.SIGKILL) -> None:
    """End a process by a signal, and what it has started with it."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
    process.wait(SOON_S)


def wait_until(is_so: Callable[[], object], for_s: float = SOON_S) -> None:
    """Return when something is so."""
    begin = time.perf_counter()
    while not is_so():
        assert time.perf_counter() - begin < for_s
        time.sleep(0.1)


def _is_at_work(process: psutil.Process, used_s: float) -> bool:
    try:
        return "resource_tracker" not in " ".join(process.cmdline()) and process.cpu_times().user >= used_s
    except psutil.NoSuchProcess:
        return False

"""When a process can be interrupted: not before it solves, however long it takes to start."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from limits import SOON_S, cpu_of


def wait_until_it_solves(process: subprocess.Popen[Any], for_s: float) -> None:
    """Return when `process` has caught SIGTERM, which only a solve does, for `for_s` seconds."""
    begin = time.perf_counter()
    status = Path(f"/proc/{process.pid}/status")
    while not _catches_sigterm(status):
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.perf_counter() - begin < SOON_S
        time.sleep(0.05)
    time.sleep(for_s)


def wait_until_it_used(process: subprocess.Popen[Any], cpu_s: float) -> None:
    """Return when `process` solves, and has used `cpu_s` CPU seconds since it was started."""
    wait_until_it_solves(process, 0.0)
    begin = time.perf_counter()
    while cpu_of(process.pid) < cpu_s:
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.perf_counter() - begin < 10 * SOON_S
        time.sleep(0.05)


def _catches_sigterm(status: Path) -> bool:
    caught = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught[0], 16) >> (signal.SIGTERM - 1) & 1)

"""Processes that can be interrupted, and when: not before they solve, however long they take to start."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from limits import SOON_S, cpu_of

HANG_S = 10 * SOON_S
"""Seconds within which even a process that shares its core with ten others does what it is waited for."""


def wait_until_it_solves(process: subprocess.Popen[Any], for_cpu_s: float) -> None:
    """Return when `process` has caught SIGTERM, which only a solve does, and has used so many CPU seconds since."""
    status = Path(f"/proc/{process.pid}/status")
    _wait(process, lambda: _catches_sigterm(status))
    wait_until_it_used(process, cpu_of(process.pid) + for_cpu_s)


def wait_until_it_used(process: subprocess.Popen[Any], cpu_s: float) -> None:
    """Return when `process` has used `cpu_s` CPU seconds since it was started."""
    _wait(process, lambda: cpu_of(process.pid) >= cpu_s)


def _wait(process: subprocess.Popen[Any], is_so: Callable[[], bool]) -> None:
    begin = time.perf_counter()
    while not is_so():
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.perf_counter() - begin < HANG_S
        time.sleep(0.05)


def _catches_sigterm(status: Path) -> bool:
    caught = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught[0], 16) >> (signal.SIGTERM - 1) & 1)


def interruptible(*arguments: str) -> list[str]:
    """Return the command of a Python process that Ctrl-C ends, also below one that ignores it."""
    heeds = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)"
    return [sys.executable, "-c", f"{heeds}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])", *arguments]

"""How long something may take in a test that is not about speed."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

SOON_S = 60.0
"""Seconds that only a hang exceeds: test machines are slow, shared, and sometimes stopped for a while.

How fast something is, is measured by the benchmarks, as ratios within one run.
"""


class Stopwatch:
    """Seconds of this process since the watch was made: the smaller of wall and CPU seconds.

    Other processes lengthen the former, several threads the latter.
    """

    def __init__(self) -> None:
        self._began_s = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """Return the seconds until now."""
        wall_s, cpu_s = self._began_s
        return min(time.perf_counter() - wall_s, time.process_time() - cpu_s)


def seconds_to_end(process: subprocess.Popen[Any], hang_s: float = SOON_S) -> float:
    """Wait for a process, and return how long it took from now: the smaller of wall and CPU seconds.

    No other process may be waited for meanwhile.
    """
    began_s, used_s = time.perf_counter(), cpu_of(process.pid) + cpu_of_ended()
    process.wait(timeout=hang_s)
    return min(time.perf_counter() - began_s, cpu_of_ended() - used_s)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process that has not been waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_session(pid: int) -> float:
    """Return the CPU seconds of all processes of a session, and of those that they have waited for."""
    used = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it has just ended
            continue
        used += sum(map(int, fields[11:15])) if fields[3] == str(pid) else 0
    return used / os.sysconf("SC_CLK_TCK")


def cpu_of_ended() -> float:
    """Return the CPU seconds of all processes that this one has waited for."""
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime

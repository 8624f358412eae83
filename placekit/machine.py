"""Facts about this machine: the CPUs and the memory that the process may use, and limits on that memory.

Memory limits hold for the whole process: of several solves at once the tightest limit counts for all of them. Where the
operating system does not tell what a process holds, nothing is limited.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

SHARE_OF_AVAILABLE = 0.8
"""Of what the machine has left when a solve begins, the part that it may take without a limit of the caller's."""
LOOK_EVERY_S = 0.05
"""Seconds for which one look at what the process holds counts."""

_limits: list[float] = []
_lock = threading.Lock()
_looked = (-math.inf, 0.0)


def usable_cpus() -> list[int]:
    """Return the logical CPUs that this process may run on; all of them where the system cannot say."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def num_usable_cpus() -> int:
    """Return the number of `usable_cpus`, at least 1."""
    return len(usable_cpus())


def resident_bytes() -> float:
    """Return the memory that this process holds, in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # asked often
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def available_bytes() -> float:
    """Return the memory that the machine, or the container that this process is in, has left; infinity if unknown."""
    return min(_left_on_machine(), _left_in_container())


def _left_on_machine() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return float(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return math.inf


def _left_in_container() -> float:
    """Return what the control group of the process has left; what it caches of files can be given back."""
    for folder, limit, used in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = float((folder / limit).read_text())
            cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(0.0, most - float((folder / used).read_text()) + float(cached.get("inactive_file", 0)))
        except (OSError, ValueError):  # also "max"
            continue
    return math.inf


def default_limit_bytes() -> float:
    """Return the memory that this process may hold without a limit of the caller's, in bytes."""
    return resident_bytes() + SHARE_OF_AVAILABLE * available_bytes()


@contextmanager
def limited_to(num_bytes: float) -> Iterator[None]:
    """Let the process hold no more than `num_bytes`, inside the ``with`` block, as far as methods look."""
    with _lock:
        _limits.append(num_bytes)
    try:
        yield
    finally:
        with _lock:
            _limits.remove(num_bytes)


def bytes_left() -> float:
    """Return the bytes up to the tightest limit, at least 0; infinity without one."""
    with _lock:
        limit = min(_limits, default=math.inf)
    return math.inf if math.isinf(limit) else max(0.0, limit - resident_bytes())


def is_exhausted() -> bool:
    """Return whether the process holds as much as the tightest limit; looks every `LOOK_EVERY_S` only."""
    global _looked  # noqa: PLW0603  # one process, one memory
    if not _limits:
        return False
    now_s = perf_counter()
    if now_s - _looked[0] > LOOK_EVERY_S:
        _looked = now_s, resident_bytes()
    with _lock:
        return _looked[1] >= min(_limits, default=math.inf)

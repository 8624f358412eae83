"""Which logical CPUs this process may use, on every system."""

from __future__ import annotations

import os

__all__ = ["num_usable_cpus", "usable_cpus"]


def usable_cpus() -> list[int]:
    """Return the logical CPUs that this process may run on; all of them where the system cannot say."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def num_usable_cpus() -> int:
    """Return how many they are, at least 1."""
    return len(usable_cpus())

"""Load profiles, and their lexicographic order.

The profile of a placement is its vector of loads, sorted with the largest first (of two passes: the two sorted vectors
added). An answer is taken iff the profile falls lexicographically, so that plateaus of equal largest load are left
where a second load can fall, and no cycle is possible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_below", "profile_of"]

TOLERANCE = 1e-12
"""Relative difference below which two loads count as equal: they are kept up to date by additions."""


def profile_of(work_s: NDArray[np.float64], moved_s: NDArray[np.float64], has_overlap: bool) -> NDArray[np.float64]:
    """``[D]`` load profile of ``[D, P]`` seconds of work and of transfers."""
    load_s = np.maximum(work_s, moved_s) if has_overlap else work_s + moved_s
    profile: NDArray[np.float64] = np.sort(load_s, axis=0)[::-1].sum(axis=1)
    return profile


def is_below(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Return True if profile `a` is lexicographically below `b`, by more than rounding."""
    differing = np.flatnonzero(np.abs(a - b) > TOLERANCE * max(a[0], b[0]))
    return len(differing) > 0 and bool(a[differing[0]] < b[differing[0]])

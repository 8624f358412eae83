"""Freed memory is kept while PyTorch programs run on the CPU.

Every op of torch allocates what it makes. The C library of Linux gives large blocks back to the system when they are
freed, and each of their pages costs a fault, and zeros, when an op gets them again: a quarter of the time of a
MobileNet. Told to keep them, it serves the next sample from the same pages.
"""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache

_LOGGER = logging.getLogger(__name__)

KEEP_MEMORY = "PLACEKIT_KEEP_MEMORY"
"""Environment variable: ``0`` leaves memory to the C library."""

# of malloc.h; the threshold is the largest that glibc takes, larger blocks are mapped on their own
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD_BYTES = 32 << 20
_NEVER_BYTES = (1 << 31) - 1


@cache
def keep_freed_memory() -> bool:
    """Let the allocator of this process keep what is freed, for the rest of its life; return whether it does.

    Only glibc can be told; blocks above 32 MiB go back all the same. The process stays as large as it was at most.
    """
    if os.environ.get(KEEP_MEMORY) == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError) as error:  # not glibc, or not even a system that has such a library
        _LOGGER.debug("freed memory goes back to the system: %s", error)
        return False
    is_set = mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _NEVER_BYTES)
    return bool(is_set)

"""Memory that is freed and allocated again, with and without being kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys
import numpy as np
from placekit.cost_models.pytorch.allocator import keep_freed_memory

is_kept = keep_freed_memory()
for each in range(8):
    if each == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(1 << 20) for _ in range(4)]  # 8 MiB each
    del blocks
print(is_kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(keep: str) -> tuple[bool, int]:
    """Return whether memory is kept, and the page faults of allocating 32 MiB four times again."""
    environment = {**os.environ, "PLACEKIT_KEEP_MEMORY": keep}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    is_kept, faults = done.stdout.split()
    return is_kept == "True", int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults of glibc")
def test_kept_memory_costs_no_page_faults() -> None:
    """Unless the environment says otherwise."""
    is_kept, faults = _faults("1")
    if not is_kept:
        pytest.skip("the C library here takes no advice")
    assert faults < 200
    is_kept, faults = _faults("0")
    assert not is_kept
    assert faults > 1000

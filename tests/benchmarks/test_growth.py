"""How cost grows: the fit, and what memory and circumstances are."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from placekit.benchmarks import circumstances
from placekit.benchmarks.report.named import growth_of


def row_of(method: str, num_ops: int, **changes: Any) -> dict[str, Any]:
    """Return a row as if time were ops / 1e5 and memory ops squared."""
    return {
        "family": "chains",
        "method": method,
        "num_ops": num_ops,
        "ended": "done",
        "time_s": num_ops / 1e5,
        "memory_bytes": float(num_ops) ** 2,
    } | changes


def test_fit_finds_the_exponent_of_a_power_law() -> None:
    """Without noise the error is nil; two points have none, and one size says nothing."""
    rows = [row_of("dp", size) for size in (1000, 3000, 10_000)]
    assert [growth_of(rows, quantity) for quantity in ("time_s", "memory_bytes")] == ["1.00 ± 0.00", "2.00 ± 0.00"]
    assert growth_of(rows[:2], "memory_bytes") == "2.00"
    assert growth_of([rows[0], rows[0]], "time_s") is None
    assert growth_of([row | {"memory_bytes": None} for row in rows], "memory_bytes") is None


def test_fit_ignores_small_sizes_and_stopped_solves() -> None:
    """Below 1000 ops fixed costs rule; the time of a stopped solve is not the time of an answer."""
    rows = [row_of("dp", size) for size in (100, 1000, 3000, 10_000)]
    rows[0]["time_s"] = 50.0
    rows.append(row_of("dp", 30_000, ended="limit", time_s=60.0))
    assert growth_of(rows, "time_s") == "1.00 ± 0.00"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_process_alone() -> None:
    """A large array shows in the peak of the process that made it, not in that of one that it starts."""
    program = (
        "import subprocess, sys; from placekit.benchmarks.circumstances import *; before = peak_bytes();"
        "x = bytearray(300_000_000); grown = peak_bytes() - before;"
        "code = 'from placekit.benchmarks.circumstances import *; print(peak_bytes())';"
        "own = int(subprocess.run([sys.executable, '-c', code], capture_output=True, check=True).stdout);"
        "print(grown, own)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, child = map(int, done.stdout.split())
    assert 290e6 < grown < 310e6
    assert child < 250e6


def test_circumstances_name_machine_and_versions() -> None:
    """Rows of different days and machines can lie in one file."""
    found = circumstances.circumstances()
    assert json.loads(json.dumps(found)) == found
    assert {"python", "placekit", "numba", "numpy"} <= found["versions"].keys()
    assert found["machine"]["cores"] >= 1

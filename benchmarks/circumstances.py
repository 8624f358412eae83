"""Machine, versions, commit and memory of the process, which stand beside every measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placekit.machine import num_usable_cpus

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("placekit", "highspy", "numba", "numpy", "openvino", "ortools", "pulp", "scipy")
_STATUS = Path("/proc/self/status")


def circumstances() -> dict[str, Any]:
    """Return commit, machine, load and versions as JSON values."""
    from placekit.cost_models.openvino.machine import cpu_name

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607  # whichever git the developer has
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or None,
        "machine": {
            "cpu": cpu_name(),
            "cores": num_usable_cpus(),
            "system": platform.platform(),
            "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        },
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in PACKAGES},
    }


def peak_bytes() -> int | None:
    """Return the largest resident memory of this process since its start or since `reset_peak`, in bytes.

    Linux tells it in ``/proc``. Its ``ru_maxrss`` is not used there: a process inherits that from the one that started
    it. Elsewhere ``ru_maxrss`` is all there is.
    """
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return None


def reset_peak() -> None:
    """Let `peak_bytes` forget what was before, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

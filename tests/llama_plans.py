"""Plans for servers of devices on this machine, by the command that a user types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPARE = 2**20


def platform_text(
    limits: Sequence[int], addresses: Sequence[str], speeds: Sequence[float] | None = None, latency_s: float = 1e-6
) -> str:
    """Return a host, and a device with a limit in bytes on each server; `speeds` are relative to the first."""
    text = '[[device]]\nname = "CPU"\nkind = "cpu-core-f32"\nhost = true\n'
    for at, (limit, address) in enumerate(zip(limits, addresses, strict=False)):
        speed = 1.0 if speeds is None else speeds[at]
        text += f'[[device]]\nname = "RPC[{address}]"\nkind = "far{at}"\nspec = "far{at}"\nmemory = {limit}\n'
        text += f"[link.far{at}]\nlatency_s = {latency_s}\nbandwidth_bytes_per_s = 1e12\n"
        text += f'[spec.far{at}]\nbase = "cpu-core-f32"\ndense_flops_per_s = {4e12 * speed}\n'
        text += f"other_flops_per_s = 1e12\nmemory_bandwidth_bytes_per_s = {5e11 * speed}\n"
    return text


def placekit(folder: Path, *words: str | Path) -> Any:
    """Return what a command of placekit prints as JSON."""
    command = [sys.executable, "-m", "placekit", *map(str, words), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return json.loads(done.stdout)

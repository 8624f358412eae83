"""Slow suite, part by part: ``python -m tests.slow`` runs all parts, ``python -m tests.slow learned`` one of them.

A part that ends well is noted in ``slow_green.txt``: whether the machine was quiet or busy with other processes, the
date, the commit, the minutes on how many cores, and the CPU minutes of the part and of all others meanwhile. It is
noted with a ``+`` behind the commit if files differed from that commit; the notes of other parts are no difference.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

HANGS = ("--timeout=3600", "-o", "faulthandler_timeout=18000")
"""Seconds that only a hang exceeds, of a test that names none of its own, and of all tests: some of these take hours
beside other processes, while those of `make test` take minutes."""
ROOT = Path(__file__).resolve().parents[1]
PARTS: Mapping[str, Mapping[str, Any]] = tomllib.loads((ROOT / "tests" / "slow_parts.toml").read_text())
GREEN = ROOT / "tests" / "slow_green.txt"
SET_CHILD_SUBREAPER = 36
"""Number of an operation of Linux's prctl(2)."""
QUIET = 0.2
"""Cores that other processes may keep busy on a quiet machine, on average."""


def all_files() -> list[str]:
    """Return what pytest collects from: the files with tests, and the package with doctests."""
    found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    return [*found, "placekit"]


def part_of(file: str) -> str | None:
    """Return the part of a file: that with the longest path which leads to it; None if there is none."""
    paths = {path: name for name, part in PARTS.items() for path in part["paths"]}
    leading = [path for path in paths if file == path or file.startswith(f"{path}/")]
    return paths[max(leading, key=len)] if leading else None


def run_part(name: str) -> int:
    """Run a part in full, and return the exit status of pytest."""
    files = [file for file in all_files() if part_of(file) == name]
    processes = PARTS[name].get("processes", 2)
    spread = ["-n", str(processes), "--dist", "loadgroup"] if processes > 1 else []
    environment = os.environ | {"PLACEKIT_EXAMPLES": "all", "OMP_NUM_THREADS": "1"}
    commit, begin, used_s, all_used_s = _commit(), perf_counter(), _cpu_of_children_s(), _cpu_of_all_s()
    command = [sys.executable, "-m", "pytest", "-m", "", *HANGS, *spread, *files]
    status = _call(command, environment)
    if status == 0:
        wall_s, own_s = perf_counter() - begin, _cpu_of_children_s() - used_s
        others_s = max(0.0, _cpu_of_all_s() - all_used_s - own_s)
        cores, state = len(os.sched_getaffinity(0)), "quiet" if others_s < QUIET * wall_s else "busy"
        times = f"{wall_s / 60:5.1f} min on {cores} cores, CPU min {own_s / 60:5.1f}, of others {others_s / 60:5.1f}"
        _note(name, state, f"{date.today()}  {commit:<10}{times}")
    return status


def _commit() -> str:
    """Return the commit that is checked out, and a plus sign if files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    differing = git("status", "--porcelain", "--", ".", f":(exclude){GREEN.relative_to(ROOT)}")
    return git("rev-parse", "--short", "HEAD") + "+" * bool(differing)


def _cpu_of_children_s() -> float:
    """Return the CPU seconds of all processes that have ended, and of theirs."""
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime


def _call(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, and return its exit status.

    On Linux what outlives its own parent, as the processes of a browser do, becomes a child of ours, so that its
    seconds are known; it is waited for as soon as it ends, as the first process of the system does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:  # pytest, by this interpreter
        ended, status = os.wait()
        while ended != process.pid:
            ended, status = os.wait()
    return os.waitstatus_to_exitcode(status)


def _cpu_of_all_s() -> float:
    """Return the CPU seconds of all processes of the machine since it started."""
    told = psutil.cpu_times()
    return float(told.user + told.nice + told.system)


def _note(name: str, state: str, told: str) -> None:
    """Replace the line of a part that has ended well in this state of the machine."""
    lines = GREEN.read_text().splitlines() if GREEN.is_file() else []
    others = [line for line in lines if line.split()[:2] != [name, state]]
    GREEN.write_text("\n".join(sorted([*others, f"{name:<12}{state:<7}{told}"])) + "\n")


def main() -> int:
    """Run the parts that are named, or all; go on after one that fails, and name those."""
    names = sys.argv[1:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.stderr.write(f"no part {unknown[0]!r}; parts are {', '.join(PARTS)}\n")
        return 2
    failed = [name for name in names if run_part(name) != 0]
    told = f"; not {', '.join(failed)}" if failed else ""
    sys.stdout.write(f"{len(names) - len(failed)} of {len(names)} parts are green{told}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

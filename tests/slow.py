"""Slow suite, part by part: ``python -m tests.slow`` runs all parts, ``python -m tests.slow learned`` one of them.

A part that ends well is noted in ``slow_green.txt``: the date, the commit, the minutes on how many cores, the CPU
minutes, and the load of the machine just before (0 is a quiet machine). It is noted with a ``+`` behind the commit if
files differed from that commit; the notes of other parts are no difference.
"""

from __future__ import annotations

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

HANGS = ("--timeout=3600", "-o", "faulthandler_timeout=18000")
"""Seconds that only a hang exceeds, of a test that names none of its own, and of all tests: some of these take hours
beside other processes, while those of `make test` take minutes."""
ROOT = Path(__file__).resolve().parents[1]
PARTS: Mapping[str, Mapping[str, Any]] = tomllib.loads((ROOT / "tests" / "slow_parts.toml").read_text())
GREEN = ROOT / "tests" / "slow_green.txt"


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
    commit, load = _commit(), os.getloadavg()[0]
    begin, used_s = perf_counter(), _cpu_of_children_s()
    command = [sys.executable, "-m", "pytest", "-m", "", *HANGS, *spread, *files]
    status = subprocess.call(command, cwd=ROOT, env=environment)  # pytest, by this interpreter
    if status == 0:
        minutes, cpu_minutes = (perf_counter() - begin) / 60, (_cpu_of_children_s() - used_s) / 60
        cores = len(os.sched_getaffinity(0))
        told = f"{minutes:5.1f} min on {cores} cores, {cpu_minutes:5.1f} CPU min, load {load:.1f}"
        _note(name, f"{date.today()}  {commit:<10} {told}")
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


def _note(name: str, told: str) -> None:
    """Replace the line of a part that has ended well."""
    lines = [line for line in (GREEN.read_text().splitlines() if GREEN.is_file() else []) if line.split()[0] != name]
    GREEN.write_text("\n".join(sorted([*lines, f"{name:<12}{told}"])) + "\n")


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

"""Quick benchmark: start-up, reading, and solving, one JSON row per measurement.

Run by ``make bench``. Rows are appended to ``benchmarks/rows/quick.jsonl``; each has the commit, the machine and the
versions beside the numbers, so that rows of different days and machines can lie in one file.

Measured are

1. ``start``: wall seconds of ``placekit --help``, best and median of five;
2. ``read``: reading and building the problem of every workload found;
3. ``solve``: ``ilp`` on it, under ``acyclic`` and ``none``, with a time limit: objective, bound, gap, seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT, circumstances

WORKLOADS = ROOT.parent / "shared" / "workloads"
ROWS = ROOT / "benchmarks" / "rows" / "quick.jsonl"

__all__ = ["main"]


def measure_start(repetitions: int = 5) -> dict[str, Any]:
    """Return the wall seconds of ``placekit --help``."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "placekit.cli.main", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return {"benchmark": "start", "best_s": min(times), "median_s": statistics.median(times), "times_s": times}


def measure_workload(path: Path, time_limit_s: float) -> Iterator[dict[str, Any]]:
    """Yield a row for reading the workload, and one for solving it under each contiguity."""
    from placekit import Contiguity, MaxRuntime, read_workload, solve

    start = time.perf_counter()
    problem = read_workload(path)
    read_s = time.perf_counter() - start
    size = {"workload": path.stem, "num_ops": problem.graph.num_ops, "num_edges": problem.graph.num_edges}
    yield {"benchmark": "read", **size, "time_s": read_s}
    for contiguity in (Contiguity.ACYCLIC, Contiguity.NONE):
        result = solve(problem.replace(contiguity=contiguity), "ilp", stop=MaxRuntime(time_limit_s))
        yield {
            "benchmark": "solve",
            **size,
            "contiguity": str(contiguity),
            "method": result.method,
            "seed": result.seed,
            "time_limit_s": time_limit_s,
            "runtime_s": result.runtime_s,
            "objective_s": result.objective,
            "bound_s": result.lower_bound,
            "gap": result.gap,
            "status": str(result.status),
        }


def main() -> None:
    """Measure, print one line per row, append the rows."""
    parser = argparse.ArgumentParser(description="Measure start-up, reading and solving.")
    parser.add_argument("workloads", nargs="*", type=Path, help="workload files; the shared throughput ones by default")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per solve")
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    options = parser.parse_args()
    workloads = options.workloads or sorted(WORKLOADS.glob("*/throughput/*.json"))
    if not workloads:
        print(f"no workloads under {WORKLOADS}: only start-up is measured", file=sys.stderr)
    context = circumstances()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    with options.rows.open("a", encoding="utf-8") as file:

        def keep(row: dict[str, Any]) -> None:
            print(" ".join(f"{key}={shown(value)}" for key, value in row.items() if key != "times_s"), flush=True)
            file.write(json.dumps(row | context) + "\n")

        keep(measure_start())
        for path in workloads:
            for row in measure_workload(path, options.time_limit):
                keep(row)
    print(f"rows appended to {options.rows}")


def shown(value: Any) -> str:
    """Return a value for the line that is printed."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

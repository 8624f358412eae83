"""Quick benchmark: start-up, reading, and solving, one JSON row per measurement.

Run by ``make bench``. Rows are appended to ``benchmarks/rows/quick.jsonl``; each has the commit, the machine and the
versions beside the numbers, so that rows of different days and machines can lie in one file.

Measured are

1. ``start``: wall seconds of ``placekit --help``, best and median of five;
2. ``read``: reading and building the problem of every workload found;
3. ``judge``: makespans per second of random placements of 1,000 ops, in batches, one by one through `evaluate`, and by
   the plain Python twin of the tests, which must find the same makespans to the last bit;
4. ``instant``: the list schedulers, and ``mincut`` for two kinds, on generated graphs of 1,000 and 100,000 ops;
5. ``solve``: ``ilp`` on it, under ``acyclic`` and ``none``, with a time limit: objective, bound, gap, seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from placekit.benchmarks.circumstances import ROOT, circumstances

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from placekit.problem import Problem

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


def measure_judge(family: str, num_ops: int = 1000, num_placements: int = 10_000, num_plain: int = 1) -> dict[str, Any]:
    """Return how many random placements per second the makespan judge scores, and its plain twin.

    Raises
    ------
    JudgeDisagreementError
        The two disagree on one of the first `num_plain` placements.
    """
    import numba
    import numpy as np

    from placekit import Makespan, Placement, evaluate
    from placekit.benchmarks.families import generate
    from placekit.errors import JudgeDisagreementError
    from placekit.makespan.instance import instance_of
    from placekit.makespan.simulate import batch_makespan

    problem = generate(family, num_ops, num_devices=4, equal=False, objective=Makespan())
    size = (num_placements, problem.graph.num_ops)
    devices = np.random.default_rng(0).integers(problem.platform.num_devices, size=size)
    instance = instance_of(problem)
    batch_makespan(instance, devices[:10])  # compiles
    best_s = min(_seconds(lambda: batch_makespan(instance, devices)) for _ in range(3))
    one_by_one = [Placement.of(problem, row) for row in devices[:50]]
    single_s = _seconds(lambda: [evaluate(problem, each) for each in one_by_one])
    twin, plain = _plain_twin(), list[float]()
    plain_s = _seconds(lambda: plain.extend(_plain_makespan(twin, problem, row) for row in devices[:num_plain]))
    for row, (ours, its) in enumerate(zip(batch_makespan(instance, devices[:num_plain]).tolist(), plain, strict=True)):
        if ours != its:
            raise JudgeDisagreementError(f"placement {row} of {problem.name}: {ours!r} s, by the plain twin {its!r} s")
    return {
        "benchmark": "judge",
        "family": family,
        "num_ops": problem.graph.num_ops,
        "num_edges": problem.graph.num_edges,
        "threads": numba.get_num_threads(),
        "placements_per_s": num_placements / best_s,
        "evaluate_per_s": len(one_by_one) / single_s,
        "plain_per_s": num_plain / plain_s,
        "plain_ratio": num_placements / best_s * plain_s / num_plain,
    }


def _plain_twin() -> ModuleType:
    """Return ``tests/oracle.py``: it is no part of the package, but these benchmarks run in a checkout."""
    spec = importlib.util.spec_from_file_location("oracle", ROOT / "tests" / "oracle.py")
    assert spec is not None  # a .py file has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain_makespan(twin: ModuleType, problem: Problem, device_of_op: NDArray[np.int64]) -> float:
    times: list[tuple[float, float]] = twin.makespan_times(problem, tuple(device_of_op.tolist()))
    return max(finish for _, finish in times)


def measure_instant(num_ops: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every method that answers large graphs at once, the better of two runs."""
    from placekit import Makespan, SerialLatency, solve
    from placekit.benchmarks.families import generate

    schedulers = ("heft", "cpop", "peft", "critical-path", "m-topo", "m-etf", "m-sct")
    makespan = generate("layered", num_ops, num_devices=4, equal=False, objective=Makespan())
    serial = generate("layered", num_ops, num_devices=2, equal=False, objective=SerialLatency())
    for problem, methods in ((makespan, schedulers), (serial, ("mincut",))):
        for method in methods:
            results = [solve(problem, method) for _ in range(2)]
            yield {
                "benchmark": "instant",
                "objective": problem.objective.name,
                "num_ops": problem.graph.num_ops,
                "num_edges": problem.graph.num_edges,
                "method": method,
                "runtime_s": min(result.runtime_s for result in results),
                "objective_s": results[0].objective,
                "status": str(results[0].status),
            }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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
        for family in ("transformer", "layered"):
            keep(measure_judge(family))
        for num_ops in (1_000, 100_000):
            for row in measure_instant(num_ops):
                keep(row)
        for path in workloads:
            for row in measure_workload(path, options.time_limit):
                keep(row)
    print(f"rows appended to {options.rows}")


def shown(value: Any) -> str:
    """Return a value for the line that is printed."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

"""How time and memory grow with the size of the graph.

Run by ``make scaling``. For generated families of 100 to 100,000 ops, `dpl`, `dp`, one cycle of `local-search`, and
`dpl` followed by it are measured, each case alone in its own process (:mod:`placekit.benchmarks.scaling_case`). Rows
are appended to ``benchmarks/rows/scaling.jsonl``; with ``--resume`` cases that have a row there are not measured
again. At the end the fitted exponents are printed and drawn.

Once a method ran into the time limit on a family, its larger sizes are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.families import FAMILIES
from placekit.benchmarks.plot_scaling import QUANTITIES, growth_of, plot_scaling
from placekit.benchmarks.scaling_case import SEQUENCES, Case
from placekit.errors import InvalidFileError
from placekit.plotting.save import save_figure

__all__ = ["main", "read_rows", "run_case", "run_cases", "table"]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "scaling.jsonl"
FIGURE = ROOT / "benchmarks" / "figures" / "scaling.png"
DEFAULT_FAMILIES = ("chains", "transformer", "layered")
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
GRACE_S = 300.0
"""Seconds beyond the time limit, for warm-up, compiling and building, after which a process is ended."""


def run_case(case: Case, grace_s: float = GRACE_S) -> Row:
    """Measure `case` in a process of its own, and return its row.

    A process that has to be ended or that fails gives a row that says so (``"ended": "killed"`` or ``"failed"``), with
    neither time nor memory.
    """
    command = [sys.executable, "-m", "placekit.benchmarks.scaling_case", json.dumps(asdict(case))]
    start = time.perf_counter()
    lost: Row = {"benchmark": "scaling", **asdict(case), "num_ops": None, "time_s": None, "memory_bytes": None}
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, a module of ours, a case as JSON
            command, capture_output=True, text=True, check=False, timeout=case.time_limit_s + grace_s
        )
    except subprocess.TimeoutExpired:
        row = lost | {"ended": "killed", "after_s": time.perf_counter() - start}
    else:
        if done.returncode == 0:
            row = json.loads(done.stdout.splitlines()[-1])
        else:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            row = lost | {"ended": "failed", "error": reason, "after_s": time.perf_counter() - start}
    return row | circumstances()


def read_rows(path: Path) -> dict[Case, Row]:
    """Return the rows of a file by case, the latest of each; failed ones are left out.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark; the message names file and line.
    """
    rows: dict[Case, Row] = {}
    if not path.exists():
        return rows
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            case = Case(*(row[field] for field in Case.__slots__))
            ended = row["ended"]
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidFileError(f"{path}: line {number} is no row of the scaling benchmark: {error!r}") from error
        if ended != "failed":
            rows[case] = row
    return rows


def run_cases(cases: Sequence[Case], known: Mapping[Case, Row]) -> Iterator[tuple[Case, Row, bool]]:
    """Yield each case with its row, and whether it is new.

    Parameters
    ----------
    cases
        By rising size within each family and method: where one was not answered within its limit, the larger ones are
        left out.
    known
        Rows that need not be measured again.
    """
    too_large: dict[tuple[str, str], int] = {}
    for case in cases:
        if case.size > too_large.get((case.family, case.method), case.size):
            continue
        is_new = case not in known
        row = run_case(case) if is_new else known[case]
        if row["ended"] in ("limit", "killed"):
            too_large[case.family, case.method] = case.size
        yield case, row, is_new


def table(rows: Sequence[Row]) -> str:
    """Return one line per family and method: fitted exponents, and the largest size that was answered."""
    lines = [
        f"{'family':20} {'method':18} {'time ~ n^':>14} {'memory ~ n^':>14} {'largest':>9} {'time':>10} {'memory':>10}"
    ]
    for family, method in dict.fromkeys((row["family"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["family"], row["method"]) == (family, method)]
        growths = [growth_of(mine, quantity) for quantity in QUANTITIES]
        fitted = " ".join(f"{'-' if growth is None else str(growth):>14}" for growth in growths)
        done = [row for row in mine if row["ended"] == "done"]
        text = f"{family:20} {method:18} {fitted}"
        if done:
            last = max(done, key=lambda row: row["size"])
            memory = "-" if last["memory_bytes"] is None else f"{last['memory_bytes'] / 1e6:.1f} MB"
            text += f" {last['num_ops']:>9} {last['time_s']:>8.3g} s {memory:>10}"
        lines.append(text)
    return "\n".join(lines)


def describe(case: Case, row: Row) -> str:
    """Return one line about a row."""
    text = f"{case.family:20} {case.size:>7} {case.method:18} {row['ended']:9}"
    if row["time_s"] is not None:
        memory = "" if row["memory_bytes"] is None else f" {row['memory_bytes'] / 1e6:9.1f} MB"
        text += f" {row['time_s']:9.3f} s{memory} {row['status']}"
    return text + (f" {row['error']}" if "error" in row else "")


def main() -> None:
    """Measure, append the rows, print and draw how the cost grows."""
    parser = argparse.ArgumentParser(description="Measure how time and memory grow with the size of the graph.")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=DEFAULT_FAMILIES, metavar="FAMILY")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="OPS")
    parser.add_argument("--methods", nargs="+", choices=SEQUENCES, default=tuple(SEQUENCES), metavar="METHOD")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per solve")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="where the figure goes: .png, .svg or .pdf")
    parser.add_argument("--resume", action="store_true", help="leave out cases that have a row already")
    options = parser.parse_args()
    sizes = sorted(set(options.sizes))
    cases = [
        Case(family, size, method, options.seed, options.time_limit)
        for family in options.families
        for size in sizes
        for method in options.methods
    ]
    known = read_rows(options.rows) if options.resume else {}
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with options.rows.open("a", encoding="utf-8") as file:
        for case, row, is_new in run_cases(cases, known):
            rows.append(row)
            print(describe(case, row) + ("" if is_new else " (from the file)"), flush=True)
            if is_new:
                file.write(json.dumps(row) + "\n")
                file.flush()
    print(f"\n{table(rows)}\n\nrows appended to {options.rows}")
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    save_figure(plot_scaling(rows), options.figure)
    print(f"figure in {options.figure}")
    if any(row["ended"] == "failed" for row in rows):
        sys.exit("some cases failed; run again with --resume to repeat them")


if __name__ == "__main__":
    main()

"""What training costs: updates and evaluations per second of every learner, where the time goes, and memory.

``python -m placekit.benchmarks.training_cost`` trains every learner for a few seconds on generated graphs of 1,000,
10,000 and 50,000 ops, each case alone in its process (:mod:`placekit.benchmarks.training_cost_case`). Rows are appended
to ``benchmarks/rows/training_cost.jsonl``; cases that have a row there are not measured again. With ``--memory`` one
update each, which tells the memory on a machine that is too busy to time anything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row, read_cases
from placekit.benchmarks.training_cost_case import PHASES, CostCase

__all__ = ["cases", "main", "markdown_table", "read_rows", "run_case"]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "training_cost.jsonl"
LEARNERS = ("hsdag", "gdp", "placeto", "rnn")
GRAPHS = (("layered", 1_000), ("transformer", 1_000), ("layered", 10_000), ("transformer", 10_000), ("layered", 50_000))
SECONDS = 5.0
"""Of updates per case."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
LIMIT_S = 900.0
"""After which a case is ended, with building and the first update."""


def cases(*, memory_only: bool) -> list[CostCase]:
    """Return all cases, small graphs first."""
    seconds = 0.0 if memory_only else SECONDS
    return [CostCase(learner, *graph, seconds) for graph, learner in itertools.product(GRAPHS, LEARNERS)]


def run_case(case: CostCase, limit_s: float = LIMIT_S) -> Row:
    """Measure `case` in a process of its own, and return its row.

    A process that has to be ended or that fails gives a row whose ``"ended"`` says how, without numbers.
    """
    command = [sys.executable, "-m", "placekit.benchmarks.training_cost_case", json.dumps(asdict(case))]
    lost: Row = {"benchmark": "training-cost", **asdict(case), "update_s": None, "memory_bytes": None}
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, a module of ours, a case as JSON
            command, capture_output=True, text=True, check=False, timeout=limit_s, env={**os.environ, **ONE_THREAD}
        )
    except subprocess.TimeoutExpired:
        return lost | {"ended": f"after {limit_s:g} s"} | circumstances()
    if done.returncode:
        error = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return lost | {"ended": error} | circumstances()
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row | {"ended": "done"}


def read_rows(path: Path) -> dict[CostCase, Row]:
    """Return the rows of a file by case, the latest of each.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    return read_cases(path, "training-cost", CostCase)


def markdown_table(rows: Mapping[CostCase, Row]) -> str:
    """Return a line per graph and learner; times only from rows that were made to tell them."""
    heads = ["graph", "ops", "learner", "updates/s", "evaluations/s", *PHASES, "memory"]
    lines = [markdown_line(heads), markdown_line(["---"] * len(heads))]
    for family, size in GRAPHS:
        for learner in LEARNERS:
            timed = rows.get(CostCase(learner, family, size, SECONDS))
            known = timed or rows.get(CostCase(learner, family, size, 0.0))
            if known is None:
                continue
            told = [family, f"{size:,}", f"`{learner}`"]
            if known["update_s"] is None:
                lines.append(markdown_line([*told, known["ended"], *["-"] * (len(PHASES) + 2)]))
                continue
            if timed is None:
                told += ["-"] * (len(PHASES) + 2)
            else:
                told += [f"{1 / timed['update_s']:.3g}", f"{timed['evaluations_per_s']:,.0f}"]
                told += [f"{timed['shares'][phase]:.0%}" for phase in PHASES]
            memory = known["memory_bytes"]
            lines.append(markdown_line([*told, "-" if memory is None else f"{memory / 2**20:,.0f} MiB"]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what has no row yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--learner", choices=LEARNERS, help="one learner")
    parser.add_argument("--most", type=int, metavar="OPS", help="graphs of at most so many ops")
    parser.add_argument("--memory", action="store_true", help="one update each: memory only")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    options = parser.parse_args(arguments)
    known = read_rows(options.rows)
    wanted = [
        case
        for case in cases(memory_only=options.memory)
        if case not in known
        and options.learner in (None, case.learner)
        and (options.most is None or case.size <= options.most)
    ]
    for number, case in enumerate([] if options.table else wanted, 1):
        row = run_case(case)
        append_row(options.rows, row)
        known[case] = row
        memory = "no memory known" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 2**20:,.0f} MiB"
        speed = row["ended"] if row["update_s"] is None else f"{row['update_s']:.3g} s per update, {memory}"
        print(f"[{number}/{len(wanted)}] {case.learner}, {case.family}, {case.size:,} ops: {speed}", flush=True)
    if known:
        print(f"\n{markdown_table(known)}\n")


if __name__ == "__main__":
    main()

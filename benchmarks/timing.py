"""Placements timed on this machine: speedups, unequal groups, and predictions against measurements.

``python -m placekit.benchmarks.timing`` runs all of it in about 45 minutes; ``--parts``, ``--models``, ``--executors``
and ``--quick`` run less. It should have the machine to itself: rows say how much other load there was. One row per case
is appended to ``benchmarks/rows/timing.jsonl``; cases that have a row there are left out, so that a run may be stopped
at any time and continued, and a case that fails gives a row with its error, is passed over, and is tried again the next
time. See
:mod:`placekit.benchmarks.timing_cases` for what is measured.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.rows import append_row, read_lines
from placekit.benchmarks.timing_cases import EXECUTORS, PARTS, TimingCase, run_case, timing_cases
from placekit.cost_models.cache import cache_directory
from placekit.errors import InvalidFileError, PlacekitError

__all__ = ["main", "read_rows", "summary"]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "timing.jsonl"
_LOGGER = logging.getLogger(__name__)


def read_rows(path: Path) -> dict[TimingCase, Row]:
    """Return the rows of a file by case, the latest of each that did not fail.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    rows: dict[TimingCase, Row] = {}
    for number, row in read_lines(path):
        try:
            case = TimingCase(**{name: row[name] for name in TimingCase.__dataclass_fields__})
        except KeyError as error:
            raise InvalidFileError(f"{path}, line {number}: no row of this benchmark: it lacks {error}") from None
        if row.get("error") is None:
            rows[case] = row
    return rows


def run_cases(cases: Sequence[TimingCase], folder: Path) -> Iterator[tuple[TimingCase, Row]]:
    """Measure the cases one after the other, and yield their rows; one that fails has its error in its row."""
    for case in cases:
        start = time.perf_counter()
        row: Row = {"benchmark": "timing", **asdict(case)}
        try:
            row = run_case(case, folder) | {"error": None}
        except (PlacekitError, RuntimeError, MemoryError, OSError) as error:
            _LOGGER.debug("%s failed", case, exc_info=True)
            row["error"] = f"{type(error).__name__}: {error}"
        yield case, row | {"case_s": time.perf_counter() - start} | circumstances()


def describe(case: TimingCase, row: Mapping[str, Any]) -> str:
    """Return one line about a row."""
    text = f"{case.part:10} {case.model:13} {case.groups:8} {case.executor:10} {row['case_s']:5.0f} s  "
    if row["error"] is not None:
        return text + f"FAILED: {row['error']}"
    if case.part == "speedup":
        text += f"{_times(row['speedup_over_best_single'])} over {row['best_single']}"
    elif case.part == "unequal":
        text += f"{_times(row['speedup_over_equal_halves'])} over equal halves, "
        text += f"{_times(row['speedup_over_best_random'])} over the best random cut"
    elif case.part == "compile":
        told = (
            f"{each['num_stages']}: {each['cold_s']:.2f} s, {each['cached_s']:.2f} s cached" for each in row["plans"]
        )
        text += f"compiled by number of stages: {'; '.join(told)}"
    else:
        found = row["calibration"]
        text += f"error {found['error_before']:.1%} before, {found['error_after']:.1%} after calibration"
    return text + (" NOISY" if row["noisy"] else "")


def _times(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.2f}x"


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the rows of the part ``prediction`` say together, one line per way of running.

    The mean absolute errors are over all splits. Rank correlations (Spearman) are within a model and its groups, where
    a solver has to choose, and their mean is told.
    """
    lines = []
    for executor in dict.fromkeys(row["executor"] for row in rows if row["part"] == "prediction"):
        mine = [row for row in rows if row["part"] == "prediction" and row["executor"] == executor]
        splits = [split for row in mine for split in row["splits"]]
        before, after = (np.abs([split[f"error_{when}"] for split in splits]) for when in ("before", "after"))
        lines.append(
            f"{executor:10} {len(splits)} splits of {len({row['model'] for row in mine})} models: mean error "
            f"{before.mean():.1%} before, {after.mean():.1%} after calibration; largest {before.max():.1%}, "
            f"{after.max():.1%}; rank correlation {_rank_correlation(mine, 'predicted_s'):.3f}, "
            f"{_rank_correlation(mine, 'calibrated_s'):.3f}"
        )
    return lines


def _rank_correlation(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    from scipy.stats import spearmanr

    found = []
    for row in rows:
        told = [[split[name], split["measured_s"]] for split in row["splits"]]
        found.append(float(spearmanr(told).statistic))
    return float(np.mean(found))


def main() -> None:
    """Measure what has no row yet, append the rows, print what they say."""
    parser = argparse.ArgumentParser(description="Time placements on this machine.")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), metavar="PART")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="only these models")
    parser.add_argument(
        "--executors", nargs="+", choices=EXECUTORS, default=EXECUTORS, metavar="EXECUTOR", help="only these"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: short bursts, few cuts")
    parser.add_argument("--again", action="store_true", help="measure cases that have a row already, too")
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument(
        "--folder", type=Path, default=cache_directory() / "models", help="where the zoo models are kept"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    models = tuple(options.models) if options.models else None
    cases = timing_cases(tuple(options.parts), models, is_quick=options.quick)
    cases = [case for case in cases if case.executor in options.executors]
    if not cases:
        sys.exit(
            f"no cases of {', '.join(options.parts)} for models {', '.join(options.models or ['all'])} and "
            f"{', '.join(options.executors)}"
        )
    known = {} if options.again else read_rows(options.rows)
    rows = {case: known[case] for case in cases if case in known}
    todo = [case for case in cases if case not in known]
    print(f"{len(cases)} cases, {len(todo)} to measure", flush=True)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    num_failed = 0
    for number, (case, row) in enumerate(run_cases(todo, options.folder), 1):
        append_row(options.rows, row)
        print(f"[{number}/{len(todo)}] {describe(case, row)}", flush=True)
        if row["error"] is None:
            rows[case] = row
        else:
            num_failed += 1
    print("\n".join(summary(list(rows.values()))))
    print(f"rows in {options.rows}")
    if num_failed:
        sys.exit(f"{num_failed} of {len(todo)} cases failed; run again to repeat them")


if __name__ == "__main__":
    main()

"""The table of the suite ``ablation-makespan``: what every mechanism brings, from rows, with intervals.

A run without a mechanism is paired with the run of the same instance and seed that has all of them. Two things are
compared: the time to the first proof (the gap that the suite asks for; a run that does not get there counts with its
limit), and the final gap. Both are positive where the mechanism helps. Intervals are of a paired bootstrap over
instances and seeds; a mechanism *shows* where one of them lies above zero, *harms* where one lies below and none above.

``python -m placekit.benchmarks.ablation_makespan results/rows.jsonl``
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.msr_table import markdown_line
from placekit.benchmarks.rows import read_lines
from placekit.benchmarks.statistics import Interval, paired_interval
from placekit.errors import InvalidFileError
from placekit.stop import relative_gap

__all__ = ["Effect", "effects", "main", "markdown_table", "proof_s", "read_rows"]

Row = dict[str, Any]

SUITE, EVERYTHING = "ablation-makespan", "all"
SOONEST_S = 0.01
"""Times below count as this: what is done at once is noise."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a mechanism brings.

    Parameters
    ----------
    num_pairs
        Pairs of runs.
    proofs_with, proofs_without
        How many of them reached the gap.
    slower
        Time to the first proof without it over that with it, minus 1: the geometric mean.
    wider
        Final gap without it minus that with it, as a fraction.
    """

    num_pairs: int
    proofs_with: int
    proofs_without: int
    slower: Interval
    wider: Interval

    @property
    def verdict(self) -> str:
        """``"shows"``, ``"harms"`` or ``"within noise"``."""
        known = [each for each in (self.slower, self.wider) if each.low is not None and each.high is not None]
        if any(each.low is not None and each.low > 0 for each in known):
            return "shows"
        return "harms" if any(each.high is not None and each.high < 0 for each in known) else "within noise"


def read_rows(path: Path, time_limit_s: float | None = None) -> list[Row]:
    """Return the rows of one time limit, the latest of each case.

    Parameters
    ----------
    path
        ``rows.jsonl`` in the folder of results.
    time_limit_s
        The limit; None for the one of most rows.

    Raises
    ------
    InvalidFileError
        There is no file, or a line that is no row of the suite.
    """
    if not path.is_file():
        raise InvalidFileError(f"there is no file {path}: run `placekit bench {SUITE} -o FOLDER`")
    latest: dict[str, Row] = {}
    for number, row in read_lines(path):
        if row.get("suite") != SUITE or not isinstance(row.get("case"), str):
            raise InvalidFileError(f"{path}, line {number}: no row of the suite {SUITE}")
        latest[row["case"]] = row
    rows = [row for row in latest.values() if row["error"] is None]
    if time_limit_s is None and rows:
        time_limit_s = Counter(row["time_limit_s"] for row in rows).most_common(1)[0][0]
    return [row for row in rows if row["time_limit_s"] == time_limit_s]


def proof_s(row: Row) -> float | None:
    """Return when the gap that was asked for was proven, in seconds; None if it never was."""
    for time_s, objective_s, bound_s in row["trace"]:
        gap = relative_gap(objective_s, bound_s)
        if gap is not None and gap <= (row["gap"] or 0.0):
            return max(float(time_s), SOONEST_S)
    return None


def effects(rows: Iterable[Row]) -> dict[str, Effect]:
    """Return the effect of every mechanism, by its label; runs without a partner do not count."""
    by_label: dict[str, dict[tuple[str, int], Row]] = {}
    for row in rows:
        by_label.setdefault(row["label"], {})[row["model"], row["seed"]] = row
    full = by_label.pop(EVERYTHING, {})
    found = {}
    for label, runs in by_label.items():
        pairs = [(key[0], full[key], row) for key, row in runs.items() if key in full]
        if not pairs:
            continue
        slower: dict[str, list[float]] = {}
        wider: dict[str, list[float]] = {}
        for model, one, other in pairs:
            times = [proof_s(row) or float(row["time_limit_s"]) for row in (one, other)]
            slower.setdefault(model, []).append(math.log(times[1] / times[0]))
            wider.setdefault(model, []).append(_final_gap(other) - _final_gap(one))
        found[label] = Effect(
            num_pairs=len(pairs),
            proofs_with=sum(proof_s(one) is not None for _, one, _ in pairs),
            proofs_without=sum(proof_s(other) is not None for _, _, other in pairs),
            slower=_as_ratio(paired_interval(slower)),
            wider=paired_interval(wider),
        )
    return found


def _final_gap(row: Row) -> float:
    gap = relative_gap(row["objective_s"], row["bound_s"])
    return 1.0 if gap is None else gap


def _as_ratio(interval: Interval) -> Interval:
    low, high = (None if end is None else math.expm1(end) for end in (interval.low, interval.high))
    return Interval(math.expm1(interval.value), low, high)


def markdown_table(found: Mapping[str, Effect]) -> str:
    """Return a line per mechanism, those that bring most first."""
    heads = ["", "pairs", "proofs with", "without", "time to proof", "final gap (points)", ""]
    lines = [markdown_line(heads), markdown_line(["---"] * len(heads))]
    for label, effect in sorted(found.items(), key=lambda item: -item[1].wider.value):
        counts = [str(count) for count in (effect.num_pairs, effect.proofs_with, effect.proofs_without)]
        cells = [_cell(effect.slower, "{:+.0%}"), _cell(effect.wider, "{:+.2%}")]
        lines.append(markdown_line([label, *counts, *cells, effect.verdict]))
    return "\n".join(lines)


def _cell(interval: Interval, form: str) -> str:
    value = form.format(interval.value)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({form.format(interval.low)} to {form.format(interval.high)})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the rows that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="rows.jsonl of the suite's folder of results")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="of these rows; by default that of most")
    options = parser.parse_args(arguments)
    rows = read_rows(options.rows, options.limit)
    print(markdown_table(effects(rows)) if rows else "no rows")


if __name__ == "__main__":
    main()

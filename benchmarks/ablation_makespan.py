"""The table of the suite ``ablation-makespan``: what every mechanism brings, from rows, with intervals.

A run without a mechanism is paired with the run of the same method, instance, seed and limit that has all of them. Two
things are compared, positive where the mechanism helps: the time to the first proof (the gap that the suite asks for; a
run that does not get there counts with its limit), and the final gap. The gap of ``auto`` is its own; that of
``local-search`` is between its makespan and the best bound of any run on the instance, that of ``bound`` between the
best makespan of any run and its own bound. Intervals are of a paired bootstrap over instances and seeds; a mechanism
*shows* where one of them lies above zero, and *harms* where one lies below and none above.

``python -m placekit.benchmarks.ablation_makespan`` makes the table of the rows that came with placekit, or of those of
a file that is named.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import read_lines
from placekit.benchmarks.statistics import Interval, paired_interval
from placekit.errors import InvalidFileError
from placekit.stop import relative_gap

__all__ = ["Effect", "effects", "main", "markdown_table", "proof_s", "read_rows"]

Row = dict[str, Any]

SUITE = "ablation-makespan"
ROWS = ROOT / "benchmarks" / "rows" / "ablation_makespan.jsonl"
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


def read_rows(path: Path) -> list[Row]:
    """Return the latest row of each case that ended without an error.

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
    return [row for row in latest.values() if row["error"] is None]


def effects(rows: Iterable[Row]) -> dict[tuple[str, float], dict[str, Effect]]:
    """Return the effect of every mechanism, by method and time limit, then by name; without a partner none counts."""
    rows = list(rows)
    best_bound: dict[str, float] = {}
    best_makespan: dict[str, float] = {}
    for row in rows:
        model = row["model"]
        best_bound[model] = max(best_bound.get(model, 0.0), row["bound_s"] or 0.0)
        best_makespan[model] = min(best_makespan.get(model, math.inf), row["objective_s"] or math.inf)
    runs: dict[tuple[str, float], dict[str, dict[tuple[str, int], Row]]] = {}
    for row in rows:
        # as the method means it: what it does not look for is the best of all runs
        lines = [
            (
                time_s,
                best_makespan[row["model"]] if row["method"] == "bound" else objective_s,
                best_bound[row["model"]] if row["method"] == "local-search" else bound_s,
            )
            for time_s, objective_s, bound_s in row["trace"]
        ]
        of_method = runs.setdefault((row["method"], row["time_limit_s"]), {})
        of_method.setdefault(row["params"].get("without", ""), {})[row["model"], row["seed"]] = {**row, "trace": lines}
    found = {}
    for key, by_name in runs.items():
        full = by_name.pop("", {})
        paired = {
            name: [(model, full[model, seed], row) for (model, seed), row in those.items() if (model, seed) in full]
            for name, those in by_name.items()
        }
        found[key] = {name: _effect(pairs) for name, pairs in paired.items() if pairs}
    return found


def _effect(pairs: Sequence[tuple[str, Row, Row]]) -> Effect:
    """Return the effect from pairs: the instance, the run with everything, the run without."""
    slower: dict[str, list[float]] = {}
    wider: dict[str, list[float]] = {}
    for model, one, other in pairs:
        times = [proof_s(row) or float(row["time_limit_s"]) for row in (one, other)]
        slower.setdefault(model, []).append(math.log(times[1] / times[0]))
        wider.setdefault(model, []).append(_final_gap(other) - _final_gap(one))
    return Effect(
        num_pairs=len(pairs),
        proofs_with=sum(proof_s(one) is not None for _, one, _ in pairs),
        proofs_without=sum(proof_s(other) is not None for _, _, other in pairs),
        slower=_as_ratio(paired_interval(slower)),
        wider=paired_interval(wider),
    )


def proof_s(row: Row) -> float | None:
    """Return when the gap that was asked for was reached, in seconds; None if it never was."""
    for time_s, objective_s, bound_s in row["trace"]:
        gap = relative_gap(objective_s, bound_s)
        if gap is not None and gap <= (row["gap"] or 0.0):
            return max(float(time_s), SOONEST_S)
    return None


def _final_gap(row: Row) -> float:
    if not row["trace"]:
        return 1.0
    _, objective_s, bound_s = row["trace"][-1]
    gap = relative_gap(objective_s, bound_s)
    return 1.0 if gap is None else gap


def _as_ratio(interval: Interval) -> Interval:
    low, high = (None if end is None else math.expm1(end) for end in (interval.low, interval.high))
    return Interval(math.expm1(interval.value), low, high)


def markdown_table(found: Mapping[tuple[str, float], Mapping[str, Effect]]) -> str:
    """Return a table for each method and limit: a line per mechanism, those that bring most first."""
    parts = []
    for (method, limit_s), by_name in sorted(found.items()):
        heads = [f"{method}, {limit_s:g} s, without", "pairs", "proofs", "without", "time to proof", "final gap", ""]
        lines = [markdown_line(heads), markdown_line(["---"] * len(heads))]
        for name, effect in sorted(by_name.items(), key=lambda item: -item[1].wider.value):
            counts = [str(count) for count in (effect.num_pairs, effect.proofs_with, effect.proofs_without)]
            cells = [_cell(effect.slower, "{:+.0%}"), _cell(effect.wider, "{:+.2%}")]
            lines.append(markdown_line([name, *counts, *cells, effect.verdict]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(interval: Interval, form: str) -> str:
    value = form.format(interval.value)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({form.format(interval.low)} to {form.format(interval.high)})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the rows that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="?", default=ROWS, help="rows.jsonl in the folder of results")
    options = parser.parse_args(arguments)
    print(markdown_table(effects(read_rows(options.rows))) or "no pairs")


if __name__ == "__main__":
    main()

"""The tables of the suites ``ablation-...``: what every mechanism brings, from rows, with intervals.

A run without mechanisms is paired with the run of the same method, problem, seed and limit that lacks fewer of them:
all but the last (``a,b`` with ``a``), or as many of the first as some run lacks. What is compared is the objective of a
search, the bound of method ``bound``, the gap of anything else; positive where the mechanism helps. So is the time to
the first proof, if any run has one: a run that does not get there counts with its limit.

Intervals are of a paired bootstrap over problems and seeds. A mechanism *shows* where one of them lies above zero, and
*harms* where one lies below and none above.

``python -m placekit.benchmarks.ablation makespan`` makes the table of the rows that came with placekit; with a file
after the name, those of that file.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import read_lines
from placekit.benchmarks.statistics import Interval, paired_interval
from placekit.errors import InvalidFileError
from placekit.solvers.registry import METHODS
from placekit.stop import relative_gap

__all__ = ["Effect", "effects", "main", "markdown_table", "proof_s", "read_rows"]

Row = dict[str, Any]
Task = tuple[str, str]
"""What a row says of its problem, and its seed."""
ROWS = ROOT / "benchmarks" / "rows"
SOONEST_S = 0.01
"""Times below count as this: what is done at once is noise."""
EQUAL = 1e-9
"""Differences below are none."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What the last of some mechanisms bring to a method.

    Parameters
    ----------
    method
        The method, with its objective and its limit where the rows have several.
    without
        What it ran without, with commas.
    better, worse
        Pairs in which the last of these help, and in which they harm.
    num_pairs
        All pairs.
    gain
        How much smaller an objective is with them, or how much larger a bound, as a fraction; or how much smaller the
        gap, which is a fraction itself. The mean.
    slower
        Time to the first proof without them over that with them, minus 1: the geometric mean. None if no run has one.
    """

    method: str
    without: str
    better: int
    worse: int
    num_pairs: int
    gain: Interval
    slower: Interval | None

    @property
    def verdict(self) -> str:
        """``"shows"``, ``"harms"`` or ``"within noise"``."""
        known = [each for each in (self.gain, self.slower) if each is not None]
        if any(each.low is not None and each.low > 0 for each in known):
            return "shows"
        return "harms" if any(each.high is not None and each.high < 0 for each in known) else "within noise"


def read_rows(path: Path, suite: str) -> list[Row]:
    """Return the latest row of each case of a suite that ended without an error.

    Raises
    ------
    InvalidFileError
        There is no file, or a line that is no row of the suite.
    """
    if not path.is_file():
        raise InvalidFileError(f"there is no file {path}: run `placekit bench {suite} -o FOLDER`")
    latest: dict[str, Row] = {}
    for number, row in read_lines(path):
        if row.get("suite") != suite or not isinstance(row.get("case"), str):
            raise InvalidFileError(f"{path}, line {number}: no row of the suite {suite}")
        latest[row["case"]] = row
    return [row for row in latest.values() if row["error"] is None]


def effects(rows: Iterable[Row]) -> list[Effect]:
    """Return the effect of what every run lacks that has a partner, by method, those that bring most first."""
    rows = list(rows)
    best = _best_known(rows)
    limits = Counter(kind for kind, _ in {(_kind(row), row["time_limit_s"]) for row in rows})
    runs: dict[tuple[str, str], dict[str, dict[Task, Row]]] = {}
    for row in rows:
        kind = _kind(row)
        name = f"{kind}, {row['time_limit_s']:g} s" if limits[kind] > 1 else kind
        of_method = runs.setdefault((row["method"], name), {})
        of_method.setdefault(row["params"].get("without", ""), {})[_problem(row), str(row["seed"])] = row
    found = []
    for (method, name), by_without in runs.items():
        for without, lacking in by_without.items():
            having = next((by_without[each] for each in _fewer(without) if each in by_without), {})
            pairs = [(at[0], having[at], row) for at, row in lacking.items() if at in having]
            if pairs:
                found.append(_effect(method, name, without, pairs, best))
    return sorted(found, key=lambda effect: (effect.method, -effect.gain.value))


def _problem(row: Row) -> str:
    params = {name: value for name, value in row["params"].items() if name != "without"}
    return f"{row['model']} {row.get('contiguity', '')} {row.get('variant', '')} {params}"


def _kind(row: Row) -> str:
    return f"{row['objective']}, {row['method']}" if "objective" in row else str(row["method"])


def _fewer(without: str) -> list[str]:
    """Return what a run may lack that this one is compared with, the nearest first."""
    names = without.split(",") if without else []
    return [",".join(names[:count]) for count in range(len(names) - 1, -1, -1)]


def _best_known(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the best objective and the best bound of any run on each problem."""
    best: dict[str, tuple[float, float]] = {}
    for row in rows:
        objective_s, bound_s = best.get(_problem(row), (math.inf, 0.0))
        best[_problem(row)] = min(objective_s, row["objective_s"] or math.inf), max(bound_s, row["bound_s"] or 0.0)
    return best


def _effect(
    method: str,
    name: str,
    without: str,
    pairs: Sequence[tuple[str, Row, Row]],
    best: dict[str, tuple[float, float]],
) -> Effect:
    """Return the effect from pairs: problem, the run with more mechanisms, the run with fewer."""
    gains: dict[str, list[float]] = {}
    slower: dict[str, list[float]] = {}
    num_proofs = 0
    for problem, having, lacking in pairs:
        gains.setdefault(problem, []).append(_gain(method, having, lacking))
        proofs = [proof_s(row, *best[problem]) for row in (having, lacking)]
        num_proofs += sum(proof is not None for proof in proofs)
        times = [proof or float(row["time_limit_s"]) for proof, row in zip(proofs, (having, lacking), strict=True)]
        slower.setdefault(problem, []).append(math.log(times[1] / times[0]))
    flat = [gain for of_problem in gains.values() for gain in of_problem]
    return Effect(
        name,
        without,
        better=sum(gain > EQUAL for gain in flat),
        worse=sum(gain < -EQUAL for gain in flat),
        num_pairs=len(flat),
        gain=paired_interval(gains),
        slower=paired_interval(slower).of_logarithms() if num_proofs else None,
    )


def _gain(method: str, having: Row, lacking: Row) -> float:
    if method == "bound":
        return float(1 - lacking["bound_s"] / having["bound_s"])
    if METHODS[method].family in ("exact", "hybrid"):
        gaps = [relative_gap(row["objective_s"], row["bound_s"]) for row in (having, lacking)]
        return (1.0 if gaps[1] is None else gaps[1]) - (1.0 if gaps[0] is None else gaps[0])
    return float(lacking["objective_s"] / having["objective_s"] - 1)


def proof_s(row: Row, best_s: float, best_bound_s: float) -> float | None:
    """Return when the gap that was asked for was reached, in seconds; None if it never was, or nothing says so.

    What a search does not look for, and method ``bound`` neither, is the best that any run knows.
    """
    for time_s, objective_s, bound_s in row.get("trace", ()):
        reached = best_s if row["method"] == "bound" else objective_s
        gap = relative_gap(reached, best_bound_s if row["method"] == "local-search" else bound_s)
        if gap is not None and gap <= (row["gap"] or 0.0):
            return max(float(time_s), SOONEST_S)
    return None


def markdown_table(found: Iterable[Effect]) -> str:
    """Return a line per mechanism."""
    heads = ["method", "without", "pairs", "better with it", "worse", "gain", "time to proof", ""]
    lines = [markdown_line(heads), markdown_line(["---"] * len(heads))]
    for each in found:
        counts = [str(count) for count in (each.num_pairs, each.better, each.worse)]
        cells = [_cell(each.gain, "{:+.2%}"), "" if each.slower is None else _cell(each.slower, "{:+.0%}")]
        lines.append(markdown_line([each.method, each.without, *counts, *cells, each.verdict]))
    return "\n".join(lines)


def _cell(interval: Interval, form: str) -> str:
    value = form.format(interval.value)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({form.format(interval.low)} to {form.format(interval.high)})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the rows that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", help="what follows 'ablation-' in the name of the suite")
    parser.add_argument("rows", type=Path, nargs="?", help="rows.jsonl in the folder of results")
    options = parser.parse_args(arguments)
    path = options.rows or ROWS / f"ablation_{options.what}.jsonl"
    print(markdown_table(effects(read_rows(path, f"ablation-{options.what}"))))


if __name__ == "__main__":
    main()

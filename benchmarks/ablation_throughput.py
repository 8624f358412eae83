"""The table of the suite ``ablation-throughput``: what every mechanism brings, from rows, with intervals; no seconds.

A run without mechanisms is paired with the run of the same method, problem and seed that has the last one of them. The
objective of a search is compared, the bound of a bound; positive where the mechanism helps. Intervals are of a paired
bootstrap over problems and seeds.

``python -m placekit.benchmarks.ablation_throughput`` makes the table of the rows that came with placekit, or of those
of a file that is named.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import read_lines
from placekit.benchmarks.statistics import Interval, paired_interval

__all__ = ["Effect", "effects", "main", "markdown_table"]

ROWS = ROOT / "benchmarks" / "rows" / "ablation_throughput.jsonl"


@dataclass(frozen=True, slots=True)
class Effect:
    """What the last of `without` brings to `method`.

    Parameters
    ----------
    method, without
        The method, and what it ran without, with commas.
    better, worse
        Pairs in which the mechanism helps, and in which it harms.
    num_pairs
        All pairs.
    gain
        Mean of how much smaller an objective is with it, or how much larger a bound, as a fraction.
    """

    method: str
    without: str
    better: int
    worse: int
    num_pairs: int
    gain: Interval

    @property
    def verdict(self) -> str:
        """``"shows"``, ``"harms"`` or ``"within noise"``."""
        if self.gain.low is not None and self.gain.low > 0:
            return "shows"
        return "harms" if self.gain.high is not None and self.gain.high < 0 else "within noise"


def effects(rows: Iterable[dict[str, Any]]) -> list[Effect]:
    """Return the effect of every mechanism that has pairs, those that bring most first; later rows of a case count."""
    runs: dict[tuple[str, str], dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        if row["error"] is None:
            of_method = runs.setdefault((row["method"], row["params"].get("without", "")), {})
            of_method[row["model"], row["seed"]] = row
    found = []
    for (method, without), those in runs.items():
        having = runs.get((method, without.rpartition(",")[0]), {}) if without else {}
        gains: dict[str, list[float]] = {}
        for (model, seed), row in those.items():
            if (model, seed) in having:
                gains.setdefault(model, []).append(_gain(having[model, seed], row))
        flat = [gain for of_model in gains.values() for gain in of_model]
        if flat:
            better, worse = sum(gain > 1e-9 for gain in flat), sum(gain < -1e-9 for gain in flat)
            found.append(Effect(method, without, better, worse, len(flat), paired_interval(gains)))
    return sorted(found, key=lambda effect: (effect.method, -effect.gain.value))


def _gain(having: dict[str, Any], lacking: dict[str, Any]) -> float:
    if having["method"] == "bound":
        return float(1 - lacking["bound_s"] / having["bound_s"])
    return float(lacking["objective_s"] / having["objective_s"] - 1)


def markdown_table(found: Iterable[Effect]) -> str:
    """Return a line per mechanism."""
    lines = [
        markdown_line(["method", "without", "pairs", "better with it", "worse", "gain", ""]),
        markdown_line(["---"] * 7),
    ]
    for each in found:
        gain = f"{each.gain.value:+.2%}"
        if each.gain.low is not None and each.gain.high is not None:
            gain += f" ({each.gain.low:+.2%} to {each.gain.high:+.2%})"
        counts = (each.num_pairs, each.better, each.worse)
        lines.append(markdown_line([each.method, each.without, *map(str, counts), gain, each.verdict]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the rows that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="?", default=ROWS, help="rows.jsonl in the folder of results")
    options = parser.parse_args(arguments)
    print(markdown_table(effects(row for _, row in read_lines(options.rows))))


if __name__ == "__main__":
    main()

"""The best method of every family, objective by objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from placekit.benchmarks.report.formats import NOTHING, interval_percent, seconds
from placekit.benchmarks.report.groups import Group, labels_of, objectives_of
from placekit.benchmarks.report.tables import Table
from placekit.benchmarks.statistics import bootstrap_interval
from placekit.benchmarks.store import Row
from placekit.solve.registry import METHODS
from placekit.solve.result import Status
from placekit.solve.stop import relative_gap

__all__ = ["family_of", "summary_table"]

FAMILIES = ("exact", "hybrid", "heuristic", "learned", "baseline")
_SAME = 1e-9
"""Objectives that differ by less, relatively, are the same."""


def summary_table(groups: Sequence[Group]) -> Table:
    """Return, for every objective and family of methods, the method with the smallest mean gap to the best bound.

    Means over different problems do not compare: a method that ran on more of the problems comes before one that ran
    on fewer. A run without a placement has gap 1, that of an endless objective. Set off is the best of the objective.
    """
    rows: list[tuple[str, ...]] = []
    winners = set()
    for objective, members in objectives_of(groups).items():
        bounded = [group for group in members if group.bound_s is not None]
        standings = [_standing(bounded, label) for label in labels_of(bounded)]
        best = {
            family: min(mine, key=lambda each: each.rank)
            for family in FAMILIES
            if (mine := [each for each in standings if each.family == family])
        }
        for family, standing in best.items():
            if standing.rank == min(each.rank for each in best.values()):
                winners.add(len(rows))
            rows.append(
                (
                    objective,
                    family,
                    standing.label,
                    f"{len(standing.gaps)} of {len(members)}",
                    f"{standing.num_runs}",
                    interval_percent(bootstrap_interval(standing.gaps, np.mean)),
                    f"{standing.num_best}",
                    f"{standing.num_proven}",
                    seconds(standing.runtime_s),
                )
            )
    columns = (
        "objective", "family", "best method", "problems", "runs", "mean gap [95 %]", "best known", "proven", "runtime",
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=3, best=frozenset(winners))


def family_of(row: Row) -> str:
    """Return the family of a row's method; methods in a row, and those that another one started, are hybrid."""
    if "+" in row["method"] or row["warm_start"]:
        return "hybrid"
    entry = METHODS.get(row["method"].partition(":")[0])
    return NOTHING if entry is None else entry.family


@dataclass(frozen=True)
class _Standing:
    """Results of a method on the problems of an objective.

    Parameters
    ----------
    label, family
        The method.
    gaps
        Gap of every run, by problem.
    num_best, num_proven
        Problems of which some run found the best known objective, or proved an optimum.
    runtime_s
        Median over runs, with the time of the warm start.
    """

    label: str
    family: str
    gaps: Mapping[str, Sequence[float]]
    num_best: int
    num_proven: int
    runtime_s: float

    @property
    def num_runs(self) -> int:
        return sum(len(gaps) for gaps in self.gaps.values())

    @property
    def rank(self) -> tuple[float, ...]:
        """Small is good: many problems, a small gap, many proofs, little time."""
        mean = fmean(gap for gaps in self.gaps.values() for gap in gaps)
        return -len(self.gaps), round(mean, 9), -self.num_proven, self.runtime_s


def _standing(groups: Sequence[Group], label: str) -> _Standing:
    mine = [group for group in groups if label in group.rows]
    runs = [row for group in mine for row in group.rows[label]]
    return _Standing(
        label,
        family_of(runs[0]),
        {group.address: [_gap(row, group) for row in group.rows[label]] for group in mine},
        sum(
            group.best_s is not None and min(group.objectives_s(label)) <= group.best_s * (1 + _SAME) for group in mine
        ),
        sum(any(row["status"] == Status.OPTIMAL for row in group.rows[label]) for group in mine),
        median((row.get("runtime_s") or 0.0) + (row.get("warm_start_s") or 0.0) for row in runs),
    )


def _gap(row: Row, group: Group) -> float:
    gap = relative_gap(row["objective_s"], group.bound_s)
    return 1.0 if gap is None else gap

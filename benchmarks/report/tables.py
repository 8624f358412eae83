"""The tables of the report, as text: HTML and Markdown show the same ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from placekit.benchmarks.report.formats import (
    NOTHING,
    count,
    interval_percent,
    milliseconds,
    percent,
    seconds,
    spread,
    times,
)
from placekit.benchmarks.report.groups import Group, labels_of, runtime_s
from placekit.benchmarks.statistics import mean_interval, shares_within, time_to_gap_s
from placekit.benchmarks.store import Row
from placekit.solve.registry import METHODS
from placekit.solve.result import Status
from placekit.solve.stop import relative_gap

CLOSE = 0.01
"""A run is there when it is this close to the best known objective, relatively."""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    columns: tuple[str, ...]  # titles
    rows: tuple[tuple[str, ...], ...]  # texts
    num_text: int = 1  # so many columns from the left hold text, the others numbers
    best: frozenset[int] = frozenset()  # indices of the rows that are set off


Titled = Iterator[tuple[str | None, Table]]
"""Tables, each with its title if it needs one."""


def overview_table(groups: Sequence[Group]) -> Table:
    """Return one row per problem: the best objective and who found it, the best bound and who proved it."""
    rows = []
    for group in groups:
        row, best, bound = group.all_rows[0], group.best, group.bound
        gap = None if best is None or bound is None else relative_gap(best["objective_s"], bound[0])
        speedup = group.single_s / group.best_s if group.best_s and group.single_s is not None else None
        rows.append(
            (
                group.model,
                group.variant if group.contiguity == "none" else f"{group.variant}, {group.contiguity}",
                NOTHING if best is None else best["shown"],
                NOTHING if bound is None else bound[2],
                f"{row['num_ops']}",
                f"{row['num_devices']}",
                milliseconds(group.single_s),
                milliseconds(group.best_s),
                times(speedup),
                milliseconds(group.bound_s),
                percent(gap),
            )
        )
    columns = (
        "model", "objective", "best by", "bound by", "ops", "devices", "single ms", "best ms", "speedup", "bound ms",
        "gap",
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=4)


def case_table(group: Group, measured: Mapping[str, Row]) -> Table:
    """Return one row per method on a problem, by objective."""
    has_measured = any(row["case"] in measured for row in group.all_rows)
    ranked = sorted(group.rows, key=lambda label: (_middle(group.objectives_s(label), math.inf), label))
    rows, best = [], set()
    for at, label in enumerate(ranked):
        runs = group.rows[label]
        if group.best_s is not None and min(group.objectives_s(label)) <= group.best_s * (1 + 1e-9):
            best.add(at)
        feasible = sum(row["objective_s"] is not None for row in runs)
        rows.append(
            (
                label,
                _status(runs),
                spread(group.objectives_s(label)),
                percent(_middle(group.gaps(label))),
                milliseconds(max((row["bound_s"] for row in runs if row["bound_s"] is not None), default=None)),
                seconds(_middle([row["time_to_best_s"] for row in runs if row.get("time_to_best_s") is not None])),
                seconds(_middle([row["runtime_s"] for row in runs if row["error"] is None])),
                count(_middle([row["evaluations"] for row in runs if row["error"] is None])),
                f"{feasible}/{len(runs)}",
                *((_measured(runs, measured),) if has_measured else ()),
            )
        )
    columns = (
        "method", "status", "objective ms", "gap", "own bound ms", "time to best", "runtime", "evaluations",
        "feasible", *(("measured ms (predicted off by)",) if has_measured else ()),
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=2, best=frozenset(best))


def across_table(groups: Sequence[Group]) -> Table:
    """Return one row per method over all problems of an objective: gap, wins, proofs, time, failures.

    Means over different problems do not compare: a method that ran on more of the problems comes before one that ran
    on fewer. A run without a placement has gap 1, that of an endless objective.
    """
    objectives = {
        label: {group.address: group.objectives_s(label) for group in groups if label in group.rows}
        for label in labels_of(groups)
    }
    best, close = shares_within(objectives, 1.0), shares_within(objectives, 1 + CLOSE)
    found = []
    for label in labels_of(groups):
        mine = [group for group in groups if label in group.rows]
        bounded = [group for group in mine if group.bound_s is not None]
        gaps = {group.address: [_gap(row, group) for row in group.rows[label]] for group in bounded}
        runs = [row for group in mine for row in group.rows[label]]
        reached = [
            time for group in mine for row in group.rows[label] if (time := _time_to_close(group, row)) is not None
        ]
        estimate = mean_interval(gaps) if gaps else None
        errors = sum(row["error"] is not None for row in runs)
        empty = sum(row["objective_s"] is None for row in runs) - errors
        cells = (
            label,
            family_of(runs[0]),
            f"{len(mine)}",
            f"{len(runs)}",
            NOTHING if estimate is None else interval_percent(estimate),
            percent(best[label]),
            percent(close[label]),
            f"{sum(any(row['status'] == Status.OPTIMAL for row in group.rows[label]) for group in mine)}",
            seconds(_middle(reached)),
            f"{len(reached)}/{len(runs)}",
            seconds(_middle([runtime_s(row) for row in runs])),
            f"{empty}",
            f"{errors}",
        )
        found.append((-len(mine), math.inf if estimate is None else round(estimate.value, 9), label, cells))
    columns = (
        "method", "family", "problems", "runs", "mean gap [95 %]", "best of all", "within 1 %", "proven", "time to 1 %",
        "runs there", "runtime", "no placement", "errors",
    )  # fmt: skip
    return Table(columns, tuple(row for *_, row in sorted(found)), num_text=2)


def family_of(row: Row) -> str:
    """Return the family of a row's method; methods in a row, and those that another one started, are hybrid."""
    if "+" in row["method"] or row["warm_start"]:
        return "hybrid"
    entry = METHODS.get(row["method"].partition(":")[0])
    return NOTHING if entry is None else entry.family


def _gap(row: Row, group: Group) -> float:
    gap = relative_gap(row["objective_s"], group.bound_s)
    return 1.0 if gap is None else gap


def machine_table(groups: Sequence[Group]) -> Table:
    """Return the machines, commits and versions that rows come from, with the number of rows."""
    counts: dict[tuple[str, ...], int] = {}
    for row in (row for group in groups for row in group.all_rows):
        machine = row["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(row["versions"].items()))
        cpu = f"{machine['cpu']}, cores per worker: {machine['cores']}"
        key = (cpu, machine["system"], row["commit"] or NOTHING, versions, f"{row['num_workers']}")
        counts[key] = counts.get(key, 0) + 1
    return Table(
        ("machine", "system", "commit", "versions", "beside each other", "rows"),
        tuple((*key, f"{number}") for key, number in counts.items()),
        num_text=4,
    )


def command_table(groups: Sequence[Group]) -> Table:
    """Return how to make every row again."""
    rows = tuple(
        (row["case"], group.title, row["shown"], f"{row['seed']}", row["command"])
        for group in groups
        for row in group.all_rows
    )
    return Table(("case", "problem", "method", "seed", "command, in the folder of results"), rows, num_text=5)


def _time_to_close(group: Group, row: Row) -> float | None:
    """Return when a run came close to the best known objective, with the time of its warm start; None if never."""
    if group.best_s is None or row["error"] is not None:
        return None
    time_s = time_to_gap_s(row["trace"], group.best_s, CLOSE)
    return None if time_s is None else time_s + (row["warm_start_s"] or 0.0)


def _middle(values: Sequence[float], default: float | None = None) -> float | None:
    return median(values) if values else default


def _status(runs: Sequence[Row]) -> str:
    found = [row["status"] for row in runs]
    return ", ".join(f"{found.count(s)} {s}" if len(set(found)) > 1 else s for s in dict.fromkeys(found))


def _measured(runs: Sequence[Row], measured: Mapping[str, Row]) -> str:
    mine = [measured[row["case"]] for row in runs if row["case"] in measured]
    if not mine:
        return NOTHING
    first = mine[0]
    if first["error"] is not None:
        return f"failed: {first['error']}"
    error = f" ({percent(first['prediction_error'])})" if first["prediction_error"] is not None else ""
    disturbed = ", disturbed" if first.get("is_noisy") else ""
    return f"{milliseconds(first['measured_s'])} ± {milliseconds(first['measured_iqr_s'])}{error}{disturbed}"

"""The tables of the report, as text: HTML and Markdown show the same ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from placekit.benchmarks.report.formats import NOTHING, count, interval, milliseconds, percent, score, seconds, spread
from placekit.benchmarks.report.groups import Group, labels_of
from placekit.benchmarks.statistics import (
    bootstrap_interval,
    ratio_interval,
    shares_within,
    time_to_gap_s,
)
from placekit.benchmarks.store import Row
from placekit.solve.stop import relative_gap

__all__ = [
    "Table",
    "Titled",
    "across_table",
    "case_table",
    "command_table",
    "machine_table",
    "objectives_by_label",
    "overview_table",
    "warm_start_table",
]

CLOSE = 0.01
"""A run is there when it is this close to the best known objective, relatively."""


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Parameters
    ----------
    columns
        Titles.
    rows
        Texts.
    num_text
        So many columns from the left hold text, the others numbers.
    best
        Indices of the rows that are set off.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_text: int = 1
    best: frozenset[int] = frozenset()


Titled = Iterator[tuple[str | None, Table]]
"""Tables, each with its title if it needs one."""


def overview_table(groups: Sequence[Group]) -> Table:
    """Return one row per problem: the best objective and who found it, the best bound and who proved it."""
    rows = []
    for group in groups:
        row, best, bound = group.all_rows[0], group.best, group.bound
        gap = None if best is None or bound is None else relative_gap(best["objective_s"], bound[0])
        speedup = NOTHING
        if best is not None and best["objective_s"] and group.single_s is not None:
            speedup = f"{group.single_s / best['objective_s']:.2f}x"
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
                speedup,
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
                score(_middle(group.scores(label))),
                milliseconds(max((row["bound_s"] for row in runs if row["bound_s"] is not None), default=None)),
                seconds(_middle([row["time_to_best_s"] for row in runs if row.get("time_to_best_s") is not None])),
                seconds(_middle([row["runtime_s"] for row in runs if row["error"] is None])),
                count(_middle([row["evaluations"] for row in runs if row["error"] is None])),
                f"{feasible}/{len(runs)}",
                *((_measured(runs, measured),) if has_measured else ()),
            )
        )
    columns = (
        "method", "status", "objective ms", "gap", "score", "own bound ms", "time to best", "runtime", "evaluations",
        "feasible", *(("measured ms (predicted off by)",) if has_measured else ()),
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=2, best=frozenset(best))


def objectives_by_label(groups: Iterable[Group]) -> dict[str, dict[str, list[float]]]:
    """Return the objectives of every run by label and problem; infinity without a placement."""
    groups = list(groups)
    return {
        label: {group.address: group.objectives_s(label) for group in groups if label in group.rows}
        for label in labels_of(groups)
    }


def across_table(groups: Sequence[Group]) -> Table:
    """Return one row per method over all problems of an objective: score, share of wins, time, failures."""
    objectives = objectives_by_label(groups)
    best, close = shares_within(objectives, 1.0), shares_within(objectives, 1 + CLOSE)
    found = []
    for label in labels_of(groups):
        mine = [group for group in groups if label in group.rows]
        scores = {group.address: group.scores(label) for group in mine if group.scores(label)}
        runs = [row for group in mine for row in group.rows[label]]
        times = [time for group in mine for time in _times_to_close(group, label) if time is not None]
        estimate = bootstrap_interval(scores) if scores else None
        errors = sum(row["error"] is not None for row in runs)
        empty = sum(row["objective_s"] is None for row in runs) - errors
        found.append(
            (
                -math.inf if estimate is None else estimate.value,
                (
                    label,
                    f"{len(mine)}",
                    f"{len(runs)}",
                    interval(estimate),
                    percent(best[label]),
                    percent(close[label]),
                    seconds(_middle(times)),
                    f"{len(times)}/{len(runs)}",
                    f"{empty}",
                    f"{errors}",
                ),
            )
        )
    found.sort(key=lambda each: (-each[0], each[1][0]))
    columns = (
        "method", "problems", "runs", "IQM of scores [95 %]", "best of all", "within 1 %", "time to 1 %", "runs there",
        "no placement", "errors",
    )  # fmt: skip
    return Table(columns, tuple(row for _, row in found))


def warm_start_table(groups: Sequence[Group]) -> Table | None:
    """Return warm against cold start, one row per pair of methods and objective; None if nothing was warm-started.

    Times are to within 1 % of the best known objective of the problem; that of a warm start includes the time of the
    method that made it.
    """
    pairs: dict[tuple[str, str, str], list[tuple[Group, list[Row], list[Row]]]] = {}
    for group in groups:
        for warm in {(row["method"], row["warm_start"]) for row in group.all_rows if row["warm_start"]}:
            of_method = [row for row in group.all_rows if row["method"] == warm[0]]
            warmed = [row for row in of_method if row["warm_start"] == warm[1]]
            settings = [_setting(row) for row in warmed]
            cold = [row for row in of_method if not row["warm_start"] and _setting(row) in settings]
            if cold:
                pairs.setdefault((*warm, group.objective), []).append((group, warmed, cold))
    if not pairs:
        return None
    rows = []
    for (method, start, objective), found in sorted(pairs.items()):
        times: list[dict[str, list[float]]] = [{}, {}]
        there = [0, 0]
        for group, *sides in found:
            for side, runs in enumerate(sides):
                reached = [time for time in (_time_to_close(group, row) for row in runs) if time is not None]
                there[side] += len(reached)
                if reached:
                    times[side][group.address] = reached
        finals = [
            {group.address: [row["objective_s"] for row in runs[side] if row["objective_s"]] for group, *runs in found}
            for side in (0, 1)
        ]
        total = [sum(len(runs[side]) for _, *runs in found) for side in (0, 1)]
        rows.append(
            (
                f"{method} from {start}",
                objective,
                f"{len(found)}",
                f"{there[0]}/{total[0]}",
                f"{there[1]}/{total[1]}",
                interval(ratio_interval(times[0], times[1])),
                interval(ratio_interval(finals[0], finals[1]), digits=4),
            )
        )
    columns = (
        "method", "objective", "problems", "warm there", "cold there", "time to 1 %: warm / cold",
        "final objective: warm / cold",
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=2)


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


def _times_to_close(group: Group, label: str) -> list[float | None]:
    return [_time_to_close(group, row) for row in group.rows[label]]


def _time_to_close(group: Group, row: Row) -> float | None:
    """Return when a run came close to the best known objective, with the time of its warm start; None if never."""
    if group.best_s is None or row["error"] is not None:
        return None
    trace = [(time, objective, bound) for time, objective, bound in row["trace"]]
    time_s = time_to_gap_s(trace, group.best_s, CLOSE)
    return None if time_s is None else time_s + (row["warm_start_s"] or 0.0)


def _setting(row: Row) -> tuple[str, ...]:
    names = ("params", "file_hashes", "seed", "time_limit_s", "gap", "max_evaluations")
    return tuple(str(row[name]) for name in names)


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

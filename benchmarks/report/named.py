"""The tables of results pages, each by a name: ``placekit report results/ --table gaps``.

Every table is made of rows alone. A *gap* is to the best bound that any row of the sources proves, whichever methods
are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.stats import linregress

from placekit.benchmarks.cases.suite_schema import TRAINING_PLAN
from placekit.benchmarks.report.formats import NOTHING, count, milliseconds, percent, seconds
from placekit.benchmarks.report.groups import Group, labels_of, objectives_of, runtime_s
from placekit.benchmarks.report.measured import measured, outputs, prediction, timing, verdicts
from placekit.benchmarks.report.sources import Source
from placekit.benchmarks.report.tables import CLOSE, Table, Titled
from placekit.benchmarks.statistics import mean_interval, time_to_gap_s
from placekit.benchmarks.store import Row
from placekit.model.errors import InvalidFileError
from placekit.solve.registry import METHODS
from placekit.solve.result import SOLVER_TOLERANCE, Status
from placekit.solve.stop import StopReason, relative_gap

FIT_FROM = 1000
"""Smallest size that a fit of growth looks at: below it, fixed costs hide the growth."""
ANYTIME_S = (1.0, 3.0, 10.0, 60.0)
"""Times that the table `anytime` looks at."""


def named_tables(name: str, source: Source) -> list[tuple[str | None, Table]]:
    """Return the tables called `name`, each with its title, if it needs one."""
    found = [(title, table) for title, table in TABLES[name](source) if table.rows]
    if not found:
        raise InvalidFileError(f"no rows for table {name!r}")
    return found


def gaps(source: Source) -> Titled:
    """Percent above the best bound: a line per method, a column per problem; mean and interval over the seeds."""
    groups = [group for group in source.groups if group.bound_s]
    several = len(objectives_of(groups)) > 1
    is_one_platform = len({group.platform for group in groups}) == 1
    names = [str(group.all_rows[0]["model"]) if is_one_platform else group.model for group in groups]
    heads = [f"{name}, {group.objective}" if several else name for name, group in zip(names, groups, strict=True)]
    lines = []
    for label in _shown(source, groups):
        cells = [_above(group.objectives_s(label), group.bound_s or 0.0) for group in groups]
        if any(cell != NOTHING for cell in cells):
            lines.append((label, *cells))
    yield None, Table(("percent above the bound", *heads), tuple(lines))


def instances(source: Source) -> Titled:
    """Gap of every method, a line per problem; where it is below 1 %, with the seconds until it was."""
    groups = source.groups
    labels = _shown(source, groups)
    lines = []
    there = dict.fromkeys(labels, 0)
    for group in groups:
        cells = []
        for label in labels:
            gap = median(group.gaps(label)) if group.gaps(label) else None
            cell = percent(gap)
            if gap is not None and gap <= CLOSE:
                there[label] += 1
                times = [time_to_gap_s(row["trace"], group.bound_s or 0.0, CLOSE) for row in group.rows[label]]
                known = [time for time in times if time is not None]
                cell += f"; {seconds(median(known))}" if known else ""
            cells.append(cell)
        lines.append((group.model, milliseconds(group.bound_s, 4), *cells))
    bounded = [group for group in groups if group.bound_s is not None]
    totals = [f"{there[label]} of {sum(label in group.rows for group in bounded)}" for label in labels]
    lines.append((f"within {CLOSE:.0%}", "", *totals))
    yield None, Table(("instance", "bound (ms)", *labels), tuple(lines))


def best(source: Source) -> Titled:
    """Best known objective of every problem and the best proven bound, and which methods found them."""
    tables: dict[str, list[tuple[str, ...]]] = {}
    for group in source.groups:
        known = [group.contiguity] if group.objective == "throughput" else []
        row = group.best
        bound_s, _, by = group.bound or (None, "", NOTHING)
        gap = None if row is None else relative_gap(row["objective_s"], bound_s)
        is_proven = gap is not None and gap <= SOLVER_TOLERANCE
        bound = "proven" if is_proven else milliseconds(bound_s, 7)
        tables.setdefault(", ".join([group.objective, *known]), []).append(
            (
                group.model,
                NOTHING if row is None else milliseconds(row["objective_s"], 7),
                bound if gap is None or is_proven else f"{bound} ({percent(gap)})",
                NOTHING if row is None else row["shown"],
                by,
            )
        )
    for title, lines in tables.items():
        yield title, Table(("instance", "best (ms)", "bound (ms), gap", "found by", "bound by"), tuple(lines))


def spread(source: Source) -> Titled:
    """Percent above the best bound over all problems of an objective: median, worst, problems proven, median time."""
    for objective, members in objectives_of(source.groups).items():
        groups = [group for group in members if group.bound_s is not None]
        lines = []
        for label in _shown(source, groups):
            mine = [group for group in groups if label in group.rows]
            above = [
                100 * (row["objective_s"] / group.bound_s - 1)
                for group in mine
                for row in group.rows[label]
                if row["objective_s"] is not None and group.bound_s
            ]
            runs = [row for group in mine for row in group.rows[label]]
            proven = sum(any(row["status"] == Status.OPTIMAL for row in group.rows[label]) for group in mine)
            limits = sorted({row["time_limit_s"] for row in runs})
            without = sum(row["objective_s"] is None for row in runs)
            lines.append(
                (
                    median(above) if above else float("inf"),
                    (
                        label,
                        f"{len(mine)}",
                        f"{median(above):.2f}" if above else NOTHING,
                        f"{max(above):,.1f}" if above else NOTHING,
                        f"{without}" if without else "",
                        f"{proven}" if proven else "",
                        seconds(median(map(runtime_s, runs))),
                        ", ".join(f"{limit:g} s" for limit in limits),
                    ),
                )
            )
        lines.sort(key=lambda line: line[0])
        heads = ("method", "problems", "median", "worst", "no placement", "proven", "median time", "limit")
        yield f"{objective}: {len(groups)} problems", Table(heads, tuple(cells for _, cells in lines))


def excess(source: Source) -> Titled:
    """Mean and 95th percentile above bound and best known, over problems and seeds; how often a method is best.

    And how often it is below the list scheduler: ``heft``, or ``greedy`` where that has no row.
    """
    for objective, members in objectives_of(source.groups).items():
        groups = [group for group in members if group.bound_s and group.best_s]
        lines = []
        for label in _shown(source, groups):
            mine = [group for group in groups if label in group.rows]
            found = [(value, group) for group in mine for value in group.objectives_s(label) if value < float("inf")]
            above = [100 * (value / group.bound_s - 1) for value, group in found if group.bound_s]
            over = [100 * (value / group.best_s - 1) for value, group in found if group.best_s]
            best = [value <= group.best_s * (1 + 1e-9) for value, group in found if group.best_s]
            lists = [(value, _list_schedule_s(group)) for value, group in found]
            below = [value < listed * (1 - 1e-9) for value, listed in lists if listed is not None]
            lines.append(
                (
                    label,
                    f"{len(mine)}",
                    _above_zero(above),
                    f"{np.quantile(above, 0.95):.1f}" if above else NOTHING,
                    _above_zero(over),
                    f"{np.quantile(over, 0.95):.1f}" if over else NOTHING,
                    f"{100 * fmean(best):.0f}" if best else NOTHING,
                    f"{100 * fmean(below):.0f}" if below else NOTHING,
                )
            )
        heads = ("method", "problems", "above bound", "95th", "above best", "95th", "% best", "% below list")
        yield f"{objective}: {len(groups)} problems", Table(heads, tuple(lines))


def anytime(source: Source) -> Titled:
    """Mean percent above the best known placement after some seconds, over problems and seeds.

    The time of a warm start counts. Nothing is said of a time at which a run has no placement yet, or was cut off.
    """
    for objective, members in objectives_of(source.groups).items():
        groups = [group for group in members if group.best_s]
        lines = []
        for label in _shown(source, groups):
            mine = [group for group in groups if label in group.rows]
            cells = []
            for time_s in ANYTIME_S:
                above = [_percent_above(row, group.best_s, time_s) for group in mine for row in group.rows[label]]
                known = [value for value in above if value is not None]
                cells.append(_one_digit(fmean(known)) if len(known) == len(above) else NOTHING)
            lines.append((label, f"{len(mine)}", *cells))
        heads = ("percent above the best known", "problems", *(f"{time_s:g} s" for time_s in ANYTIME_S))
        yield f"{objective}: {len(groups)} problems", Table(heads, tuple(lines))


def _percent_above(row: Row, best_s: float | None, time_s: float) -> float | None:
    """Return how far a run is above `best_s` after `time_s`; None without a placement, or if it was stopped before."""
    before = row["warm_start_s"] or 0.0
    if row["stop_reason"] == StopReason.TIME and time_s > (row["time_limit_s"] + before) * 1.001:
        return None
    found = [value for at, value, _ in row["trace"] or () if value is not None and at + before <= time_s]
    return 100 * (found[-1] / best_s - 1) if found and best_s else None


def _list_schedule_s(group: Group) -> float | None:
    """Return the objective of the list scheduler of a group; None without one."""
    listed = [value for label in ("heft", "greedy") if label in group.rows for value in group.objectives_s(label)]
    return listed[0] if listed and listed[0] < float("inf") else None


def growth_rows(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Return what the growth of a method's cost is fitted to: its family of graphs, its size, time and memory.

    ``ended`` is ``"done"``, ``"limit"`` (the time was up) or ``"unproved"`` (an exact method gave up before).
    """
    found = []
    for group in groups:
        for row in (row for row in group.all_rows if row["error"] is None):
            is_exact = row["method"] in METHODS and METHODS[row["method"]].family == "exact"
            ended = "unproved" if is_exact and row["status"] != Status.OPTIMAL else "done"
            found.append(
                {
                    "family": group.model.rpartition("-")[0],
                    "method": row["label"],
                    "num_ops": row["num_ops"],
                    "time_s": runtime_s(row),
                    "memory_bytes": row.get("memory_bytes"),
                    "ended": "limit" if row["stop_reason"] == StopReason.TIME else ended,
                }
            )
    return found


def growth_of(
    # rows of one method on one family; those that did not come to their end are left out
    rows: Sequence[Mapping[str, Any]],
    quantity: str,  # ``"time_s"`` or ``"memory_bytes"``
) -> str | None:
    """Return the exponent of `quantity` over the number of ops, with its standard error; None below two sizes.

    The fit of a power law is by least squares on logarithms.

    Examples
    --------
    >>> growth_of([{"num_ops": n, "ended": "done", "time_s": 2 * n**2} for n in (1000, 2000, 4000)], "time_s")
    '2.00 ± 0.00'
    """
    used = [row for row in rows if row["ended"] == "done" and row["num_ops"] >= FIT_FROM and (row[quantity] or 0) > 0]
    sizes = [float(row["num_ops"]) for row in used]
    if len(set(sizes)) < 2:
        return None
    line = linregress(np.log(sizes), np.log([float(row[quantity]) for row in used]))
    return f"{line.slope:.2f}" + (f" ± {line.stderr:.2f}" if len(sizes) > 2 else "")  # every line fits two points


def growth(source: Source) -> Titled:
    """Exponents of time and memory over the number of ops, and the largest graph that was done."""
    rows = growth_rows(source.groups)
    lines = []
    for family, method in dict.fromkeys((row["family"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["family"], row["method"]) == (family, method)]
        exponents = [growth_of(mine, quantity) or NOTHING for quantity in ("time_s", "memory_bytes")]
        done = [row for row in mine if row["ended"] == "done"]
        if not done:
            continue
        last = max(done, key=lambda row: int(row["num_ops"]))
        memory = _megabytes(last["memory_bytes"])
        lines.append((family, method, *exponents, count(last["num_ops"]), seconds(last["time_s"]), memory))
    heads = ("family", "method", "time ~ n^", "memory ~ n^", "largest", "time", "memory")
    yield None, Table(heads, tuple(lines), num_text=2)


def cost(source: Source) -> Titled:
    """Yield updates and placements per second of learners, and the memory of a training."""
    lines = []
    for group in source.groups:
        for row in group.all_rows:
            updates, time_s = row.get("info", {}).get("updates"), row.get("runtime_s")
            if row["error"] is not None or not updates or not time_s:
                continue
            speed = (f"{updates / time_s:.3g}", count(row["evaluations"] / time_s))
            memory = _megabytes(row.get("memory_bytes"))
            lines.append((group.model, count(row["num_ops"]), row["label"], *speed, memory))
    heads = ("graph", "ops", "learner", "updates/s", "placements/s", "memory")
    yield None, Table(heads, tuple(lines))


def plans(source: Source) -> Titled:
    """Optimum of training plans, and every other method's objective over it."""
    groups = [group for group in source.groups if group.objective == TRAINING_PLAN]
    labels = [label for label in _shown(source, groups) if label != "dp"]
    lines = []
    for group in groups:
        instance, _, machine = group.model.rpartition(" on ")
        cells: tuple[str, ...] = (NOTHING, NOTHING, NOTHING)
        best = None
        for row in group.rows.get("dp", ()):
            best = row["objective_s"]
            if best is None:
                cells = ("nothing fits" if row["status"] == Status.INFEASIBLE else row["status"], NOTHING, NOTHING)
            else:
                gap = relative_gap(best, row["bound_s"])
                told = f"{best:.6g}" if row["status"] == Status.OPTIMAL else f"{best:.6g} (gap {percent(gap)})"
                cells = (told, f"{row['num_stages']}", NOTHING)
            cells = (*cells[:2], seconds(row["runtime_s"]))
        others = [_over(group.rows.get(label, ()), best) for label in labels]
        lines.append((instance, machine, *cells, *others))
    heads = ("instance", "machine", "optimum (s)", "stages", "time", *labels)
    yield None, Table(heads, tuple(lines), num_text=2)


_ALL = (
    *(gaps, instances, best, spread, excess, anytime, growth, cost, plans),
    *(outputs, timing, prediction, measured, verdicts),
)
TABLES: Mapping[str, Callable[[Source], Titled]] = MappingProxyType({table.__name__: table for table in _ALL})
"""Every table by its name."""


def _shown(source: Source, groups: Iterable[Group]) -> list[str]:
    groups = list(groups)
    rows = {label: group.rows[label][0] for group in groups for label in group.rows}
    return [label for label in labels_of(groups) if source.shows(rows[label])]


def _above_zero(percents: Sequence[float]) -> str:
    """Return the mean of percents and its interval."""
    return _above([1 + each / 100 for each in percents], 1.0)


def _above(objectives_s: Sequence[float], bound_s: float) -> str:
    """Return percent above the bound, mean and interval over the runs that have a placement."""
    found = [100 * (value / bound_s - 1) for value in objectives_s if value < float("inf")]
    if not found:
        return NOTHING
    estimate = mean_interval({"": found})
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return _one_digit(estimate.value)
    return f"{_one_digit(estimate.value)} ({_one_digit(estimate.low)} to {_one_digit(estimate.high)})"


def _one_digit(value: float) -> str:
    text = f"{value:.1f}"
    return "0.0" if text == "-0.0" else text


def _over(rows: Sequence[Row], best: float | None) -> str:
    if not rows:
        return NOTHING
    value = rows[0]["objective_s"]
    return "no plan" if value is None else f"{value / best:.3f}" if best else f"{value:.6g}"


def _megabytes(num_bytes: float | None) -> str:
    return NOTHING if num_bytes is None else f"{num_bytes / 1e6:,.0f} MB"

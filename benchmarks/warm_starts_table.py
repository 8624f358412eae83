"""The rows of :mod:`placekit.benchmarks.warm_starts` as tables: medians over seeds, ratios with intervals.

Every table is made from the rows of its own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.statistics import Interval, ratio_interval, time_to_gap_s
from placekit.benchmarks.warm_starts_case import LEARNER, Row, WarmCase

__all__ = ["evaluations_table", "onwards_table", "time_table"]

CLOSE = 0.01
"""How near the best objective known a search has to come."""
LEAST_S = 0.01
"""Times below this count as this: a start that is near already would make any ratio."""

Rows = Mapping[WarmCase, Row]
Values = dict[str, list[float]]
"""One value per seed, by instance."""


def evaluations_table(rows: Rows) -> str:
    """Return a line per model: evaluations until near the optimum by start, and the ratios of cold over warm.

    A learner that gave up counts with the evaluations that it spent, so that ratios are lower limits then.
    """
    starts = list(dict.fromkeys(case.start for case in rows))
    spent: dict[str, Values] = {start: {} for start in ("cold", *starts)}
    cells: dict[tuple[str, str], str] = {}
    for model in dict.fromkeys(case.instance for case in rows):
        for start in starts:
            runs = [row for case, row in rows.items() if (case.instance, case.start) == (model, start)]
            values = [float(row["reached_after"] or row["evaluations"]) for row in runs]
            if values:
                spent[start][model] = values
                first = median(row["first_mean_s"] / row["start_s"] for row in runs)
                reached = sum(row["reached_after"] is not None for row in runs)
                cells[model, start] = f"{median(values):,.0f} ({reached} of {len(runs)}); {first - 1:.0%}"
    warm = [start for start in starts if start != "cold"]
    lines = [
        "Evaluations until within 2 % of the optimum, median (runs that got there); mean cost of the first update's "
        "samples above the optimum.",
        "",
        markdown_line(["model", *starts, *(f"cold / {start}" for start in warm)]),
        markdown_line(["---"] * (1 + len(starts) + len(warm))),
    ]
    for model in spent["cold"]:
        ratios = [_ratio(spent["cold"], spent[start], model) for start in warm]
        lines.append(markdown_line([model, *(cells.get((model, start), "-") for start in starts), *ratios]))
    overall = [_ratio(spent["cold"], spent[start]) for start in warm]
    return "\n".join([*lines, markdown_line(["all", *[""] * len(starts), *overall])])


def onwards_table(rows: Rows) -> str:
    """Return a line per learner and model: how far it got by start, relative to the placement that it could start from.

    Negative is better than that. Ratios are of the objectives of the warm start and the cold one.
    """
    ends: dict[str, Values] = {}
    for case, row in rows.items():
        at = ends.setdefault(case.start, {}).setdefault(f"{case.method}, {case.instance}", [])
        at.append(row["objective_s"] / row["start_s"])
    cold = ends.pop("cold", {})
    lines = [
        "Objective at the end against that of the placement that warm starts begin with, median; ratios of warm over "
        "cold: below 1 the warm start is better.",
        "",
        markdown_line(["learner, model", "cold", *ends, *(f"{start} / cold" for start in ends)]),
        markdown_line(["---"] * (2 + 2 * len(ends))),
    ]
    for name in cold:
        medians = [f"{median(each[name]) - 1:+.1%}" if name in each else "-" for each in (cold, *ends.values())]
        lines.append(markdown_line([name, *medians, *(_ratio(each, cold, name) for each in ends.values())]))
    return "\n".join(lines)


def time_table(rows: Rows) -> str:
    """Return a table per search: seconds until close to the best known by start, ratios, and where each ends.

    A run that never came close counts with its whole time, so that a ratio with a cold start like that is a lower
    limit, and one with a warm start like that an upper limit.
    """
    best: dict[str, float] = {}
    for case, row in rows.items():
        if row["objective_s"] is not None:
            best[case.instance] = min(best.get(case.instance, row["objective_s"]), row["objective_s"])
    methods = dict.fromkeys(case.method for case in rows if case.method != LEARNER)
    return "\n\n".join(_search_table(method, rows, best) for method in methods)


class _Runs:
    """What the runs of one method with one start came to, by instance."""

    def __init__(self) -> None:
        self.times: Values = {}
        self.whole: Values = {}  # with the learner's time
        self.ends: Values = {}
        self.num_close: dict[str, int] = {}

    def add(self, instance: str, *, is_close: bool, spent_s: float, before_s: float, above: float) -> None:
        """Take one run: whether and when it came close, and how far above the best it ended, as a ratio."""
        self.times.setdefault(instance, []).append(spent_s)
        self.whole.setdefault(instance, []).append(before_s + spent_s)
        self.ends.setdefault(instance, []).append(above)
        self.num_close[instance] = self.num_close.get(instance, 0) + is_close

    def told(self, instance: str) -> str:
        """Return the cell of an instance."""
        if instance not in self.times:
            return "-"
        count = f"{self.num_close[instance]} of {len(self.times[instance])}"
        return f"{median(self.times[instance]):.2g} s ({count}); {median(self.ends[instance]) - 1:.1%}"


def _search_table(method: str, rows: Rows, best: Mapping[str, float]) -> str:
    runs: dict[str, _Runs] = {}
    for case, row in rows.items():
        if case.method != method or row["objective_s"] is None:
            continue
        close_s = time_to_gap_s(row["trace"], best[case.instance], CLOSE)
        learned = rows.get(WarmCase("time", case.instance, LEARNER, "cold", case.seed))
        runs.setdefault(case.start, _Runs()).add(
            case.instance,
            is_close=close_s is not None,
            spent_s=max(LEAST_S, row["runtime_s"] if close_s is None else close_s),
            before_s=learned["runtime_s"] if learned is not None and case.start != "cold" else 0.0,
            above=row["objective_s"] / best[case.instance],
        )
    cold = runs.get("cold", _Runs())
    warm = {start: each for start, each in runs.items() if start != "cold"}
    heads = [head for start in warm for head in (f"cold / {start}", "with the learner's time", "objective at the end")]
    lines = [
        f"**{method}**: seconds until within {CLOSE:.0%} of the best objective known, median (runs that got there); "
        "where it ends above that. Ratios of cold over warm: above 1 the warm start is better.",
        "",
        markdown_line(["instance", *runs, *heads]),
        markdown_line(["---"] * (1 + len(runs) + len(heads))),
    ]

    def ratios(instance: str | None) -> list[str]:
        return [
            _ratio(one, other, instance)
            for each in warm.values()
            for one, other in ((cold.times, each.times), (cold.times, each.whole), (cold.ends, each.ends))
        ]

    lines += [
        markdown_line([instance, *(each.told(instance) for each in runs.values()), *ratios(instance)])
        for instance in cold.times
    ]
    return "\n".join([*lines, markdown_line(["all", *[""] * len(runs), *ratios(None)])])


def _ratio(over: Values, under: Values, instance: str | None = None) -> str:
    """Return the ratio of medians with its interval, of one instance or in the geometric mean over all."""
    if instance is not None:
        over, under = ({name: values for name, values in each.items() if name == instance} for each in (over, under))
    found = ratio_interval(over, under)
    return "-" if found is None else _shown(found)


def _shown(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return _number(ratio.value)
    return f"{_number(ratio.value)} ({_number(ratio.low)} to {_number(ratio.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

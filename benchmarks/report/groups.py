"""Rows, grouped by problem and method: what all tables and figures are made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from placekit.benchmarks.store import Row, Store
from placekit.model.errors import InvalidFileError
from placekit.objectives import get_objective
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import relative_gap


@dataclass(frozen=True)
class Group:
    """All rows of one problem: a model on a platform under an objective and a contiguity."""

    rows: Mapping[str, tuple[Row, ...]]  # the rows by method label, each method's by seed

    @cached_property
    def all_rows(self) -> tuple[Row, ...]:
        """Every row."""
        return tuple(row for rows in self.rows.values() for row in rows)

    @property
    def address(self) -> str:
        """Address of the problem."""
        return str(self.all_rows[0]["problem_address"])

    @property
    def objective(self) -> str:
        """Name of the objective."""
        return str(self.all_rows[0]["objective"])

    @property
    def contiguity(self) -> str:
        """Its contiguity rule."""
        return str(self.all_rows[0]["contiguity"])

    @property
    def title(self) -> str:
        """Model, platform, objective with its variant, contiguity."""
        return f"{self.model}: {self.variant}, contiguity {self.contiguity}"

    @property
    def model(self) -> str:
        """Model and platform."""
        return model_of(self.all_rows[0])

    @property
    def platform(self) -> str | None:
        """Platform, where the problem did not bring its own devices."""
        name: str | None = self.all_rows[0]["platform"]
        return name

    @property
    def variant(self) -> str:
        """Objective, and where it differs from the usual one."""
        row = self.all_rows[0]
        usual = get_objective(row["objective"]).to_dict() if row["variant"] else {}
        unusual = [f"{name} {value}" for name, value in row["variant"].items() if value != usual.get(name)]
        return ", ".join([row["objective"], *unusual])

    @property
    def single_s(self) -> float | None:
        """Objective of the best feasible single device; None if none is feasible."""
        known = (row["single_device_s"] for row in self.all_rows)  # a row of an error has none
        return next((value for value in known if value is not None), None)

    @cached_property
    def bound(self) -> tuple[float, str, str] | None:
        """The best proven bound: seconds, its name, and the method that proved it; None if nobody proved one."""
        proven = [
            (row["bound_s"], row.get("bound_name") or "a bound", row["shown"])
            for row in self.all_rows
            if row["bound_s"] is not None
        ]
        return max(proven, key=lambda each: float(each[0]), default=None)

    @property
    def bound_s(self) -> float | None:
        """Seconds of the best proven bound."""
        return None if self.bound is None else self.bound[0]

    @cached_property
    def best(self) -> Row | None:
        """The row with the best objective; None if nobody has one.

        Of equal ones that of the method whose runs are best in the mean, as one seed of many may be lucky; of its runs
        the one that was there first.
        """
        mean_s = {label: fmean(self.objectives_s(label)) for label in self.rows}
        found = [(row, label) for label, rows in self.rows.items() for row in rows if row["objective_s"] is not None]
        best = min(found, key=lambda each: (each[0]["objective_s"], mean_s[each[1]], _spent_s(each[0])), default=None)
        return None if best is None else best[0]

    @property
    def best_s(self) -> float | None:
        """The best objective."""
        return None if self.best is None else self.best["objective_s"]

    @property
    def contradiction(self) -> str | None:
        """A sentence if a bound lies above an objective: then one of them is wrong, and that is a bug."""
        if self.bound is None or self.best is None or self.best_s is None:
            return None
        bound_s, name, method = self.bound
        if bound_s <= self.best_s * (1 + 2 * SOLVER_TOLERANCE):
            return None
        return f"{self.title}: {method} proves {bound_s!r} s ({name}), {self.best['shown']} reaches {self.best_s!r} s"

    def objectives_s(self, label: str) -> list[float]:
        """Return the objective of every run of a method; infinity without a placement."""
        return [math.inf if row["objective_s"] is None else row["objective_s"] for row in self.rows.get(label, ())]

    def gaps(self, label: str) -> list[float]:
        """Return the gap of every run to the best proven bound, where both are known."""
        found = [relative_gap(row["objective_s"], self.bound_s) for row in self.rows.get(label, ())]
        return [gap for gap in found if gap is not None]


def read_groups(*results: Path) -> tuple[Group, ...]:
    """Read the rows of folders of results, grouped; of two rows of a case the one in the later folder counts."""
    rows: dict[str, Row] = {}
    for store in map(Store, results):
        found = store.rows()
        if not found:
            raise InvalidFileError(f"{store.path}: no rows; placekit bench SUITE -o {store.folder} makes some")
        rows |= found
    try:
        groups = group_rows(rows.values())
    except KeyError as error:
        raise InvalidFileError(f"{', '.join(map(str, results))}: a row lacks {error}") from None
    refuse_mixtures(groups)
    return groups


def model_of(row: Row) -> str:
    """Return model and platform of a row."""
    return f"{row['model']} on {row['platform']}" if row.get("platform") else str(row.get("model"))


def group_rows(rows: Iterable[Row]) -> tuple[Group, ...]:
    """Group rows by problem, in order of first appearance; each row gets the label that is shown as ``shown``.

    A method that ran under an objective and contiguity with several limits is shown once per limit.
    """
    by_problem: dict[str, list[Row]] = {}
    limits: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        by_problem.setdefault(row["problem_address"], []).append(row)
        limits.setdefault(_line(row), set()).add(_limit(row))
    groups = []
    for members in by_problem.values():
        by_label: dict[str, list[Row]] = {}
        for row in sorted(members, key=lambda each: each["seed"]):
            has_several = len(limits[_line(row)]) > 1
            shown = f"{row['label']} ({_limit(row)})" if has_several else row["label"]
            by_label.setdefault(shown, []).append({**row, "shown": shown})
        order = {row["label"]: at for at, row in reversed(list(enumerate(members)))}
        names = sorted(by_label, key=lambda name: (order[by_label[name][0]["label"]], name))
        groups.append(Group({name: tuple(by_label[name]) for name in names}))
    return tuple(groups)


def refuse_mixtures(groups: Iterable[Group], shows: Callable[[Row], bool] = lambda _: True) -> None:
    """Refuse rows of one method, objective and contiguity that several versions of the code made."""
    first: dict[tuple[str, str, str], Row] = {}
    for row in (row for group in groups for row in group.all_rows if shows(row)):
        other = first.setdefault(_line(row), row)
        mine, before = (each["versions"].get("placekit", "unknown") for each in (row, other))
        if mine != before:
            raise InvalidFileError(
                f"rows of {row['shown']!r} for {row['objective']} are of several versions of placekit: {before} "
                f"({other['model']}, case {other['case']}) and {mine} ({row['model']}, case {row['case']}); make the "
                "older ones again with `placekit bench --again`, or choose models of one version with --workload"
            )


def labels_of(groups: Iterable[Group]) -> list[str]:
    """Return the labels of all methods in order of first appearance."""
    return list(dict.fromkeys(label for group in groups for label in group.rows))


def objectives_of(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """Return the groups by objective, and by contiguity where there are several: those are compared across models."""
    groups = list(groups)
    rules: dict[str, set[str]] = {}
    for group in groups:
        rules.setdefault(group.objective, set()).add(group.contiguity)
    found: dict[str, list[Group]] = {}
    for group in groups:
        is_split = len(rules[group.objective]) > 1
        found.setdefault(f"{group.objective}, {group.contiguity}" if is_split else group.objective, []).append(group)
    return found


def runtime_s(row: Row) -> float:
    """Return the time of a run, with that of its warm start."""
    return float((row.get("runtime_s") or 0.0) + (row.get("warm_start_s") or 0.0))


def _spent_s(row: Row) -> float:
    """Return when a run had its best placement, with the time of its warm start."""
    return (row["time_to_best_s"] or 0.0) + (row["warm_start_s"] or 0.0)


def _line(row: Row) -> tuple[str, str, str]:
    """Return what rows have in common that are shown as one line of a table."""
    return row["objective"], row["contiguity"], row["label"]


def _limit(row: Mapping[str, Any]) -> str:
    parts = [f"{row['time_limit_s']:g} s"]
    parts += [f"gap {row['gap']:g}"] if row["gap"] is not None else []
    parts += [f"{row['max_evaluations']} evaluations"] if row["max_evaluations"] is not None else []
    return ", ".join(parts)

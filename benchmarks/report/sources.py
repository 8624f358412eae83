"""Rows from folders of results and from files of rows, for tables: all of them, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placekit.benchmarks.report.groups import Group, group_rows
from placekit.benchmarks.rows import read_lines
from placekit.benchmarks.store import Row, Store
from placekit.model.errors import InvalidFileError, check_names

__all__ = ["Source", "read_source"]


@dataclass(frozen=True)
class Source:
    """Rows that tables are made of.

    Parameters
    ----------
    groups
        Rows of solves, grouped by problem.
    measured
        Rows of what was executed.
    methods, suite
        Only these are shown, where there are any; bounds and best known objectives are those of all.
    """

    groups: tuple[Group, ...]
    measured: tuple[Row, ...]
    methods: tuple[str, ...] = ()
    suite: str | None = None

    def shows(self, row: Row) -> bool:
        """Return whether a row is of the suite, and one of the methods, that are shown, by its label or its method."""
        is_meant = not self.methods or row["label"] in self.methods or row.get("method") in self.methods
        return is_meant and self.suite in (None, row.get("suite"))

    def mixtures(self) -> list[str]:
        """Return what makes rows unfit to be compared: several versions of placekit, several time limits."""
        rows = [row for group in self.groups for row in group.all_rows if self.shows(row)]
        versions = sorted({row["versions"].get("placekit", "unknown") for row in rows})
        limits = sorted({row["time_limit_s"] for row in rows if row["time_limit_s"] is not None})
        told = [f"rows of several versions of placekit: {', '.join(versions)}"] if len(versions) > 1 else []
        if len(limits) > 1:
            told.append(f"rows of several time limits: {', '.join(f'{limit:g} s' for limit in limits)}")
        return told


def read_source(
    paths: Iterable[Path],
    *,
    objectives: Sequence[str] = (),
    models: Sequence[str] = (),
    methods: Sequence[str] = (),
    suite: str | None = None,
) -> Source:
    """Read the rows of folders and files; of two rows of one case the later one counts.

    Parameters
    ----------
    paths
        Folders of results, as ``placekit bench`` makes them, or files of rows.
    objectives
        Only problems of these objectives.
    models
        Only models whose name has one of these texts.
    methods, suite
        Only these methods or labels, and rows of this suite; rows of others still give bounds.

    Raises
    ------
    InvalidFileError
        A path without rows, or a line that is none.
    UnknownNameError
        An objective, model, method or suite that no row has.
    """
    rows: dict[str, Row] = {}
    measured: dict[str, Row] = {}
    for path in paths:
        found, timed = _read(path)
        if not found and not timed:
            raise InvalidFileError(f"{path}: no rows; placekit bench SUITE -o FOLDER makes some")
        rows |= found
        measured |= timed

    def is_meant(objective: str, model: str) -> bool:
        return (not objectives or objective in objectives) and (not models or any(each in model for each in models))

    # the same method of another suite is another line, which is not shown
    named = (
        row if suite in (None, row["suite"]) else row | {"label": f"{row['label']}, {row['suite']}"}
        for row in rows.values()
    )
    every, timed_rows = list(group_rows(named)), list(measured.values())
    labels = [row[key] for row in (*rows.values(), *timed_rows) for key in ("label", "method") if row.get(key)]
    check_names("--objective", objectives, [*(g.objective for g in every), *(r.get("objective") for r in timed_rows)])
    models_there = [*(group.model for group in every), *(row.get("model") for row in timed_rows)]
    check_names("--workload", models, models_there, lambda text, name: text in name)
    check_names("--method", methods, labels)
    suites = [] if suite is None else [suite]
    check_names("--suite", suites, (row.get("suite") for row in (*rows.values(), *timed_rows)))
    groups = tuple(group for group in every if is_meant(group.objective, group.model))
    kept = tuple(row for row in timed_rows if is_meant(str(row.get("objective")), str(row.get("model"))))
    source = Source(groups, kept, tuple(methods), suite)
    return replace(source, groups=tuple(group for group in groups if any(map(source.shows, group.all_rows))))


def _read(path: Path) -> tuple[dict[str, Row], dict[str, Row]]:
    if path.is_dir():
        store = Store(path)
        return store.rows(), store.measured()
    first = next((row for _, row in read_lines(path)), {})
    store = Store(path.parent)
    if first.get("schema") == "placekit/measured/1":
        return {}, store.measured(path)
    return store.rows(path), {}

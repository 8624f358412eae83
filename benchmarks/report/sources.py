"""Rows from folders of results and from files of rows, for tables: all of them, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placekit.benchmarks.report.groups import Group, group_rows, model_of, refuse_mixtures
from placekit.benchmarks.store import Row, Store, read_lines
from placekit.model.errors import InvalidFileError, check_names


@dataclass(frozen=True)
class Source:
    """Rows that tables are made of."""

    groups: tuple[Group, ...]  # rows of solves, grouped by problem
    measured: tuple[Row, ...]  # rows of what was executed
    # methods, suite: only these are shown, where there are any; bounds and best known objectives are those of all
    methods: tuple[str, ...] = ()
    suite: str | None = None

    def shows(self, row: Row) -> bool:
        """Return whether a row is of the suite, and one of the methods, that are shown, by its label or its method."""
        is_meant = not self.methods or row["label"] in self.methods or row.get("method") in self.methods
        return is_meant and self.suite in (None, row.get("suite"))

    def versions(self) -> list[str]:
        """Return the versions of placekit that made the rows which are shown."""
        rows = [*(row for group in self.groups for row in group.all_rows), *self.measured]
        return sorted({row["versions"].get("placekit", "unknown") for row in rows if self.shows(row)})


def read_source(
    paths: Iterable[Path],  # folders of results, as ``placekit bench`` makes them, or files of rows
    *,
    objectives: Sequence[str] = (),  # only problems of these objectives
    models: Sequence[str] = (),  # only models whose name has one of these texts
    # methods, suite: only these methods or labels, and rows of this suite; rows of others still give bounds
    methods: Sequence[str] = (),
    suite: str | None = None,
) -> Source:
    """Read the rows of folders and files; of two rows of one case the later one counts."""
    rows: dict[str, Row] = {}
    measured: dict[str, Row] = {}
    for path in paths:
        found, timed = _read(path)
        if not found and not timed:
            raise InvalidFileError(f"{path}: no rows; placekit bench SUITE -o FOLDER makes some")
        rows |= found
        measured |= timed

    every = [*rows.values(), *measured.values()]
    suites = [] if suite is None else [suite]
    check_names("--objective", objectives, [row.get("objective") for row in every])
    check_names("--workload", models, map(model_of, every), lambda text, name: text in name)
    check_names("--method", methods, [row[key] for row in every for key in ("label", "method") if row.get(key)])
    check_names("--suite", suites, [row.get("suite") for row in every])

    def is_meant(row: Row) -> bool:
        model = model_of(row)
        return (not objectives or row.get("objective") in objectives) and (
            not models or any(each in model for each in models)
        )

    # the same method of another suite is another line, which is not shown
    named = (
        row if suite in (None, row["suite"]) else row | {"label": f"{row['label']}, {row['suite']}"}
        for row in filter(is_meant, rows.values())
    )
    source = Source(group_rows(named), tuple(filter(is_meant, measured.values())), tuple(methods), suite)
    refuse_mixtures(source.groups, source.shows)
    return replace(source, groups=tuple(each for each in source.groups if any(map(source.shows, each.all_rows))))


def _read(path: Path) -> tuple[dict[str, Row], dict[str, Row]]:
    if path.is_dir():
        store = Store(path)
        return store.rows(), store.measured()
    first = next((row for _, row in read_lines(path)), {})
    store = Store(path.parent)
    if first.get("schema") == "placekit/measured/1":
        return {}, store.measured(path)
    return store.rows(path), {}

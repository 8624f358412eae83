"""``placekit report``: the rows of a folder of results as one page, or as one table."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from placekit.benchmarks.published import read_predictions
from placekit.benchmarks.report.answers import write_answers
from placekit.benchmarks.report.named import TABLES, best, named_tables
from placekit.benchmarks.report.sources import read_source
from placekit.benchmarks.report.tables import Table
from placekit.benchmarks.report.truth import plot_truth, truth
from placekit.benchmarks.report.write import markdown_table, write_report
from placekit.cli.console import check_writable, print_json, print_line
from placekit.cli.options import JsonOption
from placekit.cli.parameters import OUTPUT, option
from placekit.io.visible import visible_markdown
from placekit.model.errors import InvalidProblemError, UnknownNameError, did_you_mean
from placekit.plotting.canvas import save_figure

TRUTH = "truth"
"""Table of what `placekit bench published` wrote."""


@dataclass(frozen=True)
class TableOptions:
    """Rows of one table."""

    panel: ClassVar[str] = "Table"

    objective: list[str] | None = option(None, "Only this objective; repeatable.", "NAME")
    workload: list[str] | None = option(None, "Only models whose name contains this text; repeatable.", "TEXT")
    method: list[str] | None = option(None, "Only this method or label; repeatable.", "NAME", names="--method -m")
    suite: str | None = option(None, "Only rows of this suite; bounds of other suites still count.", "NAME")

    def given(self) -> list[str]:
        """Return the options that the user gave."""
        return [f"--{each.name}" for each in fields(self) if getattr(self, each.name) not in (None, [])]


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of results, as `placekit bench -o` made them; for --table also files of rows.",
            show_default=False,
        ),
    ],
    *,
    table: str | None = option(None, f"Print this table in Markdown instead: {', '.join([*TABLES, TRUTH])}.", "NAME"),
    rows: TableOptions,
    answers: Path | None = option(
        None,
        "With --table best: folder for the answers as files, which `placekit verify` checks.",
        "FOLDER",
        panel=OUTPUT,
    ),
    output: Path | None = option(
        None,
        "HTML file (report.html, in the folder if it is one). With --table truth: a picture, .png, .svg or .pdf.",
        "FILE",
        names="--output -o",
        panel=OUTPUT,
    ),
    as_json: JsonOption = False,
) -> None:
    """Write the report of a benchmark: one HTML page that needs nothing else, and the same in Markdown."""
    if answers is not None and table != best.__name__:
        raise InvalidProblemError(f"--answers {answers} goes with --table {best.__name__}")
    if output is not None and table not in (None, TRUTH):
        raise InvalidProblemError(f"--output {output} goes with the page, or with --table {TRUTH}")
    if table == TRUTH:
        found = [each for path in results for each in read_predictions(path)]
        _print_tables(table, list(truth(found)), as_json=as_json)
        if output is not None:
            save_figure(plot_truth(found), output)
            print_line(f"\nwrote {output}", sys.stderr)
        return
    if table is not None:
        source = read_source(
            results, objectives=rows.objective or (), models=rows.workload or (), methods=rows.method or (),
            suite=rows.suite,
        )  # fmt: skip
        if table not in TABLES:
            raise UnknownNameError(f"no table {table!r}; tables are {', '.join(TABLES)}{did_you_mean(table, TABLES)}")
        _print_tables(table, named_tables(table, source), as_json=as_json)
        if answers is not None:
            print_line(f"\nwrote {write_answers(source.groups, answers)} answers to {answers}", sys.stderr)
        if not as_json:
            versions = source.versions()
            several = "; under an objective each method is of one" if len(versions) > 1 else ""
            print_line(f"\nRows of placekit {' and '.join(versions)}{several}.")
        return
    for each in rows.given():
        raise InvalidProblemError(f"{each} goes with --table; the page shows everything")
    if output is not None:
        check_writable(output)  # first: the empty path has no suffix to replace
        check_writable(output.with_suffix(".md"))
    page, text = write_report(*results, output=output)
    if as_json:
        print_json({"files": {"html": str(page), "markdown": str(text)}})
    else:
        print_line(f"wrote {page} ({page.stat().st_size / 1e6:.2f} MB)\nwrote {text}")


def _print_tables(name: str, found: list[tuple[str | None, Table]], *, as_json: bool) -> None:
    if as_json:
        told = [{"title": title, "columns": [*each.columns], "rows": [*map(list, each.rows)]} for title, each in found]
        print_json({"table": name, "tables": told})
        return
    parts = [(f"**{visible_markdown(title)}**\n\n" if title else "") + markdown_table(each) for title, each in found]
    print_line("\n\n".join(parts))

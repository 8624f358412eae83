"""``placekit report``: the rows of a folder of results as one page, or as one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.options import JsonOption
from placekit.model.errors import InvalidFileError, InvalidProblemError

if TYPE_CHECKING:
    from placekit.benchmarks.report.sources import Source

__all__ = ["report"]


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of results, as `bench -o` made it; --table: files of rows, too.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="HTML file (report.html in the folder).")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Print a table in Markdown: gaps, instances, spread, excess, against, warm, growth, cost, cold, "
            "plans, outputs, timing or prediction.",
        ),
    ] = None,
    objective: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="--table: only this objective; repeatable.")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="--table: only models whose name has this; repeatable.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="--table: only this method or label; repeatable.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME", help="--table: only rows of this suite; others still give bounds.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a benchmark: one HTML page that needs nothing else, and the same in Markdown."""
    from placekit.cli.console import check_writable, print_json, print_line

    if table is not None:
        from placekit.benchmarks.report.sources import read_source

        source = read_source(
            results, objectives=objective or (), models=workload or (), methods=method or (), suite=suite
        )
        _print_tables(table, source, as_json=as_json)
        return
    for option, value in (
        ("--objective", objective), ("--workload", workload), ("--method", method), ("--suite", suite),
    ):  # fmt: skip
        if value is not None and value != []:
            raise InvalidProblemError(f"{option} goes with --table; the page shows everything")
    if len(results) > 1:
        raise InvalidFileError(f"{len(results)} folders of results; a page is made of one, a --table of several")
    from placekit.benchmarks.report.write import write_report

    if output is not None:
        check_writable(output)
        check_writable(output.with_suffix(".md"))
    page, text = write_report(results[0], output)
    if as_json:
        print_json({"files": {"html": str(page), "markdown": str(text)}})
    else:
        print_line(f"wrote {page} ({page.stat().st_size / 1e6:.2f} MB)\nwrote {text}")


def _print_tables(name: str, source: Source, *, as_json: bool) -> None:
    from placekit.benchmarks.report.named import TABLES, named_tables
    from placekit.benchmarks.report.write import markdown_table
    from placekit.cli.console import print_json, print_line
    from placekit.io.visible import visible_markdown
    from placekit.model.errors import UnknownNameError, did_you_mean

    if name not in TABLES:
        raise UnknownNameError(f"no table {name!r}; tables are {', '.join(TABLES)}{did_you_mean(name, TABLES)}")
    found = named_tables(name, source)
    if as_json:
        told = [{"title": title, "columns": [*each.columns], "rows": [*map(list, each.rows)]} for title, each in found]
        print_json({"table": name, "tables": told})
        return
    parts = [(f"**{visible_markdown(title)}**\n\n" if title else "") + markdown_table(each) for title, each in found]
    print_line("\n\n".join(parts))

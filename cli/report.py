"""``placekit report``: the rows of a folder of results as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.options import JsonOption

__all__ = ["report"]


def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, as `bench -o` made it.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="HTML file (report.html in the folder).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a benchmark: one HTML page that needs nothing else, and the same in Markdown."""
    from placekit.benchmarks.report.write import write_report
    from placekit.cli.console import check_writable, print_json, print_line

    if output is not None:
        check_writable(output)
        check_writable(output.with_suffix(".md"))
    page, text = write_report(results, output)
    if as_json:
        print_json({"files": {"html": str(page), "markdown": str(text)}})
    else:
        print_line(f"wrote {page} ({page.stat().st_size / 1e6:.2f} MB)\nwrote {text}")

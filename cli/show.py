"""``placekit show``: look into any file that placekit reads or writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.options import JsonOption
from placekit.errors import InvalidFileError, InvalidProblemError

if TYPE_CHECKING:
    from placekit.result import Result

__all__ = ["show"]


def show(
    file: Annotated[
        Path | None, typer.Argument(help="Result, placement, problem, workload, costs, platform or model.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a result's loads and trace: .png, .svg or .pdf.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Print the JSON Schema of problem, costs, placement, result or workload."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a file as tables and bars, as JSON, or as a figure."""
    from placekit.cli.console import check_writable, print_json, show_parts

    if schema is not None:
        from placekit.io.schemas import json_schema

        print_json(json_schema(schema))
        return
    if file is None:
        raise InvalidProblemError("show needs a FILE, or --schema KIND")
    from placekit.cli.views import view_file

    view = view_file(file)
    files = {}
    if plot is not None:
        if view.result is None:
            raise InvalidFileError(f"{file}: only a result can be drawn; it has loads and a trace")
        check_writable(plot)
        _draw(view.result, plot)
        files = {"plot": str(plot)}
    if as_json:
        print_json({**view.document, **({"files": files} if files else {})})
    else:
        show_parts([*view.parts, *(["", f"wrote plot  {plot}"] if plot else [])])


def _draw(result: Result, path: Path) -> None:
    from placekit.plotting.plot_result import plot_result
    from placekit.plotting.save import save_figure

    save_figure(plot_result(result), path)

"""``placekit show``: look into any file that placekit reads or writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.options import JsonOption
from placekit.cli.train_plan import draw_plan
from placekit.errors import InvalidFileError, InvalidProblemError

if TYPE_CHECKING:
    from placekit.result import Result

__all__ = ["show"]


def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Result, placement, problem, workload, costs, platform, training plan or problem, or model."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a result's loads and trace: .png, .svg or .pdf.")
    ] = None,
    gantt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw when what runs where: .png, .svg or .pdf.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the schedule as a Chrome trace (JSON), for Perfetto.")
    ] = None,
    schedule: Annotated[
        str, typer.Option(metavar="1f1b", help="Of a training plan, for --gantt and --trace: gpipe, 1f1b, interleaved.")
    ] = "1f1b",
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Print the JSON Schema of problem, costs, placement, result, workload, training-plan."
        ),
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
    wanted = {"plot": plot, "gantt": gantt, "trace": trace}
    files = {name: path for name, path in wanted.items() if path is not None}
    if files and view.result is None and view.plan is None:
        raise InvalidFileError(f"{file}: --{next(iter(files))} needs a result; this is another kind of file")
    for name, path in files.items():
        check_writable(path)
        if view.plan is not None:
            draw_plan(name, view.plan, path, schedule)
        elif view.result is not None:
            _WRITERS[name](view.result, path)
    if as_json:
        written = {"files": {name: str(path) for name, path in files.items()}} if files else {}
        print_json({**view.document, **written})
    else:
        lines = [f"wrote {name:<6} {path}" for name, path in files.items()]
        show_parts([*view.parts, *(["", *lines] if lines else [])])


def _draw_result(result: Result, path: Path) -> None:
    from placekit.plotting.plot_result import plot_result
    from placekit.plotting.save import save_figure

    save_figure(plot_result(result), path)


def _draw_schedule(result: Result, path: Path) -> None:
    from placekit.plotting.canvas import figure_of
    from placekit.plotting.plot_schedule import plot_schedule
    from placekit.plotting.save import save_figure

    save_figure(figure_of(plot_schedule(result)), path)


def _write_trace(result: Result, path: Path) -> None:
    from placekit.io.trace import write_trace

    write_trace(result, path)


_WRITERS: Mapping[str, Callable[[Result, Path], None]] = {
    "plot": _draw_result,
    "gantt": _draw_schedule,
    "trace": _write_trace,
}
"""What draws or writes what, by option."""

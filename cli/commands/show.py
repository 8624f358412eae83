"""``placekit show``: look into any file that placekit reads or writes."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import typer
from numpy.typing import NDArray

from placekit.cli.console import check_writable, print_json, tell
from placekit.cli.inputs.answers import problem_file_of
from placekit.cli.inputs.kept_problems import kept_problem
from placekit.cli.inputs.platforms import devices_named
from placekit.cli.inputs.task import read_placed, read_source
from placekit.cli.options import JsonOption
from placekit.cli.output.views import View, view_file
from placekit.cli.parameters import option
from placekit.io.atomic import write_text
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.result_json import read_result
from placekit.io.files.schemas import json_schema
from placekit.io.trace import write_trace
from placekit.model.errors import InvalidFileError, InvalidProblemError, check_names
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.plotting.canvas import figure_of, save_figure
from placekit.plotting.graph_page import graph_page
from placekit.plotting.plot_graph import draw_graph
from placekit.plotting.plot_pipeline import plot_pipeline
from placekit.plotting.plot_schedule import plot_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SCHEMAS = {"training-plan": "placekit.training.plan_json:TrainingPlanModel"}
"""Models of files of a product, by their kind."""


@dataclass(frozen=True)
class Figures:
    """Figures of a file, and traces."""

    panel: ClassVar[str] = "Figures"

    plot: Path | None = option(None, "Draw loads and progress of a result: .png, .svg or .pdf.", "FILE")
    gantt: Path | None = option(None, "Draw the schedule (of a pipeline: a few samples): .png, .svg or .pdf.", "FILE")
    trace: Path | None = option(None, "Write the schedule as a Chrome trace (JSON), for Perfetto.", "FILE")
    graph: Path | None = option(None, "Draw the graph by device: .html (to zoom), .png, .svg or .pdf.", "FILE")
    of: Path | None = option(None, "Model, problem or workload to draw. Default: the file of the same name.", "FILE")
    schedule: str = option("1f1b", "Schedule of a training plan: gpipe, 1f1b or interleaved.", "NAME")

    def draw(self, file: Path, view: View) -> dict[str, Path]:
        """Draw and write the requested figures; return the files by kind."""
        wanted = {"plot": self.plot, "gantt": self.gantt, "trace": self.trace}
        files = {name: path for name, path in wanted.items() if path is not None}
        if files and not view.has_answer:
            raise InvalidFileError(f"{file}: --{next(iter(files))} needs a result; this is another kind of file")
        for name, path in files.items():
            check_writable(path)
            if name == "trace":
                write_trace(view.timed(self.schedule), path)
            else:
                save_figure(self._drawn(name, file, view), path)
        if self.graph is not None:
            check_writable(self.graph)
            _draw_graph(file, self.of, self.graph)
            files["graph"] = self.graph
        return files

    def _drawn(self, what: str, file: Path, view: View) -> Figure:
        """Draw an answer (``plot``), or its schedule (``gantt``)."""
        if what == "plot":
            return view.plot()
        timed = view.timed(self.schedule)
        if timed.objective_name == "throughput":
            return figure_of(plot_pipeline(timed, _graph_of(file, self.of)[0]))
        return figure_of(plot_schedule(timed))


def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Result, placement, problem, workload, costs, platform, training plan or problem, or model."
        ),
    ] = None,
    *,
    figures: Figures,
    schema: str | None = option(
        None, "Print the JSON Schema of problem, costs, placement, result, workload or training-plan.", "KIND"
    ),
    as_json: JsonOption = False,
) -> None:
    """Show a file as tables and bars, as JSON, or as a figure."""
    if schema is not None:
        own = pkgutil.resolve_name(SCHEMAS[schema]) if schema in SCHEMAS else None
        print_json(json_schema(schema) if own is None else own.model_json_schema(by_alias=True))
        return
    if file is None:
        raise InvalidProblemError("show needs a FILE, or --schema KIND")
    check_names("--schedule", [figures.schedule], ("1f1b", "gpipe", "interleaved"))
    view = view_file(file)
    files = figures.draw(file, view)
    written = {"files": {name: str(path) for name, path in files.items()}} if files else {}
    lines = [f"wrote {name:<6} {path}" for name, path in files.items()]
    tell(as_json, {**view.document, **written}, [*view.parts, *(["", *lines] if lines else [])])


def _draw_graph(file: Path, of: Path | None, path: Path) -> None:
    graph, weight = _graph_of(file, of)
    platform = Platform(tuple(Device(name, "device") for name in devices_named(file)))
    placement = read_placed(file, graph, platform)
    if path.suffix.lower() in (".html", ".htm"):
        write_text(path, graph_page(graph, placement, weight, f"{graph.name or file.stem}: {file.name}"))
    else:
        save_figure(figure_of(draw_graph(graph, placement, weight)), path)


def _graph_of(file: Path, of: Path | None) -> tuple[OpGraph, NDArray[np.float64]]:
    """Return the graph of `file`, by default the solved one, and the sizes of its ops."""
    if of is None and kind_of_file(file) == "result":
        kept = kept_problem(read_result(file).problem_hash)
        if kept is not None:
            return kept.graph, kept.costs.op_time_s.min(axis=1)
    path = of or problem_file_of(file)
    kind = kind_of_file(path)
    if kind == "model":
        graph = read_source(path, None).graph
        return graph, graph.op_flops
    problem = problem_of_file(path, kind)
    if problem is None:
        raise InvalidFileError(f"--of {path}: a {kind} file has no graph; give a model, a problem or a workload")
    return problem.graph, problem.costs.op_time_s.min(axis=1)

"""``placekit show``: look into any file that placekit reads or writes."""

from __future__ import annotations

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
from placekit.cli.output.plot_training_plan import plot_training_plan
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
from placekit.plotting.plot_result import plot_result
from placekit.plotting.plot_schedule import plot_schedule
from placekit.solve.result import Result
from placekit.training.plan_json import TrainingPlanModel
from placekit.training.schedule import SCHEDULES, simulate_step, step_as_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        if files and view.result is None and view.plan is None:
            raise InvalidFileError(f"{file}: --{next(iter(files))} needs a result; this is another kind of file")
        if files and view.plan is not None and view.plan.plan is None:
            told = f"{view.plan.problem_name!r} has status {view.plan.status}"
            raise InvalidProblemError(f"{told}: there is no plan to draw")
        for name, path in files.items():
            check_writable(path)
            if name == "trace":
                write_trace(self._timed(view), path)
            else:
                save_figure(self._drawn(name, file, view), path)
        if self.graph is not None:
            check_writable(self.graph)
            _draw_graph(file, self.of, self.graph)
            files["graph"] = self.graph
        return files

    def _drawn(self, what: str, file: Path, view: View) -> Figure:
        """Draw a result or a plan (``plot``), or its schedule (``gantt``)."""
        if view.plan is not None and what == "plot":
            return figure_of(plot_training_plan(view.plan))
        timed = self._timed(view)
        if what == "plot":
            return plot_result(timed)
        if view.plan is None and timed.objective_name == "throughput":
            return figure_of(plot_pipeline(timed, _graph_of(file, self.of)[0]))
        return figure_of(plot_schedule(timed))

    def _timed(self, view: View) -> Result:
        """Return a result, or one step of a plan for as many microbatches as show its pipeline filling and draining."""
        plan = view.plan
        if plan is None:
            assert view.result is not None
            return view.result
        rounds = 2 if self.schedule == "interleaved" else 3
        num_shown = min(plan.num_microbatches, rounds * sum(load.data_degree for load in plan.stages))
        return step_as_result(plan, simulate_step(plan.stages, num_shown, self.schedule))


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
        is_plan = schema == "training-plan"
        print_json(TrainingPlanModel.model_json_schema(by_alias=True) if is_plan else json_schema(schema))
        return
    if file is None:
        raise InvalidProblemError("show needs a FILE, or --schema KIND")
    check_names("--schedule", [figures.schedule], SCHEDULES)
    view = view_file(file)
    files = figures.draw(file, view)
    written = {"files": {name: str(path) for name, path in files.items()}} if files else {}
    lines = [f"wrote {name:<6} {path}" for name, path in files.items()]
    tell(as_json, {**view.document, **written}, [*view.parts, *(["", *lines] if lines else [])])


def _draw_graph(file: Path, of: Path | None, path: Path) -> None:
    """Draw a result or placement on the graph of its problem."""
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

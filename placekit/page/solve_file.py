"""Process that solves one file for the page: ``python -m placekit.page.solve_file``, a JSON object on standard input.

Standard output has a JSON object a line: progress, and at the end the answer or an error. The process ends when its
standard input does.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from placekit.advice.verdict import with_verdict
from placekit.cli.commands.solve import report
from placekit.cli.console import one_line
from placekit.cli.inputs.machine_line import CardsOptions
from placekit.cli.inputs.objectives import ObjectiveChoice
from placekit.cli.inputs.platforms import PlatformChoice
from placekit.cli.inputs.task import Task, TaskOptions, read_task
from placekit.cli.output.verdicts import verdict_lines
from placekit.io.files.detect import kind_of_file
from placekit.io.visible import visible
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.plotting.canvas import figure_of
from placekit.plotting.graph_page import graph_page
from placekit.plotting.plot_pipeline import plot_pipeline
from placekit.plotting.plot_schedule import plot_schedule
from placekit.solve.result import Incumbent, Result
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY_S = 0.1
"""Seconds between two lines of progress, at least."""
MAX_SECONDS = 3600.0
MAX_DRAWN = 20_000
"""Ops of the largest graph that is drawn."""
_WIDTH = 110


class _Progress:
    """Takes the progress of a solve, and tells the newest of it."""

    def __init__(self, out: TextIO, limit_s: float) -> None:
        self._out, self._limit_s, self._told_s = out, limit_s, -1.0

    def __call__(self, line: Incumbent) -> None:
        """Take a line of the trace."""
        if perf_counter() - self._told_s > EVERY_S:
            self._told_s = perf_counter()
            _tell(self._out, {"seconds": line.time_s, "best": line.objective, "bound": line.bound, "of": self._limit_s})


def _tell(out: TextIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


def solved(asked: dict[str, Any], out: TextIO) -> dict[str, Any]:
    """Return the answer to a question: what `placekit solve` prints, and the figures of `placekit show`."""
    path, seconds = Path(asked["file"]), asked.get("seconds") or 60
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
        raise InvalidProblemError(f"seconds is {seconds!r}; it must be more than 0 and at most {MAX_SECONDS:.0f}")
    texts = {key: asked.get(key) or None for key in ("cards", "ram", "processor", "link", "objective")}
    objective = ObjectiveChoice(name=texts.pop("objective"))
    is_model = kind_of_file(path) == "model"
    line = CardsOptions(**texts) if is_model else CardsOptions()
    options = TaskOptions(objective=objective, platform=PlatformChoice(line=line))
    _tell(out, {"seconds": 0.0, "best": None, "bound": None, "of": seconds})
    task = read_task(path, options)
    method = str(asked.get("method") or "auto")
    result = solve(task.problem, method, stop=MaxRuntime(float(seconds)), on_progress=_Progress(out, float(seconds)))
    return _told(task, with_verdict(result, task.problem), path, str(asked["name"]))


def _told(task: Task, result: Result, path: Path, name: str) -> dict[str, Any]:
    parts = report(task, result, verdict_lines(result.verdict, task.problem), {}, details=True)
    answer = {
        "verdict": str(result.status) if result.verdict is None else result.verdict.sentence,
        "text": _text(list(parts)).replace(str(path), name),
        "status": str(result.status), "best": result.objective, "bound": result.lower_bound,
        "seconds": result.runtime_s,
    }  # fmt: skip
    graph, placement = task.problem.graph, result.placement
    if placement is None or graph.num_ops > MAX_DRAWN:
        return answer
    answer["graph"] = graph_page(graph, placement, task.problem.costs.op_time_s.min(axis=1), name)
    is_pipeline = result.objective_name == "throughput"
    if is_pipeline or result.schedule is not None:
        image = BytesIO()
        axes = plot_pipeline(result, graph) if is_pipeline else plot_schedule(result)
        figure_of(axes).savefig(image, format="svg", bbox_inches="tight")
        answer["gantt"] = "data:image/svg+xml;base64," + base64.b64encode(image.getvalue()).decode()
    return answer


def _text(parts: list[RenderableType]) -> str:
    from rich.console import Console

    console = Console(width=_WIDTH, highlight=False, emoji=False, markup=False, no_color=True, file=sys.stderr)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(visible(line.rstrip()) for line in captured.get().splitlines())


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Solve what standard input asks for, and tell it on standard output, which is no library's."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        asked = json.loads(sys.stdin.readline())
        threading.Thread(target=_end_with_input, name="page", daemon=True).start()
        try:
            _tell(out, solved(asked, out))
        except (PlacekitError, MemoryError) as error:
            told = one_line(error).replace(asked["file"], asked["name"])
            told = told.replace(str(Path(asked["file"]).parent), "of the page")
            _tell(out, {"error": told or "out of memory", "field": "file"})
        except Exception as error:  # also a bug is told to the page
            _tell(out, {"error": f"this is a bug of placekit: {type(error).__name__}: {error}", "field": "file"})
        out.flush()
        os._exit(0)  # without waiting for threads of native solvers


if __name__ == "__main__":
    main()

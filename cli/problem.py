"""``placekit problem``: write the problem that ``solve`` would solve."""

from __future__ import annotations

from pathlib import Path

from placekit.cli.console import check_writable, tell
from placekit.cli.options import JsonOption, ProblemArgument, output_option
from placekit.cli.render import fact_lines
from placekit.cli.task import TaskOptions, read_task
from placekit.io.problem_json import write_problem


def problem(
    model: ProblemArgument,
    *,
    asked: TaskOptions,
    output: Path | None = output_option("Problem file (default STEM.problem.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Write the problem of placing a model: graph, devices, costs, objective and limits in one file.

    `placekit solve`, `learn`, `bench` and `explain` take the file like a model, without the model and its devices.
    """
    target = check_writable(output or Path(f"{model.stem}.problem.json"))
    task = read_task(model, asked)
    write_problem(task.problem, target)
    document = task.facts | {"files": {"problem": str(target)}}
    tell(as_json, document, [fact_lines(task.facts), "", fact_lines({"wrote problem": str(target)})])

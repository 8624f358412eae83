"""``placekit explain``: why a placement is as good as it is, and what would change it, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.answers import answered_problem, result_file
from placekit.cli.choices import with_choices
from placekit.cli.options import JsonOption
from placekit.cli.task import TaskOptions
from placekit.cli.train_plan import explain_training

__all__ = ["explain"]


@with_choices
def explain(
    file: Annotated[Path, typer.Argument(help="Result or training plan, as `solve` wrote it.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Argument(help="The model, problem or workload that it is of; needed only where it was not solved here."),
    ] = None,
    *,
    asked: TaskOptions,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For each question that needs a solve; 0: ask none.")
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Say why a result is as good as it is: the bottleneck, cuts, moves, constraints, and what more would bring.

    The problem of a result that was solved here is kept. Of another one give the model, and the options of `solve`
    that shaped the problem; they are checked.
    """
    from placekit.cli.console import print_json, show_parts
    from placekit.cli.explain_words import explanation_parts
    from placekit.cli.progress import StepBar
    from placekit.io.detect import kind_of_file
    from placekit.io.result_json import read_result
    from placekit.solve.explain import explain as explain_answer

    if kind_of_file(file) == "training-plan":
        explain_training(file, model, time_limit, as_json=as_json)
        return
    file = result_file(file)
    result = read_result(file)
    problem = answered_problem(file, result, model, asked)
    with StepBar() as bar:
        found = explain_answer(problem, result, time_limit_s=time_limit, on_step=bar)
    if as_json:
        print_json(found.to_dict())
    else:
        show_parts(explanation_parts(found))

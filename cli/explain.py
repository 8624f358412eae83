"""``placekit explain``: explain a placement in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.answers import answered_problem, result_file
from placekit.cli.console import print_json, print_line, show_parts
from placekit.cli.explain_words import explanation_parts
from placekit.cli.options import JsonOption, QuestionArgument
from placekit.cli.parameters import SEARCH, option
from placekit.cli.progress import StepBar
from placekit.cli.task import TaskOptions
from placekit.io.detect import kind_of_file
from placekit.io.result_json import read_result
from placekit.model.errors import InvalidProblemError
from placekit.solve.explain import explain as explain_answer
from placekit.solve.stop import MaxRuntime

__all__ = ["explain"]


def explain(
    file: Annotated[Path, typer.Argument(help="Result, placement or training plan (.json).", show_default=False)],
    model: QuestionArgument = None,
    *,
    asked: TaskOptions,
    time_limit: float = option(2.0, "Time for each question that needs a solve; 0 asks none.", "SECONDS", panel=SEARCH),
    as_json: JsonOption = False,
) -> None:
    """Explain a result: bottleneck, cuts, moves, constraints, and what each device, or one more, brings.

    placekit keeps the problem of every result that was solved on this machine. For other results give the model, and
    the options of `placekit solve` that shaped the problem; both are checked.
    """
    if kind_of_file(file) == "training-plan":
        _explain_training(file, model, time_limit, as_json=as_json)
        return
    file = result_file(file)
    result = read_result(file)
    problem = answered_problem(file, result, model, asked)
    with StepBar() as bar:
        found = explain_answer(problem, result, time_limit_s=time_limit, on_step=bar)
    if as_json:
        print_json(found.to_dict())
    else:
        show_parts(explanation_parts(found, problem))


def _explain_training(plan: Path, source: Path | None, time_limit_s: float, *, as_json: bool) -> None:
    """Explain a training plan; `source` is its problem file or named transformer.

    Machine and batch are those of the plan; questions are asked without restrictions.
    """
    from placekit.cli.train_plan import TrainingOptions, read_training
    from placekit.solvers.training_plan.solve import solve_plan
    from placekit.training.evaluate import evaluate_plan
    from placekit.training.explain import explain_plan
    from placekit.training.plan_json import read_plan

    result = read_plan(plan)
    if source is None:
        raise InvalidProblemError(f"{plan}: give the file or the transformer that it plans after it")
    problem, _ = read_training(source, TrainingOptions())
    problem = problem.replace(
        num_devices=result.num_devices,
        memory_bytes=result.memory_bytes,
        bandwidth_bytes_per_s=result.bandwidth_bytes_per_s,
        num_microbatches=result.num_microbatches,
    )
    if result.plan is not None:
        judged = evaluate_plan(problem, result.plan)
        if judged.objective is None or abs(judged.objective - (result.objective or 0.0)) > 1e-9 * judged.objective:
            raise InvalidProblemError(f"{plan}: it is no plan of {source}: the judge says {judged.objective} s for it")
    stop = MaxRuntime(time_limit_s)
    told = explain_plan(problem, result, (lambda p: solve_plan(p, stop=stop)) if time_limit_s > 0 else None)
    if as_json:
        print_json({"plan": str(plan), "explanation": told})
    else:
        for line in told:
            print_line(f"- {line}")

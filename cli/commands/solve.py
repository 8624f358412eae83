"""``placekit solve``: read, cost, solve, print, write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import typer
from rich.console import RenderableType
from rich.text import Text

from placekit.advice.verdict import with_verdict
from placekit.cli.console import tell
from placekit.cli.inputs.kept_problems import AT_ONCE_UP_TO
from placekit.cli.inputs.task import Task, TaskOptions, read_placed, read_task, read_tasks
from placekit.cli.options import DetailsOption, JsonOption, ProblemArgument, SearchOptions, exit_code, output_option
from placekit.cli.output.facts import SHAPES_OPEN
from placekit.cli.output.files import OutputFiles, file_facts
from placekit.cli.output.progress import SolveLine
from placekit.cli.output.render import (
    NUM_STAGES,
    choice_lines,
    fact_lines,
    paragraphs,
    result_lines,
    single_device_table,
)
from placekit.cli.output.verdicts import all_cores_problem, answer_lines
from placekit.cli.parameters import OUTPUT, SEARCH, option
from placekit.io.readers import is_model
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.solve.registry import get_method, why_not_served
from placekit.solve.result import Result
from placekit.solve.solve import finishing
from placekit.solve.solve import solve as solve_problem

DETAILS = ("file", "model", "inputs", "work")
"""Facts of a task that `--details` prints."""
WRITE_S_PER_OP = 2e-5
"""Set aside of the limit for writing the answer; a core that does nothing else takes about half of it."""


@dataclass(frozen=True)
class SolveOptions:
    """Options that `solve` alone has."""

    panel: ClassVar[str] = SEARCH

    warm_start: Path | None = option(None, "Placement or result to start from.", "FILE")
    output: Path | None = output_option("Placement file; the result goes beside it. `-` is standard output.")
    certificate: bool = option(False, "Write the proof of the bound into the result.", panel=OUTPUT)
    mps: Path | None = option(None, "Write the program of the method ilp as MPS.", "FILE", panel=OUTPUT)


def solve(
    model: ProblemArgument,
    *,
    search: SearchOptions,
    asked: TaskOptions,
    more: SolveOptions,
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Place the ops of a model on devices, and say how good the placement is."""
    params = search.params | ({"mps": str(more.mps)} if more.mps else {})
    get_method(search.method, params, asked.objective.name)  # a misspelt name should not wait for a profile
    if asked.objective.name is not None:
        asked.objective.objective()
    _refuse_unserved(search.method, asked.objective.name or "throughput", model)
    search.stop()  # neither should a bad limit
    files = OutputFiles.of(model, more.output)
    run = _solve_best_cut if asked.platform.is_open else _solve_one
    task, whole, result = run(model, asked, search, params, more.warm_start)
    with finishing():
        result = _with_num_stages(with_verdict(result, task.problem, whole), task.problem)
        written = files.write(result, task.problem, certificate=more.certificate)
    answer = [*answer_lines(result.verdict, task.problem), *_next_lines(model, result, written)]
    document = result.to_dict() | {"files": written} if as_json else {}  # takes a tenth of a second of 100,000 ops
    tell(as_json, document, report(task, result, answer, written, details=details))
    raise typer.Exit(exit_code(result.placement, result.status))


def _next_lines(model: Path, result: Result, written: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield the command that exports the placement of a model, if the verdict advises this placement."""
    told = result.verdict
    if told is None or told.choice not in ("split", "copies") or "result" not in written:
        return
    is_mine = told.chosen is None or told.chosen.objective_s == told.objective
    if is_mine and is_model(model):
        yield Text(f"Next: `placekit export {model} {written['placement']}` with the same devices.", style="dim")


def _refuse_unserved(method: str, objective: str, path: Path) -> None:
    """Say before minutes of measuring that a method does not serve the objective of a model."""
    why_not = why_not_served(method, objective) if is_model(path) else None
    if why_not is not None:
        raise UnsupportedProblemError(f"method {method!r} cannot solve {path}: {why_not}")


def _solve_one(
    model: Path, asked: TaskOptions, search: SearchOptions, params: Mapping[str, object], warm_start: Path | None
) -> tuple[Task, Problem | None, Result]:
    """Return the problem of a file, the same on all cores as one device, and its result."""
    begin_s, spent_s = perf_counter(), 0.0
    task = read_task(model, asked)
    if not is_model(model):  # reading the file and writing the answer are part of the limit
        spent_s = perf_counter() - begin_s + WRITE_S_PER_OP * task.problem.graph.num_ops
    start = read_placed(warm_start, task.problem.graph, task.problem.platform) if warm_start else None
    if start is not None:
        start.require_teams(task.problem)
    whole = all_cores_problem(model, asked, task.problem)
    with SolveLine(search.time_limit) as line:
        result = solve_problem(
            task.problem, search.method, stop=search.stop(spent_s), seed=search.seed, params=params, warm_start=start,
            on_progress=line,
        )  # fmt: skip
    return task, whole, result


def _solve_best_cut(
    model: Path, asked: TaskOptions, search: SearchOptions, params: Mapping[str, object], warm_start: Path | None
) -> tuple[Task, Problem | None, Result]:
    """Return the best way of cutting the cores into groups, the cores as one device, and the result."""
    from placekit.solvers.sequence.choice import solve_best

    if warm_start is not None:
        raise InvalidProblemError("--warm-start and --groups auto: a start is for one way of cutting the cores")
    tasks = read_tasks(model, asked)
    problems = {name: each.problem for name, each in tasks.items()}
    with SolveLine(search.time_limit) as line:
        chosen, result = solve_best(
            problems, search.method, stop=search.stop(), seed=search.seed, params=params, on_progress=line
        )
    whole = next((each.problem for each in tasks.values() if each.problem.platform.num_devices == 1), None)
    is_whole = whole is tasks[chosen].problem
    return tasks[chosen], None if is_whole else whole, result


def _with_num_stages(result: Result, problem: Problem) -> Result:
    """Return `result` with the number of stages of its placement in ``info``, if it runs in stages.

    A training graph does not: there every device has its turn in both passes. Neither do graphs of more than
    `AT_ONCE_UP_TO` ops.
    """
    if result.placement is None or problem.graph.is_backward.any() or problem.graph.num_ops > AT_ONCE_UP_TO:
        return result
    from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages

    stages = few_stages(problem.graph, result.placement.device_of_op, problem.colocation)
    num_stages = int(stages.max(initial=NO_STAGE)) + 1
    return replace(result, info={**result.info, NUM_STAGES: num_stages})


def report(
    task: Task, result: Result, answer: Iterable[RenderableType], written: Mapping[str, str], *, details: bool
) -> Iterator[RenderableType]:
    """Return the report of a result: answer, files by kind, loads and evidence, single devices, and the task."""
    left_out = () if details else DETAILS
    facts = {name: told for name, told in task.facts.items() if name not in left_out or SHAPES_OPEN in told}
    yield from paragraphs(
        answer,
        fact_lines(file_facts(written)),
        result_lines(result, with_stages=details),
        choice_lines(result) if "compared" in result.info else None,
        None if result.placement is None else single_device_table(task.problem, result),
        fact_lines(facts),
    )

"""``placekit explain``: why a placement is as good as it is, and what would change it, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.objectives import (
    CallsOption,
    ContentionOption,
    ContiguityOption,
    ObjectiveChoice,
    ObjectiveOption,
    OrderOption,
    OverlapOption,
    ScheduleOption,
    SubgraphCostOption,
    TeamsOption,
)
from placekit.cli.options import (
    CostsOption,
    DevicesOption,
    GroupsOption,
    JsonOption,
    MemoryHeadroomOption,
    MemoryModelOption,
    MemoryOption,
    PinOption,
    PlatformOption,
    PrecisionOption,
    ShapeOption,
)
from placekit.cli.platforms import PlatformChoice
from placekit.cli.task import TaskOptions, read_task
from placekit.cli.train_plan import explain_training
from placekit.errors import InvalidFileError

if TYPE_CHECKING:
    from placekit.result import Result

__all__ = ["explain", "objective_of", "problem_file_of"]


def explain(
    file: Annotated[Path, typer.Argument(help="Result or training plan, as `solve` wrote it.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Argument(help="The model, problem or workload that it is of; by default the one with the same name."),
    ] = None,
    objective: ObjectiveOption = None,
    contiguity: ContiguityOption = None,
    overlap: OverlapOption = None,
    schedule: ScheduleOption = None,
    subgraph_cost: SubgraphCostOption = None,
    calls: CallsOption = None,
    order: OrderOption = None,
    contention: ContentionOption = None,
    teams: TeamsOption = None,
    costs: CostsOption = None,
    device: DevicesOption = None,
    platform: PlatformOption = None,
    groups: GroupsOption = None,
    precision: PrecisionOption = None,
    shape: ShapeOption = None,
    memory: MemoryOption = None,
    memory_model: MemoryModelOption = None,
    memory_headroom: MemoryHeadroomOption = None,
    pin: PinOption = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For each question that needs a solve; 0: ask none.")
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Say why a result is as good as it is: the bottleneck, cuts, moves, constraints, and what more would bring.

    A result does not hold the problem: options of `solve` that shaped it have to be given again, and are checked.
    """
    from placekit.cli.console import print_json, show_parts
    from placekit.cli.explain_words import explanation_parts
    from placekit.cli.progress import StepBar
    from placekit.explain import explain as explain_answer
    from placekit.io.detect import kind_of_file
    from placekit.io.result_json import read_result

    if kind_of_file(file) == "training-plan":
        explain_training(file, model, time_limit, as_json=as_json)
        return
    result = read_result(file)
    choice = ObjectiveChoice(
        objective or objective_of(result, model or problem_file_of(file)),
        contiguity, overlap, schedule, subgraph_cost, calls, order, contention, teams,
    )  # fmt: skip
    devices = PlatformChoice(device, platform, groups, precision).of_answer(file)
    options = TaskOptions(choice, devices, costs, shape, pin, memory, memory_model, memory_headroom)
    task = read_task(model or problem_file_of(file), options)
    with StepBar() as bar:
        found = explain_answer(task.problem, result, time_limit_s=time_limit, on_step=bar)
    if as_json:
        print_json(found.to_dict())
    else:
        show_parts(explanation_parts(found))


def objective_of(result: Result, source: Path) -> str | None:
    """Return the result's objective, unless the file has one of its own, with its variant, that is the same."""
    from placekit.io.detect import kind_of_file
    from placekit.io.problem_json import read_problem

    if kind_of_file(source) == "problem" and read_problem(source).objective.name == result.objective_name:
        return None
    return result.objective_name


def problem_file_of(result: Path) -> Path:
    """Return the file with the same name that a result can be of, from its folder or the current one.

    Raises
    ------
    InvalidFileError
        There is none.
    """
    stem = result.name.removesuffix(".json").removesuffix(".result")
    names = [f"{stem}{suffix}" for suffix in (".problem.json", ".workload.json", ".xml", ".onnx", ".json")]
    candidates = [folder / name for folder in (result.parent, Path()) for name in names]
    for path in candidates:
        if path.is_file() and path.resolve() != result.resolve() and _is_problem(path):
            return path
    raise InvalidFileError(
        f"{result}: no problem or model of the same name ({', '.join(names)}) beside it; give it after the result"
    )


def _is_problem(path: Path) -> bool:
    from placekit.io.detect import kind_of_file

    return kind_of_file(path) in ("model", "problem", "workload")

"""``placekit explain``: why a placement is as good as it is, and what would change it, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.answers import answered_problem, result_file
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
from placekit.cli.task import TaskOptions
from placekit.cli.train_plan import explain_training

__all__ = ["explain"]


def explain(
    file: Annotated[Path, typer.Argument(help="Result or training plan, as `solve` wrote it.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Argument(help="The model, problem or workload that it is of; needed only where it was not solved here."),
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

    The problem of a result that was solved here is kept. Of another one give the model, and the options of `solve`
    that shaped the problem; they are checked.
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
    file = result_file(file)
    result = read_result(file)
    choice = ObjectiveChoice(objective, contiguity, overlap, schedule, subgraph_cost, calls, order, contention, teams)
    devices = PlatformChoice(device, platform, groups, precision)
    asked = TaskOptions(choice, devices, costs, shape, pin, memory, memory_model, memory_headroom)
    problem = answered_problem(file, result, model, asked)
    with StepBar() as bar:
        found = explain_answer(problem, result, time_limit_s=time_limit, on_step=bar)
    if as_json:
        print_json(found.to_dict())
    else:
        show_parts(explanation_parts(found))

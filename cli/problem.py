"""``placekit problem``: what ``solve`` would solve, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.objectives import ContiguityOption, ObjectiveChoice, ObjectiveOption, TeamsOption
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
    output_option,
)
from placekit.cli.platforms import PlatformChoice
from placekit.cli.task import TaskOptions, read_task

__all__ = ["problem"]


def problem(
    model: Annotated[Path, typer.Argument(help="Model (.xml, .onnx, .pt2) or workload (.json).", show_default=False)],
    objective: ObjectiveOption = None,
    contiguity: ContiguityOption = None,
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
    output: Annotated[
        Path | None,
        output_option("Problem file (default STEM.problem.json); - for stdout."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the problem of placing a model: graph, devices, costs, objective and limits in one file.

    ``solve``, ``learn``, ``bench`` and ``explain`` take it like a model, without the model and without its devices.
    """
    from placekit.cli.console import check_writable, print_json, show_parts
    from placekit.cli.render import fact_lines
    from placekit.io.problem_json import write_problem

    target = output or Path(f"{model.stem}.problem.json")
    check_writable(target)
    choice = ObjectiveChoice(objective, contiguity, teams=teams)
    devices = PlatformChoice(device, platform, groups, precision)
    task = read_task(model, TaskOptions(choice, devices, costs, shape, pin, memory, memory_model, memory_headroom))
    write_problem(task.problem, target)
    if as_json:
        print_json(task.facts | {"files": {"problem": str(target)}})
    else:
        show_parts([fact_lines(task.facts), "", fact_lines({"wrote problem": str(target)})])

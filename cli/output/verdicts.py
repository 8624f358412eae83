"""The verdict that a command begins with, and the option that gives the advised placement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from placekit.advice.alternatives import WITH_PINNED
from placekit.cli.inputs.task import TaskOptions, read_task
from placekit.io.files.detect import kind_of_file
from placekit.model.device_groups import members_of
from placekit.model.errors import PlacekitError
from placekit.model.problem import Problem
from placekit.solve.split_verdict import Verdict


def all_cores_problem(path: Path, options: TaskOptions, problem: Problem) -> Problem | None:
    """Return the model in `path` on one device of all cores that the devices of `problem` have.

    None unless these are several groups of cores whose costs are measured here. Measuring the one device more is what a
    first solve of a model takes longer; later ones find it in the cache. Limits and pins are for the devices that there
    are, so nothing is compared where any are given.
    """
    is_measured = options.costs in (None, "profiled") and not (options.memory or options.pins)
    if not is_measured or kind_of_file(path) != "model":
        return None
    from placekit.cost_models.openvino.devices import all_cores_of

    with suppress(PlacekitError):
        whole = all_cores_of(problem.platform)
        return None if whole is None else read_task(path, options, platform=whole).problem
    return None


def verdict_lines(told: Verdict | None, problem: Problem | None = None) -> Iterator[RenderableType]:
    """Yield the sentence of a verdict, and the option that gives the advised placement if it differs.

    Without a problem, which says what its objective allows, nothing can be solved again.
    """
    if told is None:
        return
    line = Text("verdict  ", style="bold")
    line.append(told.sentence, style="default not bold")
    yield line
    how = None if problem is None else _option_for(told, problem)
    if how is not None:
        yield Text(f"         Solve with `{how}` for that.", style="dim")


def answer_lines(told: Verdict | None, problem: Problem | None = None) -> Iterator[RenderableType]:
    """Yield the answer that a command begins with: the sentence of a verdict; then the option that makes it true."""
    if told is None:
        return
    yield Text(told.sentence, style="bold")
    how = None if problem is None else _option_for(told, problem)
    if how is not None:
        yield Text(f"Solve with `{how}` for that.", style="dim")


def _option_for(told: Verdict, problem: Problem) -> str | None:
    """Return the option of `solve` that gives the advised placement; None if the result has it already."""
    chosen = told.chosen
    if chosen is None or chosen.objective_s == told.objective:
        return None
    if told.choice == "device":
        return None if WITH_PINNED in chosen.name else f"--method single:{told.use}"
    if told.choice == "all cores":
        return "--groups 1"
    if told.choice == "copies":
        members = members_of(chosen.name, problem.platform.device_names)
        is_equal = len({problem.platform.devices[each].kind for each in members}) == 1
        rule = "equal" if is_equal else "any"
        return None if problem.objective.team_rule in (rule, "any") else f"--teams {rule}"
    return None

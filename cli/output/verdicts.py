"""The verdict at the end of a command, with the option that gives the advised placement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from placekit.advice.alternatives import WITH_PINNED, form_of
from placekit.advice.verdict import verdict
from placekit.cli.inputs.task import TaskOptions, read_task
from placekit.io.files.detect import kind_of_file
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.model.teams import members_of
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import Result, Status
from placekit.solve.split_verdict import Verdict
from placekit.solve.stop import StopReason


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


def with_verdict(result: Result, problem: Problem, whole: Problem | None = None) -> Result:
    """Return `result` with its verdict, and with a simpler placement if that is exactly as good.

    A solver stops at the first optimal placement that it meets, which may split a model for nothing.
    """
    told = verdict(problem, result, whole)
    simpler = _as_good(result, problem, told)
    if simpler is None:
        return replace(result, verdict=told)
    judged = evaluate(problem, simpler)
    schedule = None if judged.score is None else judged.score.schedule
    found = {"objective": judged.objective, "device_loads": judged.device_loads, "schedule": schedule}
    result = replace(result, placement=simpler, **found)  # type: ignore[arg-type]  # fields by name
    if result.gap is not None and result.gap <= result.tolerance:
        result = replace(result, status=Status.OPTIMAL, stop_reason=StopReason.PROVED)
    return replace(result, verdict=verdict(problem, result, whole))


def _as_good(result: Result, problem: Problem, told: Verdict) -> Placement | None:
    """Return the placement that a verdict advises, if that is simpler than the result's and no worse."""
    mine, objective, chosen = result.placement, result.objective, told.chosen
    if mine is None or objective is None or chosen is None or chosen.form == form_of(mine):
        return None
    if chosen.placement is None or chosen.placement.device_names != mine.device_names:
        return None
    judged = evaluate(problem, chosen.placement)
    if not judged.is_feasible or judged.objective is None:
        return None
    return chosen.placement if (result.lower_bound or 0.0) <= judged.objective <= objective else None


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

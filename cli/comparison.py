"""Times of every single device: the baseline that a placement has to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placekit.cli.render import plain_table
from placekit.cli.units import format_ms, format_time
from placekit.model.placement import Placement
from placekit.objectives.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from placekit.model.problem import Problem
    from placekit.solve.result import Result

__all__ = ["choice_lines", "single_device_evaluations", "single_device_table"]


def single_device_evaluations(problem: Problem) -> dict[str, Evaluation]:
    """Return the judge's word on everything on one device, by device; one device for every kind."""
    platform = problem.platform
    first = [platform.devices_of_kind(kind)[0] for kind in range(len(platform.kinds))]
    return {
        platform.device_names[device]: evaluate(
            problem, Placement.of(problem, np.full(problem.graph.num_ops, device, dtype=np.int64))
        )
        for device in first
    }


def choice_lines(result: Result) -> Iterator[RenderableType]:
    """Return the compared ways to cut the CPU, and the speedup of the best."""
    table = plain_table("compared", "ms", "at least", "time")
    table.add_column("", overflow="fold")
    for each in result.info["compared"]:
        table.add_row(
            each["name"],
            format_ms(each["objective_s"]),
            format_ms(each["bound_s"]),
            format_time(round(each["runtime_s"], 3)),
            each["status"],
        )
    yield table
    mine = next((each for each in result.info["compared"] if each["objective_s"] == result.objective), None)
    others = [each for each in result.info["compared"] if each is not mine and each["status"] != "infeasible"]
    if mine is None or not result.objective:
        return
    if not others:
        yield f"best: {mine['name']}, the only one that is feasible"
        return
    known = [each["bound_s"] if each["objective_s"] is None else each["objective_s"] for each in others]
    if None in known:
        yield f"best: {mine['name']}"
        return
    second = int(np.argmin(known))
    at_least = "at least " if others[second]["objective_s"] is None else ""
    yield f"best: {mine['name']}, {at_least}{known[second] / result.objective:.3g}x as fast as {others[second]['name']}"


def single_device_table(problem: Problem, result: Result) -> Table:
    """Return the time of each single device with the speedup of the result, or the constraint that it breaks."""
    table = plain_table("everything on", "ms", "speedup")
    table.add_column("", overflow="fold")
    for device, evaluation in single_device_evaluations(problem).items():
        single, placed = evaluation.objective, result.objective
        speedup = f"{single / placed:.3g}x" if single is not None and placed else "-"
        broken = evaluation.violations
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        note = f"not feasible: {broken[0]}{more}" if broken else ""
        table.add_row(device, format_ms(single), speedup, note)
    return table

"""The best placement of a problem, in pictures: graph by device, loads, schedule, and who was how good when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placekit.benchmarks.report.figures import inline_svg, plot_anytime
from placekit.benchmarks.report.groups import Group
from placekit.io.problem_json import read_problem
from placekit.io.reading import inside
from placekit.model.errors import InvalidFileError
from placekit.model.placement import Placement
from placekit.objectives.evaluate import evaluate
from placekit.plotting.canvas import figure_of
from placekit.plotting.plot_graph import plot_graph
from placekit.plotting.plot_loads import plot_loads
from placekit.plotting.plot_schedule import plot_schedule
from placekit.solve.result import SOLVER_TOLERANCE, Incumbent, Result, Status
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from placekit.benchmarks.store import Row
    from placekit.model.problem import Problem

__all__ = ["Picture", "best_result", "pictures"]

MAX_EVENTS = 3000
"""Schedules of more events would fill the page with bars too thin to see."""


@dataclass(frozen=True)
class Picture:
    """A figure with its caption."""

    caption: str
    svg: str


def pictures(group: Group, results: Path) -> tuple[Picture, ...]:
    """Return the pictures of a problem; where the best row has no placement only what was proven over time.

    Raises
    ------
    InvalidFileError
        The problem file is missing or broken, or the judge does not confirm the row.
    """
    over_time = []
    if group.bound_s is not None:
        svg = inline_svg(figure_of(plot_anytime([group])), f"gap over time {group.address}")
        over_time.append(Picture("Gap to the best proven bound over time, every method", svg))
    if group.best is None or group.best.get("device_of_op") is None:
        return tuple(over_time)
    problem = read_problem(inside(results, group.best["problem_file"], f"row {group.best['case']}"))
    result = best_result(group, group.best, problem)
    assert result.placement is not None  # the best row has one
    by = f"Best placement ({group.best['shown']}, seed {result.seed}): every op in the colour of its device"
    figures = {by: plot_graph(problem, result.placement), "Load of every device": plot_loads(result)}
    if result.schedule is not None and len(result.schedule) <= MAX_EVENTS:
        figures["What runs when"] = plot_schedule(result)
    found = []
    for caption, axes in figures.items():
        axes.set_title("")  # the caption says it
        found.append(Picture(caption, inline_svg(figure_of(axes), f"{caption} {group.address}")))
    return (*found, *over_time)


def best_result(group: Group, row: Row, problem: Problem) -> Result:
    """Return a row's result anew, scored by the judge, with the best bound of all methods.

    Raises
    ------
    InvalidFileError
        The judge does not confirm the row: the problem file is not the one that the row was made from.
    """
    steps = None if row.get("step_of_op") is None else np.array(row["step_of_op"])
    if len(row["device_of_op"]) != problem.graph.num_ops:
        raise InvalidFileError(
            f"{row['problem_file']}: {problem.graph.num_ops} ops, row {row['case']} has another number"
        )
    placement = Placement.of(problem, np.array(row["device_of_op"]), steps, row.get("team_of_device"))
    judged = evaluate(problem, placement)
    objective = judged.objective
    if objective is None or not np.isclose(objective, row["objective_s"], rtol=SOLVER_TOLERANCE, atol=0.0):
        raise InvalidFileError(
            f"{row['problem_file']}: the judge says {objective} s, row {row['case']} says {row['objective_s']} s"
        )
    bound = None if group.bound_s is None else min(group.bound_s, objective)
    return Result(
        method=row["shown"],
        objective_name=row["objective"],
        problem_name=row["model"],
        status=Status(row["status"]),
        stop_reason=StopReason(row["stop_reason"]),
        placement=placement,
        objective=objective,
        lower_bound=bound,
        bound_name=None if group.bound is None else group.bound[1],
        device_loads=judged.device_loads,
        violations=judged.violations,
        trace=tuple(Incumbent(*line) for line in row["trace"]),
        runtime_s=row["runtime_s"],
        evaluations=row["evaluations"],
        seed=row["seed"],
        schedule=None if judged.score is None else judged.score.schedule,
    )

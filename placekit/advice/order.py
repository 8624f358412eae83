"""Loss of a plan where the runtime takes no order of ops."""

from __future__ import annotations

from dataclasses import replace

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.model.sizes import format_seconds
from placekit.objectives.evaluate import evaluate


def order_note(problem: Problem, placement: Placement) -> str | None:
    """Say what a placement with steps takes in a runtime that takes none; None where no order is at stake."""
    if placement.step_of_op is None or problem.objective.name != "makespan":
        return None
    planned = evaluate(problem, placement).objective
    without = evaluate(problem, replace(placement, step_of_op=None)).objective
    if planned is None or without is None:
        return None
    if without <= planned:
        return "left to the runtime, which costs nothing here"
    return (
        f"left to the runtime: {format_seconds(without)} by its rule, not the {format_seconds(planned)} of the plan; "
        "`--steps none` plans for that"
    )

"""The verdict of a plan for a language model."""

from __future__ import annotations

from dataclasses import replace

from placekit.advice.verdict import verdict
from placekit.cli.output.verdicts import with_verdict
from placekit.language.planning.plan import ServingPlan, first_card
from placekit.language.report import serving_report


def settled(plan: ServingPlan) -> ServingPlan:
    """Return a plan with its verdict: a simpler placement that is exactly as good is told with what it delivers.

    With the phases apart, or with experts on the host, no single device is a plan. Costs of steps that the first card
    computes for the host hold for cards of one kind only.
    """
    task, found = plan.task, plan.result
    if task.undivided is not None or task.hosted_blocks:
        return plan
    result = with_verdict(found, task.problem)
    if task.first_kind is not None and first_card(task, result.placement) not in (None, task.first_kind):
        return replace(plan, result=replace(found, verdict=verdict(task.problem, found)))
    report = None if result.placement is None else serving_report(task, result.placement)
    return replace(plan, result=result, report=report)

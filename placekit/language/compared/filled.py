"""The speed of a plan with its cache full."""

from __future__ import annotations

from dataclasses import replace

from placekit.language.planning.experts import with_hosted_cache
from placekit.language.planning.plan import ServingPlan, as_computed
from placekit.language.report import ServingReport, serving_report
from placekit.language.task import LanguageTask
from placekit.model.errors import InvalidProblemError


def filled_report(plan: ServingPlan, task: LanguageTask) -> ServingReport | None:
    """Return what the placement of a plan delivers for another task of its model, under the rules of the plan."""
    placement, like = plan.result.placement, plan.task
    assert placement is not None
    ruled: LanguageTask | None = task if not like.host_cache_bytes else with_hosted_cache(task, like.offload_tokens)
    if ruled is None:
        return None
    ruled = replace(ruled, overlaps_prompt=like.overlaps_prompt, buffers=like.buffers)
    try:
        ruled = as_computed(ruled, placement, like.offload_tokens, like.hosted_blocks)
    except InvalidProblemError:  # the host lacks memory
        return None
    return serving_report(ruled, placement)

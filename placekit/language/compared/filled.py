"""The speed of a plan with its cache full."""

from __future__ import annotations

from dataclasses import replace

from placekit.language.planning.experts import with_hosted_cache, with_hosted_experts
from placekit.language.planning.offload import with_offload
from placekit.language.planning.plan import ServingPlan, first_card
from placekit.language.report import ServingReport, serving_report
from placekit.language.task import LanguageTask


def filled_report(plan: ServingPlan, task: LanguageTask) -> ServingReport | None:
    """Return what the placement of a plan delivers for another task of its model, under the rules of the plan."""
    placement, like = plan.result.placement, plan.task
    assert placement is not None
    ruled: LanguageTask | None = task if not like.host_cache_bytes else with_hosted_cache(task, like.offload_tokens)
    if ruled is None:
        return None
    ruled = replace(ruled, overlaps_prompt=like.overlaps_prompt, buffers=like.buffers)
    if like.offload_tokens is not None and (kind := first_card(like, placement)) is not None:
        ruled = with_offload(ruled, kind, like.offload_tokens)
    if ruled is not None and like.hosted_blocks:
        ruled = with_hosted_experts(ruled, like.hosted_blocks)
    return None if ruled is None else serving_report(ruled, placement)

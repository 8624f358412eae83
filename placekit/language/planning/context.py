"""The longest context that fits, and the fastest plan at every length on the way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from placekit.language.gguf.buffers import CONTEXT_STEP, COPIES
from placekit.language.planning.plan import ServingPlan
from placekit.language.serving import MAX_TOKENS, Serving
from placekit.language.task import LanguageTask
from placekit.model.errors import NoRoomError
from placekit.solvers.chain.method import is_feasible_chain

NUM_POINTS = 4

Cases = Callable[[Serving], "list[LanguageTask]"]
"""From what is served to the problems of which one must have an answer."""


@dataclass(frozen=True)
class ContextPoint:
    """The fastest plan that has room for `context` tokens of every sequence."""

    context: int
    plan: ServingPlan


def longest_context(cases: Cases, serving: Serving) -> int | None:
    """Return the largest context for which one of the cases has a plan that fits; None if the present one has none.

    It is a whole number of steps, as `rounded` says. Memory grows with the context, so what fits with a long one fits
    with a short one. Scaling the cache that is known at one length finds a candidate without making the model anew; it
    is then checked, and so is its successor. Where layers stop growing (sliding windows) the candidate is too short,
    and the search goes on from there; where it is too long, it halves what is left. The context of `serving` is the
    least one, and what the model was trained for is the largest.
    """
    low, made = serving.context, _with_blocks(cases, serving)
    if not any(_fits(task, 1.0) for task in made):
        return None
    most, has_failed = max(low, trained_tokens(made[0])), False  # the largest that may fit; whether it was a candidate
    while low < most:
        if has_failed:
            guess = (low + most) // 2
        else:
            guess = _longest_scaled([task for task in made if _fits(task, 1.0)], low, most)
        guess = rounded(guess, low, most)
        if guess <= low:
            guess = min((low // CONTEXT_STEP + 1) * CONTEXT_STEP, most)
        longer = _with_blocks(cases, replace(serving, context=guess))
        if any(_fits(task, 1.0) for task in longer):
            low, made = guess, longer
        else:
            most, has_failed = max((guess - 1) // CONTEXT_STEP * CONTEXT_STEP, low), True
    return low


def _with_blocks(cases: Cases, serving: Serving) -> list[LanguageTask]:
    """Return the cases whose caches stay with their blocks; none where activations alone do not fit."""
    try:
        return [task for task in cases(serving) if not task.host_cache_bytes]
    except NoRoomError:
        return []


def trained_tokens(task: LanguageTask) -> int:
    """Return the longest sequence that the model of a task was trained for; `MAX_TOKENS` if nothing says so."""
    told = None if task.description is None else task.description.trained_tokens
    return MAX_TOKENS if told is None else min(told, MAX_TOKENS)


def _longest_scaled(tasks: list[LanguageTask], context: int, most: int) -> int:
    """Return the largest context that fits if all caches grow with it, up to `most`."""
    low, high = context, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if any(_fits(task, middle / context) for task in tasks):
            low = middle
        else:
            high = middle
    return low


def _fits(task: LanguageTask, growth: float) -> bool:
    """Return whether some chain of the task's problem fits if its cache is `growth` times as large."""
    costs = task.problem.costs
    more = (growth - 1.0) * task.serving.sequences * task.cache_bytes
    return is_feasible_chain(task.problem.replace(costs=costs.replace(op_memory_bytes=costs.op_memory_bytes + more)))


def context_points(
    plan_at: Callable[[Serving], ServingPlan], cases: Cases, serving: Serving, fastest: ServingPlan
) -> Iterator[ContextPoint]:
    """Yield plans from the fastest one to the one with the longest context, each with the cache filled to its context.

    `plan_at` gives the best plan for what is served; `fastest` is that of `serving`, with the least context.
    """
    longest = longest_context(cases, serving)
    if longest is None or fastest.report is None:
        return
    longest = rounded(longest, serving.context, trained_tokens(cases(serving)[0]))
    first = max(serving.context, min(longest, _room(fastest)))
    lengths = {rounded(int(each), first, longest) for each in np.geomspace(first, longest, NUM_POINTS).round()}
    for context in sorted({*lengths, longest}):
        plan = plan_at(replace(serving, context=context).filled)
        if plan.report is not None:
            yield ContextPoint(context, plan)


def rounded(context: int, least: int, most: int) -> int:
    """Return a context rounded down to whole steps, unless it is the least or the most that is asked for.

    Examples
    --------
    >>> rounded(20_000, 640, 131_072), rounded(700, 640, 131_072), rounded(40_001, 640, 40_001)
    (19968, 640, 40001)
    """
    return context if context >= most else max(context // CONTEXT_STEP * CONTEXT_STEP, least)


def room_for_context(plan: ServingPlan) -> int | None:
    """Return the longest context for which the devices of a plan have room as they are; None without a plan."""
    if plan.report is None:
        return None
    context, most = plan.task.serving.context, trained_tokens(plan.task)
    return rounded(max(context, min(_room(plan), most)), context, most)


def _room(plan: ServingPlan) -> int:
    """Return the context that fits on the devices of a plan as they are, if caches grow with it."""
    assert plan.report is not None
    most: float = MAX_TOKENS if not plan.task.host_cache_bytes else plan.task.serving.context  # copies would grow, too
    for each in plan.report.memory:
        if each.limit_bytes is not None and each.cache_bytes > 0:
            masks = 0.0 if plan.task.buffers is None else COPIES * plan.task.buffers.mask_bytes
            left = each.limit_bytes - each.activation_bytes - each.weight_bytes + masks
            most = min(most, plan.task.serving.context * left / (each.cache_bytes + masks))
    return int(most * (1 + 1e-12))

"""The best plan of several cases, as ``placekit llm`` chooses it."""

from __future__ import annotations

from collections.abc import Iterable

from placekit.language.planning.plan import ServingPlan, Solve, fastest, plans
from placekit.language.runtimes import ServingRuntime
from placekit.language.task import LanguageTask


def best_plan(cases: Iterable[LanguageTask], solve: Solve, runtime: ServingRuntime | None = None) -> ServingPlan:
    """Return the best plan of all cases, which are those of `plan_cases` for the same runtime."""
    return fastest(plans(cases, solve, runtime))

"""The best plan of several cases, as ``placekit llm`` chooses it."""

from __future__ import annotations

from collections.abc import Iterable

import placekit as pk
from placekit.language.planning.plan import ServingPlan, Solve, fastest, plans
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.launch import launch
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.language.task import LanguageTask
from placekit.model.served import Served


def best_plan(cases: Iterable[LanguageTask], solve: Solve, runtime: Runtime | None = None) -> ServingPlan:
    """Return the best plan of all cases, which are those of `plan_cases` for the same runtime."""
    return fastest(plans(cases, solve, runtime))


TOLD = [name for name, record in RUNTIMES.items() if record.exports == "arguments"]
"""Runtimes that are told a plan by arguments."""


def launch_of(
    runtime: str, graph: pk.OpGraph, platform: pk.Platform, placement: pk.Placement, served: Served | None = None
) -> Launch:
    """Return what starts a runtime."""
    return launch(runtime, Placed(graph, platform, placement, served or Served()))

"""The best plan of several cases, as ``placekit llm`` chooses it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

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


_SAYS = {
    "context": "context", "all_context": "context", "sequences": "sequences", "chunk": "chunk", "used": "headroom",
    "cache_keys": "cache_precision", "hosted": "hosted_blocks", "hosted_dense": "hosts_dense",
    "host_cache": "hosts_cache",
}  # fmt: skip
"""Field of what is served by the option that says it."""


def require_served(record: Runtime, read: Served, told: Served) -> None:
    """Raise unless a line that was read back says what was served, as far as the runtime has options for it."""
    # where a line says nothing
    own = {"chunk": record.chunk, "cache_precision": "f16", "sequences": 1} if record.takes_gguf else {}
    said = {_SAYS[name] for name in record.options if name in _SAYS}
    for what in set(_SAYS.values()):
        expected = getattr(told if what in said else Served(), what)
        if expected is None and what in said:
            expected = own.get(what)
        assert getattr(read, what) == (pytest.approx(expected) if what == "headroom" else expected), what


TOLD = [name for name, record in RUNTIMES.items() if record.exports == "arguments"]
"""Runtimes that are told a plan by arguments."""


def launch_of(
    runtime: str, graph: pk.OpGraph, platform: pk.Platform, placement: pk.Placement, served: Served | None = None
) -> Launch:
    """Return what starts a runtime."""
    return launch(runtime, Placed(graph, platform, placement, served or Served()))

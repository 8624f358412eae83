"""Mechanisms that are switched off: not used, and what is left is as right as before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan
from strategies import examples

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.errors import InvalidProblemError
from placekit.solvers.makespan.mechanisms import ALL, Mechanisms
from placekit.solvers.registry import get_method

ROOM = "placekit.solvers.makespan"
DOORS: dict[str, tuple[str, str]] = {
    "stretches": (f"{ROOM}.search.local_search", "sweep"),
    "between": (f"{ROOM}.bounds.quick", "least_between"),
    "shared-work": (f"{ROOM}.bounds.quick", "shared_work"),
    "series": (f"{ROOM}.exact.series", "segment_problem"),
    "a-star": (f"{ROOM}.exact.proofs", "search_all_schedules"),
    "case-split": (f"{ROOM}.exact.proofs", "refute_by_cases"),
    "rising-limits": (f"{ROOM}.exact.cp_method", "limit_to_refute"),
}
"""Where a run goes through if it uses a mechanism."""


def watched(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Return a list that grows whenever a mechanism is used."""
    place, attribute = DOORS[name]
    owner: Any = import_module(place)
    door: Callable[..., Any] = getattr(owner, attribute)
    seen: list[str] = []

    def through(*arguments: Any, **named: Any) -> Any:
        seen.append(name)
        return door(*arguments, **named)

    monkeypatch.setattr(owner, attribute, through)
    return seen


def products(num_ops: int = 60) -> pk.Problem:
    """Return chained products on three unequal devices: work is all that counts, and nothing is proven at once."""
    return generate("chained-matmuls", num_ops, num_devices=3, equal=False, transfer_ratio=0.1, objective=pk.Makespan())


def chain_of_blocks() -> pk.Problem:
    """Return blocks of attention, one behind the other."""
    return generate("transformer", 60, 3, num_devices=2, transfer_ratio=2.0, objective=pk.Makespan())


How = tuple[str, dict[str, Any], float]
SEARCH: How = ("local-search", {"max_cycles": 2, "steps": 5}, 60.0)
PROOF: How = ("bound", {}, 1.0)
HOW: dict[str, tuple[pk.Problem, How]] = {
    "stretches": (products(90), SEARCH),
    **dict.fromkeys(("between", "shared-work"), (products(), PROOF)),
    "case-split": (products(), PROOF),
    "series": (chain_of_blocks(), PROOF),
    "a-star": (products(), PROOF),
    "rising-limits": (products(), ("cpsat", {}, 1.0)),
}


@pytest.mark.parametrize("name", DOORS)
def test_what_is_off_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything on the same run uses it."""
    problem, (method, params, time_limit_s) = HOW[name]
    stop = pk.MaxRuntime(time_limit_s)
    seen = watched(monkeypatch, name)
    pk.solve(problem, method, params={**params, "without": name}, stop=stop)
    assert not seen
    pk.solve(problem, method, params=params, stop=stop)
    assert seen


@given(SMALL, st.sets(st.sampled_from(Mechanisms.names())))
@examples(30)
def test_the_optimum_is_the_same_without(problem: pk.Problem, names: set[str]) -> None:
    """Whatever is off, `cpsat` proves the optimum of enumeration, and no bound is above it."""
    optimum = best_makespan(problem)
    result = pk.solve(problem, "cpsat", params={"without": ",".join(sorted(names))}, stop=pk.MaxRuntime(120))
    if optimum is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(optimum, rel=1e-6)


def test_auto_passes_on_what_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage of the makespan, and what works beside it, leaves it out."""
    seen = [watched(monkeypatch, name) for name in ("stretches", "case-split", "between")]
    off = {"without": "stretches, case-split, between"}
    result = pk.solve(products(), "auto", params=off, stop=pk.MaxRuntime(2.0))
    assert result.placement is not None
    assert not any(seen)


@pytest.mark.parametrize("method", ["auto", "local-search", "lns", "cpsat", "bound"])
def test_unknown_mechanisms_are_refused(method: str) -> None:
    """The message lists those that there are, before anything runs."""
    with pytest.raises(InvalidProblemError, match="no mechanism 'kicks' of the makespan; there are stretches, "):
        get_method(method, {"without": "stretches,kicks"})


def test_names_are_those_of_the_fields() -> None:
    """Nothing is off by default; each name switches one off."""
    assert Mechanisms.without("") == ALL
    alone = [Mechanisms.without(name) for name in Mechanisms.names()]
    assert all(one != other for one, other in itertools.pairwise(alone))
    assert set(Mechanisms.names()) == set(DOORS)


def test_auto_refuses_it_for_other_objectives() -> None:
    """Mechanisms are those of the makespan."""
    problem = products().replace(objective=pk.Throughput())
    with pytest.raises(pk.errors.UnsupportedProblemError, match="switched off for makespan, not for throughput"):
        pk.solve(problem, "auto", params={"without": "stretches"})

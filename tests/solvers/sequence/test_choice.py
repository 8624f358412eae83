"""The best of several problems in one solve: never worse than any of them, and nothing better is left out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, teamed_problems

from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import SerialLatency, Throughput
from placekit.solve.result import Status
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime
from placekit.solvers.sequence import choice
from placekit.solvers.sequence.choice import solve_best


def chain_on(num_devices: int, times_s: float, memory_bytes: float | None = None) -> Problem:
    """Return a chain of four ops that take `times_s` each, on equal devices that may be teams."""
    graph = OpGraph.from_edges("abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    costs = CostTable(("cpu",), np.full((4, 1), times_s), np.zeros((3, 1)), np.ones(4))
    memory = {"cpu": memory_bytes} if memory_bytes else {}
    return Problem(graph, Platform.of(cpu=num_devices, memory_bytes=memory), costs, Throughput(teams="equal"))


@examples(150)
@given(st.lists(teamed_problems(max_ops=5, max_devices=3), min_size=1, max_size=3))
def test_the_best_of_all_is_found_and_bounded(problems: list[Problem]) -> None:
    """The answer is the least optimum, by enumeration, and no bound is above it."""
    named = {str(at): each.replace(objective=problems[0].objective) for at, each in enumerate(problems)}
    optima = [solve(problem, "enumerate").objective for problem in named.values()]
    known = [optimum for optimum in optima if optimum is not None]
    name, best = solve_best(named, "enumerate")
    assert best.objective == (min(known) if known else None)
    assert [each["name"] for each in best.info["compared"]] == list(named)
    if not known:
        assert best.status is Status.INFEASIBLE
        return
    assert optima[int(name)] == best.objective
    assert best.info["bound_of_all_s"] <= min(known) * (1 + 1e-9)
    for each, optimum in zip(best.info["compared"], optima, strict=True):
        if each["status"] == "left out":
            assert optimum is None or optimum >= min(known)


def test_what_cannot_be_better_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group that takes 1.5 s per op against two of 2 s: all work shared by two takes 4 s, on one 6 s."""
    solved: list[int] = []

    def counted(problem: Problem, *arguments: Any, **options: Any) -> Any:
        solved.append(problem.platform.num_devices)
        return solve(problem, *arguments, **options)

    monkeypatch.setattr(choice, "solve", counted)
    name, result = solve_best({"one": chain_on(1, 1.5), "two": chain_on(2, 2.0)})
    assert (name, result.objective, solved) == ("two", 4.0, [2])
    one, two = result.info["compared"]
    assert (one["status"], one["objective_s"], two["status"]) == ("left out", None, "optimal")
    assert one["bound_s"] == pytest.approx(6.0)
    assert result.info["bound_of_all_s"] == pytest.approx(4.0)


def test_a_limit_can_make_the_other_cut_the_best() -> None:
    """A copy of four bytes does not fit two bytes per device: two devices are a pipeline; one is not feasible."""
    problems = {"one": chain_on(1, 1.0, 2.0), "two": chain_on(2, 2.0, 2.0)}
    name, result = solve_best(problems)
    assert (name, result.objective) == ("two", 4.0)
    assert result.info["compared"][0]["status"] == "infeasible"


def test_all_infeasible_is_infeasible() -> None:
    """No answer, and the reason of the first."""
    _, result = solve_best({"one": chain_on(1, 1.0, 2.0), "too": chain_on(1, 2.0, 3.0)})
    assert result.status is Status.INFEASIBLE
    assert result.violations


def test_time_is_for_all_together() -> None:
    """The limit holds for the sum, and what was not reached is said so."""
    start = time.perf_counter()
    problems: Mapping[str, Problem] = {str(n): chain_on(n, 1.0 + n) for n in (1, 2, 3)}
    _, result = solve_best(problems, "random:1", stop=MaxRuntime(0.0))
    assert time.perf_counter() - start < 60
    assert "not reached" in {each["status"] for each in result.info["compared"]}


def test_the_question_must_be_one() -> None:
    """No problem, or two objectives."""
    with pytest.raises(InvalidProblemError, match="at least one"):
        solve_best({})
    other = chain_on(2, 1.0).replace(objective=SerialLatency())
    with pytest.raises(InvalidProblemError, match="one objective"):
        solve_best({"a": chain_on(1, 1.0), "b": other})

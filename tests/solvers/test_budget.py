"""Searches use the time that they are given: methods are compared on it."""

from __future__ import annotations

from typing import Any

import pytest

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.solve.method import Run

CASES: list[tuple[str, pk.Objective, dict[str, Any]]] = [
    ("local-search", pk.Throughput(), {"steps": 1}),
    ("local-search", pk.SerialLatency(), {"steps": 1}),
    ("local-search", pk.Makespan(), {"steps": 1}),
    ("local-search", pk.OffloadLatency(), {"steps": 1}),
    ("policy-free", pk.Throughput(), {}),
]
"""Searches, and parameters with which 100 rounds take no time."""


class Looks:
    """Stop whose time limit is far away, and that ends a solve after so many looks at it."""

    time_limit_s, gap = 1e6, None

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, progress: Any) -> pk.StopReason | None:  # noqa: ARG002  # a protocol
        """Return the end once there were enough looks."""
        self.count -= 1
        return pk.StopReason.USER if self.count < 0 else None


@pytest.mark.parametrize(("method", "objective", "params"), CASES)
def test_a_search_goes_on_under_a_time_limit(
    monkeypatch: pytest.MonkeyPatch, method: str, objective: pk.Objective, params: dict[str, Any]
) -> None:
    """It ends when it is told to; without a limit, or with a patience that is asked for, by itself."""
    tries = Run.tries
    monkeypatch.setattr(Run, "tries", lambda run, asked, _: tries(run, asked, 1))  # less patience makes a quick test
    problem = generate("layered", 20, seed=2, num_devices=2, equal=False, objective=objective)
    problem = problem.replace(contiguity=pk.Contiguity.NONE)
    assert pk.solve(problem, method, params=params).stop_reason is pk.StopReason.FINISHED
    asked = params | {"patience": 1}
    assert pk.solve(problem, method, stop=pk.MaxRuntime(1e6), params=asked).stop_reason is pk.StopReason.FINISHED
    looks = Looks(400)
    result = pk.solve(problem, method, stop=looks, params=params)
    assert (result.stop_reason, looks.count < 0) == (pk.StopReason.USER, True)


def test_a_turn_in_a_longer_solve_ends_by_itself() -> None:
    """Its share of the time is no time limit, for the rest is for others; all of the time left is."""
    problem = generate("layered", 20, num_devices=2)
    run = Run(problem, pk.MaxRuntime(100.0))
    assert (run.tries(None, 7), run.tries(3, 7)) == (float("inf"), 3)
    with run.limited_to(50.0):
        assert run.tries(None, 7) == 7
    with run.limited_to(run.remaining_s):
        assert run.tries(None, 7) == float("inf")
    assert Run(problem, pk.TargetGap(0.1)).tries(None, 7) == 7

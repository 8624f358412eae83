"""What tests of direct links share: two nodes of accelerators, and what every answer promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.model.problem import Problem


def near(value: object) -> object:
    """Return what is the same but for the rounding of sums."""
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def on_two_nodes(edges: Sequence[tuple[str, str]], objective: pk.Objective, **rest: Any) -> Problem:
    """Return ops a, b, c, d of 2 s on two nodes of two accelerators: 0.1 s to the near one, 1 s to the far ones."""
    graph = pk.OpGraph.from_edges(list("abcd"), edges)
    platform = pk.Platform(
        tuple(pk.Device(f"gpu.{i}", "gpu", node="xyxy"[i]) for i in range(4)),
        {"gpu": pk.Link(1.0, 1.0)},
        (pk.DirectLink(0.1, 1e9), pk.DirectLink(1.0, 1e9, None, True)),
    )
    costs = pk.CostTable(
        ("gpu",), np.full((4, 1), 2.0), np.ones((graph.num_tensors, 1)), np.zeros(4),
        direct_links=platform.direct_link_names, direct_time_s=np.tile([0.1, 1.0], (graph.num_tensors, 1)),
    )  # fmt: skip
    return Problem(graph, platform, costs, objective, **rest)


def check_enumeration(problem: Problem, best: float | None) -> None:
    """Assert that `enumerate` ends with the optimum of brute force, proven, or with the proof that there is none."""
    result = pk.solve(problem, method="enumerate")
    assert result.objective == (None if best is None else near(best))
    assert str(result.status) == ("infeasible" if best is None else "optimal")
    assert pk.verify(result, problem).is_consistent


def check_promises(problem: Problem, method: str, best: float | None) -> None:
    """Assert that no objective is below the optimum and no bound above it, and that what claims to be proven is."""
    result = pk.solve(problem, method=method, stop=pk.MaxRuntime(5))
    if best is None:
        assert result.placement is None
        return
    assert str(result.status) != "infeasible"
    if result.lower_bound is not None:
        assert result.lower_bound <= best * (1 + 1e-9)
    if result.objective is not None:
        assert result.objective >= best * (1 - 1e-9)
    if str(result.status) == "optimal":
        assert result.objective == pytest.approx(best, rel=max(result.tolerance, 1e-9), abs=1e-12)
    assert pk.verify(result, problem).is_consistent

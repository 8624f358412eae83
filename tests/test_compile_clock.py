"""The clock of compiling: what no time limit counts."""

from __future__ import annotations

import time

import numpy as np
import pytest

import placekit as pk
from placekit import compile_clock, method
from placekit.graph import OpGraph
from placekit.method import Run
from placekit.platform import Platform
from placekit.stop import StopReason


def test_nested_intervals_count_once() -> None:
    """A kernel that calls another compiles both in one stretch of time."""
    before, begun = compile_clock.compiling_s(), time.perf_counter()
    compile_clock.compiling_begins()
    compile_clock.compiling_begins()
    time.sleep(0.02)
    assert compile_clock.compiling_s() - before >= 0.02  # an open interval counts, too
    compile_clock.compiling_ends()
    compile_clock.compiling_ends()
    spent = compile_clock.compiling_s() - before
    assert 0.02 <= spent <= time.perf_counter() - begun
    assert compile_clock.compiling_s() - before == spent


def test_a_kernel_without_a_cache_is_counted() -> None:
    """The clock runs while numba compiles."""
    from placekit.compiled import njit

    before = compile_clock.compiling_s()
    njit(lambda x: x + 1)(1.0)
    assert compile_clock.compiling_s() > before


def test_time_limits_do_not_count_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first solve has as much time for the problem as a second one; its runtime is the true one."""
    graph = OpGraph.from_edges(["a"], [])
    costs = pk.CostTable(("cpu",), np.ones((1, 1)), np.zeros((0, 1)), np.zeros(1))
    problem = pk.Problem(graph, Platform.of(cpu=1, host="cpu"), costs)
    spent_s = 0.0
    monkeypatch.setattr(method, "compiling_s", lambda: spent_s)
    run = Run(problem, pk.MaxRuntime(0.05))
    time.sleep(0.06)
    assert run.should_stop() is StopReason.TIME
    assert run.remaining_s == 0.0
    spent_s = 100.0
    assert run.should_stop() is None
    assert run.remaining_s is not None
    assert run.remaining_s > 50
    assert 0.06 <= run.elapsed_s < 50

"""The clock of compiling: what results report, and what limits count."""

from __future__ import annotations

import time

import numpy as np
import pytest

import placekit as pk
from placekit import compile_clock
from placekit.graph import OpGraph
from placekit.method import Run
from placekit.patience import MODE
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


@pytest.mark.parametrize("mode", ["inline", "background"])
def test_limits_count_compiling_unless_kernels_are_compiled_inline(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is one of wall time; in benchmarks and tests the clock stands still while kernels are compiled."""
    graph = OpGraph.from_edges(["a"], [])
    costs = pk.CostTable(("cpu",), np.ones((1, 1)), np.zeros((0, 1)), np.zeros(1))
    problem = pk.Problem(graph, Platform.of(cpu=1, host="cpu"), costs)
    spent_s = 0.0
    monkeypatch.setattr("placekit.run.compiling_s", lambda: spent_s)
    monkeypatch.setenv(MODE, mode)
    run = Run(problem, pk.MaxRuntime(0.05))
    time.sleep(0.06)
    assert run.should_stop() is StopReason.TIME
    assert run.remaining_s == 0.0
    spent_s = 0.04
    assert run.compile_s == 0.04
    if mode == "inline":
        assert run.elapsed_s >= 0.02
        assert run.elapsed_s + run.compile_s >= 0.06
        spent_s = 100.0
        assert run.should_stop() is None
    else:
        assert run.elapsed_s >= 0.06
        assert run.should_stop() is StopReason.TIME

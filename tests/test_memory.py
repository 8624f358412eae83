"""Limits on memory: what does not fit is not built, and who is out of memory ends with the best answer by then."""

from __future__ import annotations

import math

import numpy as np
import pytest

import placekit as pk
from placekit import machine
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import AnyOf, MaxMemory, MaxRuntime, StopReason
from placekit.solvers.backends import building

METHODS_WITH_PROGRAMS = [
    (pk.Throughput(), "ilp"),
    (pk.Throughput(), "cpsat"),
    (pk.SerialLatency(), "ilp"),
    (pk.OffloadLatency(), "ilp"),
    (pk.OffloadLatency(), "cpsat"),
    (pk.Makespan(), "cpsat"),
]


def _problem(objective: pk.Objective, num_ops: int = 14) -> pk.Problem:
    rng = np.random.default_rng(1)
    names = [f"o{i}" for i in range(num_ops)]
    edges = sorted(
        {(names[rng.integers(max(0, i - width), i)], names[i]) for i in range(2, num_ops) for width in (3, 8)}
    )
    graph = pk.OpGraph.from_edges(names, edges)
    times = np.stack([rng.uniform(1e-4, 1e-3, num_ops), rng.uniform(5e-4, 4e-3, num_ops)], axis=1)
    transfers = np.stack([rng.uniform(1e-5, 5e-4, graph.num_tensors), np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("gpu", "cpu"), times, transfers, np.ones(num_ops))
    return pk.Problem(graph, pk.Platform.of(gpu=2, cpu=1, host="cpu"), costs, objective)


def test_the_process_holds_something_and_the_machine_has_something_left() -> None:
    """Both are known here, and the default limit lies between."""
    held, left = machine.resident_bytes(), machine.available_bytes()
    assert 1e7 < held < 1e12
    assert 0 < left < 1e15
    assert held < machine.default_limit_bytes() < held + left


def test_the_tightest_limit_counts_while_it_lasts() -> None:
    """Without one there is no end to what is left."""
    assert machine.bytes_left() == math.inf
    assert not machine.is_exhausted()
    with machine.limited_to(machine.resident_bytes() + 1e9):
        assert 0 < machine.bytes_left() <= 1e9 + 1e8
        with machine.limited_to(1.0):
            assert machine.bytes_left() == 0.0
            assert machine.is_exhausted()
        assert not machine.is_exhausted()
    assert machine.bytes_left() == math.inf


def test_a_limit_is_a_criterion() -> None:
    """It can be combined, the tightest is passed on, and a limit that is no number of bytes is refused."""
    stop = MaxRuntime(60) | MaxMemory(8e9) | MaxMemory(4e9)
    assert (stop.memory_limit_bytes, stop.time_limit_s) == (4e9, 60.0)
    assert AnyOf((MaxRuntime(60),)).memory_limit_bytes is None
    with pytest.raises(InvalidProblemError, match="memory limit in bytes is 0; it must be finite and >= 1"):
        MaxMemory(0)


def test_a_limit_below_what_the_process_holds_is_refused() -> None:
    """In one line, with both numbers."""
    with pytest.raises(InvalidProblemError, match=r"memory limit is 1 MiB \(1048576 bytes\); this process holds"):
        pk.solve(_problem(pk.Throughput()), "greedy", stop=MaxMemory(2**20))


@pytest.mark.parametrize(("objective", "method"), METHODS_WITH_PROGRAMS)
@pytest.mark.parametrize("lacks", ["memory", "time"])
def test_a_program_that_does_not_fit_is_not_built(
    objective: pk.Objective, method: str, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone the method ends with what it has by then, and says in one line what did not fit."""
    if lacks == "memory":
        monkeypatch.setattr(machine, "bytes_left", lambda: 0.0)
    else:
        monkeypatch.setattr(building, "AFTERWARDS", 1e12)
    result = pk.solve(_problem(objective), method, stop=MaxRuntime(30.0), seed=1)
    if result.status is pk.Status.OPTIMAL:
        pytest.skip("proven before any program")
    assert result.objective is not None
    assert result.stop_reason is (StopReason.MEMORY if lacks == "memory" else StopReason.TIME)
    line = result.info["skipped"]
    assert "coefficients needs about" in line if lacks == "memory" else "coefficients takes about" in line
    assert "\n" not in line


def test_auto_goes_on_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is passed over, which the account says, and the next ones have their turn."""
    monkeypatch.setattr(machine, "bytes_left", lambda: 0.0)
    problem = _problem(pk.Throughput(), 40).replace(contiguity=pk.Contiguity.NONE)
    result = pk.solve(problem, "auto", stop=MaxRuntime(2.0))
    methods = [stage["method"] for stage in result.info["stages"]]
    at = methods.index("ilp")
    assert "needs about" in result.info["stages"][at]["skipped"]
    assert methods[at + 1 :]
    assert result.objective is not None


def test_who_is_out_of_memory_ends_with_the_best_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long he may take."""
    monkeypatch.setattr(machine, "_looked", (-math.inf, 0.0))
    monkeypatch.setattr(machine, "default_limit_bytes", lambda: 1.0)
    result = pk.solve(_problem(pk.Throughput()), "random:1000000", stop=MaxRuntime(60.0))
    assert result.stop_reason is StopReason.MEMORY
    assert result.runtime_s < 30

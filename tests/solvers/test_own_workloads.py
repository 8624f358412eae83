"""Optima of workloads of our own, in the public format: every checkout proves them, by methods that share no code.

The public workloads themselves are proven where their folder stands beside the checkout (fixture `workloads`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from workload_files import WORKLOADS, write_own_workload

import placekit as pk
from placekit.solvers.throughput.bounds.bottleneck import bottleneck

ACYCLIC_MS = {"layers": 8.593, "layers_training": 14.948, "branches": 5.825, "operators": 6.271}
FREE_MS = {"layers": 8.198, "layers_training": 13.783, "branches": 5.825, "operators": 5.627}
OFFLOAD_MS = {"layers": 23.978, "branches": 17.029, "operators": 16.466}


def proven_ms(problem: pk.Problem, method: str) -> float:
    """Return the optimum that a method proves, in ms, as the judge scores its placement."""
    result = pk.solve(problem, method)
    assert result.status is pk.Status.OPTIMAL
    assert result.placement is not None
    objective = pk.evaluate(problem, result.placement).objective
    assert objective is not None
    assert objective == result.objective
    return 1e3 * objective


@pytest.mark.parametrize("method", ["dp", "auto"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_acyclic_optimum_is_proven(name: str, method: str, tmp_path: Path) -> None:
    """By the dynamic program over ideals; `dpl` is never below, nor a placement with teams above."""
    problem = pk.read_workload(write_own_workload(name, tmp_path))
    assert proven_ms(problem, method) == pytest.approx(ACYCLIC_MS[name], rel=1e-9)
    linear = pk.solve(problem, "dpl").objective
    assert linear is not None
    assert ACYCLIC_MS[name] * (1 - 1e-9) <= 1e3 * linear <= ACYCLIC_MS[name] * 1.05
    assert proven_ms(problem.replace(objective=pk.Throughput(teams="equal")), "dp") <= ACYCLIC_MS[name] * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "contiguity", "method"),
    [
        ("layers", "none", "ilp"),
        ("layers_training", "none", "ilp"),
        ("layers_training", "acyclic", "cpsat"),
        ("branches", "acyclic", "ilp"),
        ("operators", "acyclic", "ilp"),
        ("operators", "none", "cpsat"),
        ("operators", "none", "auto"),
    ],
)
def test_programs_prove_the_same_optimum(name: str, contiguity: str, method: str, tmp_path: Path) -> None:
    """Contiguous as the dynamic program, and the better one without contiguity."""
    problem = pk.read_workload(write_own_workload(name, tmp_path)).replace(contiguity=contiguity)
    expected_ms = (FREE_MS if contiguity == "none" else ACYCLIC_MS)[name]
    assert proven_ms(problem, method) == pytest.approx(expected_ms, rel=1e-9)


@pytest.mark.parametrize("method", ["dp", "ilp"])
@pytest.mark.parametrize("name", OFFLOAD_MS)
def test_offload_latencies_are_proven(name: str, method: str, tmp_path: Path) -> None:
    """By the series program and by the integer program."""
    problem = pk.read_workload(write_own_workload(name, tmp_path), objective=pk.OffloadLatency())
    assert proven_ms(problem, method) == pytest.approx(OFFLOAD_MS[name], rel=1e-9)


@pytest.mark.parametrize("name", ["layers", "operators"])
def test_the_bottleneck_bound_is_below_the_optimum(name: str, tmp_path: Path) -> None:
    """Below, and not far below, with and without contiguity."""
    for contiguity, optima in (("none", FREE_MS), ("acyclic", ACYCLIC_MS)):
        problem = pk.read_workload(write_own_workload(name, tmp_path)).replace(contiguity=contiguity)
        optimum_s = optima[name] / 1e3
        bound = bottleneck(problem, time_limit_s=600, upper_bound_s=optimum_s * (1 + 1e-9))[0]
        assert bound is not None
        assert 0.8 * optimum_s <= bound <= optimum_s * (1 + 1e-9)


@pytest.mark.parametrize("method", ["ilp", "cpsat"])
def test_a_target_gap_stops_early(method: str, tmp_path: Path) -> None:
    """A gap of 20 % is reported as such, or proven on the way."""
    problem = pk.read_workload(write_own_workload("operators", tmp_path))
    result = pk.solve(problem, method, stop=pk.TargetGap(0.2))
    assert result.gap is not None
    assert result.gap <= 0.2
    assert result.stop_reason in (pk.StopReason.GAP, pk.StopReason.PROVED)


def test_files_come_back_exactly(tmp_path: Path) -> None:
    """read(write(read(file))) == read(file), bit for bit."""
    for name in WORKLOADS:
        problem = pk.read_workload(write_own_workload(name, tmp_path))
        pk.write_workload(problem, tmp_path / "again.json")
        assert pk.read_workload(tmp_path / "again.json", name=problem.graph.name) == problem

"""Bounds in linear time: they hold, they are certified, and they are there at any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.objectives import OBJECTIVES
from placekit.solve.method import Run
from placekit.solvers.generic.bounds.work_and_path import longest_path_s, raise_bounds_at_once, shared_work
from placekit.verification.verify import verify


@examples(60)
@given(problems())
def test_they_hold_whatever_the_problem(problem: pk.Problem) -> None:
    """No bound is above the optimum, and the certificate of shared work proves what it says."""
    best = brute_force(problem)
    work, path_s = shared_work(problem), longest_path_s(problem)
    if best is None:
        return
    assert path_s is None or path_s <= best * (1 + 1e-12)
    if work is not None:
        assert work[0] <= best * (1 + 1e-12)
        run = Run(problem)
        run.raise_bound(work[0], "shared work", work[1])
        assert run.bound is not None


def test_shared_work_takes_the_fastest_kind_and_what_is_there() -> None:
    """A kind without a device helps nobody, nor does one that cannot run the op; hosts of a call run all at once."""
    graph = pk.OpGraph.from_edges("ab", [("a", "b")])
    supported = np.array([[True, True], [True, False]])
    costs = pk.CostTable(("x", "y"), np.array([[4.0, 1.0], [2.0, 0.0]]), np.zeros((1, 2)), np.zeros(2), supported)
    problem = pk.Problem(graph, pk.Platform.of(x=1, y=1), costs, pk.Throughput(teams="any"))
    found = shared_work(problem)
    assert found is not None
    assert 1.5 <= found[0] <= 2.0
    assert shared_work(problem.replace(platform=pk.Platform.of(y=1))) is not None
    assert longest_path_s(problem.replace(objective=pk.Makespan())) == pytest.approx(3.0)
    with_host = problem.replace(objective=pk.OffloadLatency(), platform=pk.Platform.of(x=1, y=1, host="x"))
    assert shared_work(with_host) is None


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_auto_has_them_at_any_size(name: str) -> None:
    """3,000 ops and no time for a search: the gap says something."""
    problem = generate("layered", 3000, num_devices=4, equal=False, objective=OBJECTIVES[name]())
    run = Run(problem)
    raise_bounds_at_once(run)
    result = pk.solve(problem, "auto", stop=pk.MaxRuntime(1e-9))
    assert result.lower_bound is not None
    assert run.bound is not None
    assert result.lower_bound >= run.bound
    fastest_s = float(np.where(problem.costs.supported, problem.costs.op_time_s, np.inf).min(axis=1).sum())
    assert result.lower_bound >= 0.9 * fastest_s / problem.platform.num_devices


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.Makespan(), pk.OffloadLatency()], ids=lambda o: o.name)
def test_the_certificate_is_checked(objective: pk.objectives.Objective) -> None:
    """The verifier confirms the bound from the certificate alone."""
    problem = generate("layered", 60, num_devices=3, equal=False, objective=objective)
    result = pk.solve(problem, "auto", stop=pk.MaxRuntime(1e-9))
    assert result.bound_name == "shared work"
    assert result.certificate is not None
    found = verify(result, problem, max_steps=0)
    assert (found["bound"].outcome, found["bound"].detail.count("certificate")) == ("checked", 1)

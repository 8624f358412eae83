"""What is called optimal: within 1e-9 where only sums are rounded, else within 1e-6, as results say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force
from strategies import examples

import placekit as pk
from placekit.model.errors import JudgeDisagreementError
from placekit.solve.method import Run
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE
from placekit.solvers.throughput.dp.instance import Instance

PROVES = {
    "dp": OPTIMALITY_TOLERANCE,
    "enumerate": OPTIMALITY_TOLERANCE,
    "mincut": OPTIMALITY_TOLERANCE,
    "auto": OPTIMALITY_TOLERANCE,
    "ilp": SOLVER_TOLERANCE,
    "cpsat": SOLVER_TOLERANCE,
}
"""What docs/concepts/proofs.md promises of the methods on `close_calls`."""
OBJECTIVES = {
    "1f1b": pk.Throughput(),
    "gpipe": pk.Throughput(schedule="gpipe"),
    "serial": pk.SerialLatency(),
}


@st.composite
def close_calls(draw: st.DrawFn, objective: pk.Objective) -> pk.Problem:
    """Draw a problem whose placements differ by some parts in 1e7: what 1e-6 cannot tell apart."""
    num_ops = draw(st.integers(2, 6))
    names = [f"op{i}" for i in range(num_ops)]
    edges = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, num_ops)]
    near = st.sampled_from([1.0, 1.0 + 3e-7, 1.0 + 4e-7, 1.0 + 9.7e-7])
    time_s = draw(st.lists(near, min_size=2 * num_ops, max_size=2 * num_ops))
    transfer = st.sampled_from([0.0, 1e-8, 2.3e-7])
    graph = pk.OpGraph.from_edges(names, edges)
    size = 2 * graph.num_tensors
    transfer_s = draw(st.lists(transfer, min_size=size, max_size=size))
    costs = pk.CostTable(
        ("a", "b"), np.reshape(time_s, (num_ops, 2)), np.reshape(transfer_s, (-1, 2)), np.zeros(num_ops)
    )
    contiguity = pk.Contiguity.NONE if isinstance(objective, pk.SerialLatency) else pk.Contiguity.ACYCLIC
    return pk.Problem(graph, pk.Platform.of(a=1, b=1), costs, objective, contiguity)


def methods_of(name: str) -> list[str]:
    """Return the methods of `PROVES` for an objective of `OBJECTIVES`."""
    return [method for method in PROVES if method != ("dp" if name == "serial" else "mincut")]


@pytest.mark.parametrize(("name", "method"), [(name, m) for name in OBJECTIVES for m in methods_of(name)])
def test_optimal_is_within_the_tolerance(name: str, method: str) -> None:
    """The answer is no further above the optimum than the result says, and that is no more than the method promises."""

    @examples(40)
    @given(close_calls(OBJECTIVES[name]))
    def check(problem: pk.Problem) -> None:
        best = brute_force(problem)
        if best is None:
            return
        result = pk.solve(problem, method, stop=pk.MaxRuntime(20))
        assert result.status is pk.Status.OPTIMAL
        assert result.objective is not None
        assert result.lower_bound is not None
        assert result.gap is not None
        assert result.gap <= result.tolerance <= PROVES[method]
        assert result.objective <= best * (1 + result.tolerance + 1e-14)
        assert result.lower_bound <= best * (1 + 1e-14)

    check()


def without_step(problem: pk.Problem) -> pk.Problem:
    """Return the problem with times that have no common divisor, so that bounds are not rounded up to one."""
    return problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s * np.pi))


def run_of(problem: pk.Problem) -> Run:
    """Return a run that knows a placement, of a problem whose times have no common divisor."""
    run = Run(without_step(problem))
    run.offer([1, 1, 1, 1])
    return run


def test_a_bound_proves_within_its_own_tolerance(diamond: pk.Problem) -> None:
    """5e-7 below the objective an exact bound leaves a gap, and a solver's does not, even below an exact one."""
    run = run_of(diamond)
    assert run.objective is not None
    run.raise_bound(run.objective * (1 - 5e-7), "sums", tolerance=OPTIMALITY_TOLERANCE)
    assert (run.should_stop(), run.tolerance) == (None, OPTIMALITY_TOLERANCE)
    run.raise_bound(run.objective * (1 - 2e-6), "a solver")
    assert (run.should_stop(), run.tolerance) == (None, OPTIMALITY_TOLERANCE)
    run.raise_bound(run.objective * (1 - 6e-7), "a solver")
    assert (run.should_stop(), run.tolerance) == (pk.StopReason.PROVED, SOLVER_TOLERANCE)
    run.raise_bound(run.objective * (1 - 4e-7), "sums", tolerance=OPTIMALITY_TOLERANCE)
    assert (run.is_proven, run.tolerance) == (True, SOLVER_TOLERANCE)
    run.raise_bound(run.objective * (1 - 5e-10), "sums", tolerance=OPTIMALITY_TOLERANCE)
    assert (run.is_proven, run.tolerance) == (True, OPTIMALITY_TOLERANCE)


def test_a_bound_rounded_up_to_a_step_is_exact(diamond: pk.Problem) -> None:
    """All times are whole seconds: what a solver proves beyond 3 s is 4 s, as sharp as any sum."""
    run = Run(diamond)
    run.offer([1, 1, 1, 1])
    run.raise_bound(3.9, "a solver")
    assert (run.is_proven, run.tolerance) == (True, OPTIMALITY_TOLERANCE)


def test_a_bound_above_the_objective_is_an_error_beyond_its_own_tolerance(diamond: pk.Problem) -> None:
    """A solver may be off by 5e-7, a sum may not."""
    run = run_of(diamond)
    assert run.objective is not None
    above = run.objective * (1 + 5e-7)
    run.raise_bound(above, "a solver")
    assert run.bound == run.objective
    with pytest.raises(JudgeDisagreementError, match="lies above the achieved objective"):
        run_of(diamond).raise_bound(above, "sums", tolerance=OPTIMALITY_TOLERANCE)


def test_sums_that_lose_more_say_so(monkeypatch: pytest.MonkeyPatch, diamond: pk.Problem) -> None:
    """Where the DP's sums are rounded by more than parts in 1e9 it still ends, with a proof within 1e-6."""
    problem = without_step(diamond)
    exact = pk.solve(problem, "dp")
    assert (exact.status, exact.tolerance) == (pk.Status.OPTIMAL, OPTIMALITY_TOLERANCE)
    monkeypatch.setattr(Instance, "rounding_s", 5e-9)
    coarse = pk.solve(problem, "dp")
    assert coarse.objective == exact.objective
    assert (coarse.status, coarse.tolerance) == (pk.Status.OPTIMAL, SOLVER_TOLERANCE)

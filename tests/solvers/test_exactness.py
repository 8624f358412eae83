"""The judge against an independent formula, and the integer program against brute force, on random problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force, is_feasible, objective
from strategies import examples, problems

import placekit as pk
from placekit.model.errors import JudgeDisagreementError
from placekit.solvers.generic.coarsen import contract


@examples(1500)
@given(problems(), st.data())
def test_judge_agrees_with_the_definitions(problem: pk.Problem, data: st.DataObject) -> None:
    """Objective and feasibility of a random placement equal those of the plain twins."""
    devices = st.integers(0, problem.platform.num_devices - 1)
    device = data.draw(st.lists(devices, min_size=problem.graph.num_ops, max_size=problem.graph.num_ops))
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, device))
    assert evaluation.is_feasible == is_feasible(problem, tuple(device))
    kind = problem.platform.kind_of_device[device]
    if problem.costs.supported[np.arange(len(device)), kind].all():
        assert evaluation.objective == pytest.approx(objective(problem, tuple(device)), rel=1e-9, abs=1e-12)
    else:
        assert evaluation.objective is None


@examples(800)
@given(problems(max_ops=6, max_devices=4))
def test_ilp_matches_brute_force(problem: pk.Problem) -> None:
    """Same optimum, or the same verdict that there is none; the bound is never above it."""
    best = brute_force(problem)
    result = pk.solve(problem, method="ilp")
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.lower_bound is not None
    assert result.objective is not None
    assert result.lower_bound <= best * (1 + 1e-9) + 1e-12
    if isinstance(problem.objective, pk.SerialLatency) and problem.objective.subgraph_cost_s:
        assert result.objective >= best * (1 - 1e-9)  # the program counts subgraphs too low: a bound, no proof
    else:
        assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-12)
        assert result.status is pk.Status.OPTIMAL


@examples(300)
@given(problems(), st.data())
def test_contraction_is_exactly_reversible(problem: pk.Problem, data: st.DataObject) -> None:
    """Any placement of classes expands to ops and back; loads, memory and order edges are those of the ops."""
    contraction = contract(problem)
    devices = st.integers(0, problem.platform.num_devices - 1)
    size = contraction.num_classes
    of_class = np.array(data.draw(st.lists(devices, min_size=size, max_size=size)), dtype=np.int64)
    of_op = contraction.expand(of_class)
    assert contraction.restrict(of_op).tolist() == of_class.tolist()
    kind = problem.platform.kind_of_device
    supported = problem.costs.supported[np.arange(len(of_op)), kind[of_op]].all()
    pins = (problem.pinned < 0) | (problem.pinned == of_op)
    assert contraction.allowed[np.arange(size), of_class].all() == (supported and pins.all())
    if supported and isinstance(problem.objective, pk.Throughput):
        score = problem.objective.score(problem, of_op)
        for d in range(problem.platform.num_devices):
            inside = of_class == d
            work = contraction.time_s[inside, kind[d]].sum()
            moved = sum(
                contraction.net_time_s[n, kind[d]].sum()
                for n in range(contraction.num_nets)
                if inside[contraction.pins_of(n)].any() and not inside[contraction.pins_of(n)].all()
            )
            assert score.compute_s[d] == pytest.approx(work)
            assert score.transfer_s[d] == pytest.approx(moved)


@examples(100)
@given(problems(max_ops=6, max_devices=3), st.floats(1e-3, 1e3))
def test_scaling_costs_scales_the_optimum(problem: pk.Problem, factor: float) -> None:
    """Every time times k makes the optimum times k."""
    if isinstance(problem.objective, pk.SerialLatency):
        problem = problem.replace(objective=pk.SerialLatency())
    costs = problem.costs
    scaled = costs.replace(op_time_s=costs.op_time_s * factor, transfer_time_s=costs.transfer_time_s * factor)
    before = pk.solve(problem, method="ilp").objective
    after = pk.solve(problem.replace(costs=scaled), method="ilp").objective
    assert (before is None) == (after is None)
    if before is not None:
        assert after == pytest.approx(before * factor, rel=5e-6, abs=1e-12)


@examples(100)
@given(problems(max_ops=6, max_devices=3))
def test_adding_a_device_never_hurts(problem: pk.Problem) -> None:
    """A second device of the first kind leaves the optimum where it is or lowers it."""
    twin = problem.platform.devices[0].replace(name="one more")
    platform = problem.platform.replace(devices=(*problem.platform.devices, twin))
    if isinstance(problem.objective, pk.SerialLatency):
        problem = problem.replace(objective=pk.SerialLatency())
    before = pk.solve(problem, method="ilp").objective
    after = pk.solve(problem.replace(platform=platform), method="ilp").objective
    if before is not None:
        assert after is not None
        assert after <= before * (1 + 5e-6) + 1e-12


def test_disagreement_with_the_judge_is_an_error(diamond: pk.Problem) -> None:
    """A method that promises too much is caught by name, not by its answer."""

    class Liar:
        name = "liar"

        def supports(self, problem: pk.Problem) -> str | None:  # noqa: ARG002
            return None

        def run(self, run: object) -> pk.StopReason:
            run.offer(np.zeros(4, dtype=np.int64), at_most=1.0)  # type: ignore[attr-defined]
            return pk.StopReason.FINISHED

    with pytest.raises(JudgeDisagreementError, match=r"promises at most 1\.0 s, the judge says 16\.0 s"):
        pk.solve(diamond, method=Liar())  # type: ignore[arg-type]  # the shortest method there can be

"""Exact methods prove small problems, by enumeration if nothing else: none ends of its own accord with a gap."""

from __future__ import annotations

import oracle
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import TIMES_S, examples, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import get_method
from placekit.solve.result import Status

COSTLY = st.builds(pk.SerialLatency, subgraph_cost_s=TIMES_S)
OFFLOAD = st.just(pk.OffloadLatency())


def check(problem: Problem, methods: tuple[str, ...]) -> None:
    """Compare with brute force: proven optimal, or proven infeasible."""
    best = oracle.brute_force(problem)
    for method in methods:
        if why_not(get_method(method), problem) is not None:
            continue
        result = pk.solve(problem, method)
        if best is None:
            assert result.status is Status.INFEASIBLE, method
            continue
        assert result.status is Status.OPTIMAL, (method, result.info)
        assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-300)
        assert result.lower_bound is not None
        assert result.lower_bound <= best * (1 + 1e-12)


@given(st.data())
@settings(parent=examples(12), phases=[Phase.generate])
def test_offload_latency_of_a_few_ops_is_proven_by_dp(data: st.DataObject) -> None:
    """Calls beside the spine, memory, colours, any contiguity: what the series program leaves open is enumerated."""
    check(data.draw(problems(max_ops=5, max_kinds=3, max_devices=3, objective=OFFLOAD)), ("dp",))


@pytest.mark.slow
@given(st.data())
@settings(parent=examples(1000), phases=[Phase.generate])
def test_small_problems_are_proven_by_every_exact_method(data: st.DataObject) -> None:
    """Thousands of solves, with costs per subgraph, and with calls."""
    objective = data.draw(st.sampled_from([COSTLY, OFFLOAD]))
    problem = data.draw(problems(max_ops=5, max_kinds=3, max_devices=3, objective=objective))
    check(problem, ("dp", "ilp", "cpsat"))


@given(st.data())
@settings(parent=examples(10), phases=[Phase.generate])
def test_serial_latency_of_a_few_ops_is_proven_by_programs(data: st.DataObject) -> None:
    """Costs per subgraph are in neither program."""
    contiguity = st.sampled_from(list(Contiguity))
    check(
        data.draw(problems(max_ops=5, max_kinds=2, max_devices=3, objective=COSTLY, contiguity=contiguity)),
        ("ilp", "cpsat"),
    )

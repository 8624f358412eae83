"""Mechanisms of the throughput that are switched off: not used, and what is left is as right as before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.errors import InvalidProblemError
from placekit.solvers.throughput.bounds import lower_bounds
from placekit.solvers.throughput.lns.profile import is_below, profile_of
from placekit.solvers.throughput.mechanisms import Mechanisms

NAMES = {"forced-cuts": "memory-forced cuts", "forced-work": "memory-forced work", "bottleneck": "bottleneck device"}


def test_bounds_that_are_switched_off_are_not_tried() -> None:
    """Each bound is there with all mechanisms, where accelerators cannot hold everything, and not without its own."""
    problem = generate("inception", 30, 7701, num_devices=2, transfer_ratio=0.3, memory_factor=0.4)
    problem = problem.replace(contiguity=pk.Contiguity.NONE)
    for switch, name in NAMES.items():
        kept = {found for _, found in lower_bounds(problem, time_limit_s=5, mechanisms=Mechanisms.without(switch))}
        assert name not in kept
        others = set(NAMES.values()) - {name, "bottleneck device"}
        assert others <= kept


def test_unknown_mechanisms_are_named() -> None:
    """The message lists those that there are."""
    with pytest.raises(InvalidProblemError, match="no mechanism 'luck' of the throughput; there are forced-work"):
        pk.solve(generate("chains", 30), "bound", params={"without": "luck"})


@examples(30)
@given(problems(max_ops=5, max_devices=3, objective=st.just(pk.Throughput())), st.sampled_from(Mechanisms.names()))
def test_nothing_is_better_than_the_optimum(problem: pk.Problem, switch: str) -> None:
    """Without any one of them, bounds stay below the optimum by brute force, and objectives above."""
    best = brute_force(problem)
    for method in ("bound", "local-search"):
        params = {"without": switch} | ({"max_cycles": 3} if method == "local-search" else {})
        result = pk.solve(problem, method, params=params, stop=pk.MaxRuntime(5))
        if best is not None and result.lower_bound is not None:
            assert result.lower_bound <= best * (1 + 1e-9) + 1e-12


def test_profiles_compare_as_sorted_loads() -> None:
    """The largest load first, then the second; differences of rounding count as none."""
    ones, twos = np.array([[1.0], [3.0], [2.0]]), np.array([[3.0], [1.0], [1.0]])
    none = np.zeros_like(ones)
    assert profile_of(ones, none, False).tolist() == [3.0, 2.0, 1.0]
    assert is_below(profile_of(twos, none, False), profile_of(ones, none, False))
    assert not is_below(profile_of(ones, none, False), profile_of(twos, none, False))
    assert not is_below(profile_of(ones * (1 - 1e-15), none, False), profile_of(ones, none, False))
    assert profile_of(ones, twos, True).tolist() == [3.0, 3.0, 2.0]

"""Methods for the offload latency: bounds below every placement, answers as good as enumeration."""

from __future__ import annotations

import itertools
import math

import oracle
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, problems

import placekit as pk
from placekit.method import Run
from placekit.solvers.offload.method import bound_offload

LATENCY_S = {
    "layer_bert24_inference": 0.1002185,
    "layer_resnet50_inference": 1.15688128125,
    "operator_bert_l-3_inference": 0.40847440818573847,
    "operator_bert_l-6_inference": 0.438062486564944,
}
"""Proven optimal by the series program."""


def offload_problems(max_ops: int = 6, max_devices: int = 3, calls: int = 1) -> st.SearchStrategy[pk.Problem]:
    """Small random problems without contiguity."""
    return problems(
        max_ops=max_ops,
        max_kinds=3,
        max_devices=max_devices,
        objective=st.just(pk.OffloadLatency(calls)),
        contiguity=st.just(pk.Contiguity.NONE),
    )


def optimum(problem: pk.Problem) -> float | None:
    """Return the least latency of all placements and steps; None if nothing is feasible."""
    objective = problem.objective
    assert isinstance(objective, pk.OffloadLatency)
    if objective.calls_per_device == 1:
        return oracle.brute_force(problem)
    ops = range(problem.graph.num_ops)
    best: float | None = None
    free = problem.replace(objective=pk.OffloadLatency(len(ops)))
    for device in itertools.product(range(problem.platform.num_devices), repeat=len(ops)):
        # with any number of calls every placement can be executed: what is left are the other constraints
        if not oracle.is_feasible(free.replace(objective=pk.SerialLatency()), device):
            continue
        on_call = [op for op in ops if not problem.platform.devices[device[op]].is_host]
        for choice in itertools.product(range(objective.calls_per_device), repeat=len(on_call)):
            step = [0] * len(ops)
            for op, s in zip(on_call, choice, strict=True):
                step[op] = s
            value = oracle.offload_latency(problem, device, tuple(step))
            if math.isfinite(value) and (best is None or value < best):
                best = value
    return best


def bounds_of(problem: pk.Problem) -> dict[str, float]:
    """Return every bound that ``bound`` proves, by name."""
    found: dict[str, float] = {}

    def keep(bound_s: float, name: str) -> None:
        found[name] = bound_s

    bound_offload(Run(problem), keep)
    return found


@given(problem=offload_problems())
@examples(250)
def test_bounds_are_never_above_the_optimum(problem: pk.Problem) -> None:
    """Each of them, against enumeration."""
    best = optimum(problem)
    if best is None:
        return
    for name, bound in bounds_of(problem).items():
        assert bound <= best * (1 + 1e-9) + 1e-15, name


@given(problem=offload_problems(max_ops=4, max_devices=2, calls=2))
@examples(80)
def test_bounds_hold_for_two_calls_per_device(problem: pk.Problem) -> None:
    """Each of them, against enumeration of placements and steps."""
    best = optimum(problem)
    if best is None:
        return
    for name, bound in bounds_of(problem).items():
        assert bound <= best * (1 + 1e-9) + 1e-15, name

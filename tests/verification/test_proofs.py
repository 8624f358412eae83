"""No certificate proves more than is true, whatever its numbers are; proofs from scratch agree with enumeration."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import fields, is_dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from makespan_optimum import best_makespan
from strategies import MAKESPANS, TIMES_S, examples, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidCertificateError
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Objective, OffloadLatency, SerialLatency, Throughput
from placekit.solve.certificates import (
    Certificate,
    Directions,
    NoDevice,
    OrderedPrices,
    PricedEdge,
    PricedNet,
    Prices,
    SharedWork,
)
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.heads import around, longest_path
from placekit.verification.ideals import IdealProgram, reaches_below
from placekit.verification.judge import broken_constraints
from placekit.verification.prices import NOTHING_FEASIBLE, Bound
from placekit.verification.proofs import proven
from placekit.verification.timeline import ordered_finishes

OBJECTIVES: st.SearchStrategy[Objective] = st.one_of(
    st.builds(Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"])),
    st.builds(SerialLatency, subgraph_cost_s=TIMES_S),
    st.builds(OffloadLatency),
    st.sampled_from(MAKESPANS),
)
GENERATED = [Phase.generate]  # shrinking enumerates for minutes


def optimum(problem: Problem) -> float | None:
    """Return the optimum by enumeration; of a makespan with contention, that without."""
    if isinstance(problem.objective, Makespan):
        if problem.contiguity == "none":
            return best_makespan(problem)
        best = best_makespan(problem.replace(contiguity="none"))
        return best if oracle.brute_force(problem) is not None else None
    return oracle.brute_force(problem)


def random_prices(exact: ExactProblem, rng: np.random.Generator) -> Prices:
    """Return weights and flows that keep the rules but for some sloppiness, so that they are sometimes refused."""
    variant, num_devices = exact.problem.objective, exact.num_devices
    num_passes = 2 if isinstance(variant, Throughput) and variant.schedule == "gpipe" else 1
    one_each = rng.random() < 0.5
    profile = list(range(num_devices)) if one_each else list(exact.kind)
    num_profiles = max(profile) + 1
    shape = (num_profiles, num_passes)
    work = rng.random(shape) * (rng.random(shape) < 0.8)
    transfer = work * rng.choice([1.0, 1.0, 0.5], shape)
    op_weight = {}
    if isinstance(variant, SerialLatency):
        work, transfer = np.ones(shape), np.ones(shape)
    else:
        op_weight = {ops[0]: rng.random(num_passes) * 0.3 for ops in exact.groups if rng.random() < 0.3}
        if isinstance(variant, OffloadLatency):
            op_weight = {}
            for d, at in enumerate(profile):
                if exact.is_host[d]:
                    work[at] = transfer[at] = 0
        if isinstance(variant, Makespan):
            transfer[:] = 0
        both = isinstance(variant, Throughput) and variant.overlap
        for p in range(num_passes):
            total = sum(work[at, p] + transfer[at, p] * both for at in profile) + sum(w[p] for w in op_weight.values())
            scale = max(total, 1e-9) * rng.choice([1.0, 1.0, 1.0, 0.9]) * (1 + 1e-12)
            work[:, p] /= scale
            transfer[:, p] /= scale
            for weights in op_weight.values():
                weights[p] /= scale
    limits: dict[int, bool] = {}
    for d, at in enumerate(profile):
        limits[at] = limits.get(at, True) and exact.limit[d] is not None
    price = [
        float(rng.exponential() * rng.choice([0.0, 1e-3, 1.0])) * limits.get(at, False) for at in range(num_profiles)
    ]
    nets = []
    for t, producer in enumerate(exact.producer):
        groups = sorted({exact.group_of[op] for op in (producer, *exact.readers[t])})
        prices = []
        for at in set(profile) if len(groups) > 1 else ():
            a, b = rng.choice(groups, 2, replace=False).tolist()
            capacity = float(transfer[at].min()) * min(
                float(exact.seconds(exact.transfer[t][exact.kind[d]])) for d in range(num_devices) if profile[d] == at
            )
            flow = capacity * float(rng.choice([1.0, 0.999, 0.5, 1.001])) * (1 - 1e-9)
            prices += [(at, exact.groups[a][0], flow), (at, exact.groups[b][0], -flow)]
        if prices:
            nets.append(PricedNet((t,), tuple(prices)))
    return Prices(
        tuple(profile),
        tuple(map(tuple, work.tolist())),
        tuple(map(tuple, transfer.tolist())),
        tuple(price),
        tuple((op, tuple(weights.tolist())) for op, weights in op_weight.items()),
        tuple(nets),
        random_edges(exact, sorted(set(profile)), rng) if isinstance(variant, SerialLatency) else (),
    )


def random_walk(exact: ExactProblem, op: int, rng: np.random.Generator) -> list[int]:
    """Return a path that goes as far as it can."""
    walk = [op]
    while nexts := [v for u, v in exact.edges if u == walk[-1]]:
        walk.append(int(rng.choice(nexts)))
    return walk


def random_edges(exact: ExactProblem, profiles: list[int], rng: np.random.Generator) -> tuple[PricedEdge, ...]:
    """Return edges of up to two paths, now and then more than one path in all, with flows between their ends."""
    weight: dict[tuple[int, int], float] = {}
    for share in rng.choice([0.0, 0.5, 0.5, 0.6], 2):
        walk = random_walk(exact, int(rng.integers(exact.num_ops)), rng)
        for step in pairwise(walk) if share else ():
            weight[step] = weight.get(step, 0.0) + float(share)
    assert isinstance(exact.problem.objective, SerialLatency)
    cost = exact.problem.objective.subgraph_cost_s
    edges = []
    for (u, v), share in weight.items():
        prices: list[tuple[int, int, float]] = []
        for at in profiles if exact.group_of[u] != exact.group_of[v] else ():
            a, b = rng.permutation([u, v]).tolist()
            flow = cost / 2 * share * float(rng.choice([1.0, 0.5, 1.001])) * (1 - 1e-9)
            prices += [(at, a, flow), (at, b, -flow)]
        edges.append(PricedEdge(u, v, share, tuple(prices)))
    return tuple(edges)


def random_directions(exact: ExactProblem, rng: np.random.Generator) -> Directions:
    """Return prices for both orders of two devices, now and then none for one, or an edge that is none."""
    scale = float(exact.seconds(max(ticks or 0 for row in exact.time for ticks in row)))
    cases = []
    for _ in range(2):
        order = [(u, v, scale * float(rng.exponential())) for u, v in exact.order_edges if rng.random() < 0.6]
        if rng.random() < 0.05:
            order.append((*rng.integers(exact.num_ops, size=2).tolist(), scale))
        is_none = rng.random() < 0.1
        cases.append(None if is_none else OrderedPrices(random_prices(exact, rng), tuple(order)))
    return Directions((cases[0], cases[1]))


def random_shared_work(exact: ExactProblem, op: int, rng: np.random.Generator) -> SharedWork:
    """Return rows of some ops on some devices; often all of them, as the bounds that hold need."""
    rows = []
    for _ in range(int(rng.integers(1, 4))):
        share = float(rng.choice([0.6, 1.0]))
        ops = np.flatnonzero(rng.random(exact.num_ops) < share).tolist() or [op]
        devices = np.flatnonzero(rng.random(exact.num_devices) < share).tolist()
        rows.append((tuple(devices), tuple(ops), float(rng.random())))
    return SharedWork(tuple(rows))


def random_certificate(exact: ExactProblem, rng: np.random.Generator) -> Certificate:
    """Return a certificate of any kind."""
    op = int(rng.integers(exact.num_ops))
    kind = int(rng.integers(5))
    if kind == 1:
        return NoDevice(op)
    if kind == 0 and exact.num_devices == 2:
        return random_directions(exact, rng)
    if kind == 3:
        return random_shared_work(exact, op, rng)
    return random_prices(exact, rng)


def is_true(value: Bound, best: float | None) -> bool:
    """Return whether a bound holds for an optimum that was added up in floats."""
    if best is None:
        return True
    return value is not NOTHING_FEASIBLE and float(value) <= best * (1 + 1e-12) + 1e-300


def bound_of(exact: ExactProblem, certificate: Certificate) -> Bound | None:
    """Return what a certificate proves; None if it is refused."""
    try:
        return proven(exact, certificate)
    except InvalidCertificateError:
        return None


def scaled(part: Any, factor: float) -> Any:
    """Return a certificate with all of its multipliers times a factor."""
    if is_dataclass(part):
        kind: Any = type(part)
        return kind(*(scaled(getattr(part, each.name), factor) for each in fields(part)))
    if isinstance(part, tuple):
        return tuple(scaled(each, factor) for each in part)
    return part * factor if isinstance(part, float) else part


def test_no_certificate_proves_too_much() -> None:
    """Random multipliers, and those scaled past the optimum, are refused or stay below it; many prove something."""
    count = Counter[str]()

    @given(st.data())
    @settings(parent=examples(600), phases=GENERATED)
    def check(data: st.DataObject) -> None:
        problem = data.draw(problems(max_ops=5, max_kinds=2, max_devices=3, objective=OBJECTIVES))
        exact, best = ExactProblem.of(problem), optimum(problem)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        for _ in range(8):
            certificate = random_certificate(exact, rng)
            value = bound_of(exact, certificate)
            count.update(drawn=1, refused=value is None)
            if value is None:
                continue
            assert is_true(value, best)
            if best is None or value is NOTHING_FEASIBLE or value <= 0:
                continue
            count.update(proving=1, good=float(value) >= best / 2)
            for factor in (1.01, 1.01 * best / float(value)):
                above = bound_of(exact, scaled(certificate, factor))
                assert above is None or is_true(above, best)
                count.update(scaled=1, survived=above is not None)

    check()
    assert count["refused"] < 0.6 * count["drawn"]
    assert count["good"] > 0.05 * count["drawn"]


@given(st.data())
@settings(parent=examples(400), phases=GENERATED)
def test_proofs_from_scratch_agree_with_enumeration(data: st.DataObject) -> None:
    """Below the optimum the enumeration and the ideals find nothing, just above it they do; paths are never above."""
    problem = data.draw(problems(max_ops=5, max_kinds=2, max_devices=3, objective=OBJECTIVES))
    if isinstance(problem.objective, Makespan) and (problem.objective.contention or problem.contiguity != "none"):
        problem = problem.replace(objective=Makespan(), contiguity="none")
    exact, best = ExactProblem.of(problem), optimum(problem)
    if best is None:
        assert enumerate_all(exact, None).is_complete
        assert enumerate_all(exact, None).device is None
        return
    assert enumerate_all(exact, None).device is not None
    low, high = (
        Fraction(best) * (1 - Fraction(1, 10**9)),
        Fraction(best) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**200),
    )
    below, above = enumerate_all(exact, low), enumerate_all(exact, high)
    assert below.is_complete
    assert below.device is None
    assert above.device is not None
    for value, expected in ((low, False), (high, True)):
        assert reaches_below(exact, value) in (None, expected)
    if isinstance(problem.objective, Makespan | OffloadLatency):
        assert is_true(exact.seconds(longest_path(exact)), best)


def chain(objective: Objective, memory: float | None = None) -> Problem:
    """Return a -> b -> c of 2, 3 and 2 s on two kinds, with tensors of 1 s on the second."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")], name="chain")
    costs = pk.CostTable(
        ("cpu", "gpu"), np.array([[2.0, 1.0], [3.0, 5.0], [2.0, 1.0]]), np.array([[0.0, 1.0]] * 2), np.full(3, 4.0)
    )
    limits = {} if memory is None else {"cpu": memory, "gpu": memory}
    return Problem(graph, pk.Platform.of(cpu=1, gpu=1, memory_bytes=limits), costs, objective, Contiguity.NONE)


def test_prices_by_hand() -> None:
    """A minimum cut, and each way to claim more than its net bears."""
    exact = ExactProblem.of(chain(SerialLatency()))
    one = ((1.0,), (1.0,))
    # everything on the cpu takes 7; a and c on the gpu 1 + 1 + 3 + 2 transfers: also 7; without flows 1 + 3 + 1
    assert proven(exact, Prices((0, 1), one, one, (0.0, 0.0))) == 5

    def with_flow(seconds: float, back: float) -> Prices:
        nets = (
            PricedNet((0,), ((1, 0, seconds), (1, 1, -back))),
            PricedNet((1,), ((1, 2, seconds), (1, 1, -back))),
        )
        return Prices((0, 1), one, one, (0.0, 0.0), (), nets)

    assert proven(exact, with_flow(1.0, 1.0)) == 7
    with pytest.raises(InvalidCertificateError, match="more flows than they cost"):
        proven(exact, with_flow(1.5, 1.5))
    with pytest.raises(InvalidCertificateError, match="more flows out than in"):
        proven(exact, with_flow(1.0, 0.5))
    with pytest.raises(InvalidCertificateError, match="no weight may be above 1"):
        proven(exact, Prices((0, 1), ((2.0,), (1.0,)), one, (0.0, 0.0)))
    with pytest.raises(InvalidCertificateError, match="no limit"):
        proven(exact, Prices((0, 1), one, one, (1.0, 0.0)))


def test_weights_may_not_exceed_one() -> None:
    """The largest load is at least the average, not twice the average."""
    exact = ExactProblem.of(chain(Throughput()))
    half = ((0.5,), (0.5,))
    assert proven(exact, Prices((0, 1), half, half, (0.0, 0.0))) == 2.5
    with pytest.raises(InvalidCertificateError, match=r"add up to 2\.0"):
        proven(exact, Prices((0, 1), ((1.0,), (1.0,)), half, (0.0, 0.0)))


def test_memory_prices_prove_infeasibility() -> None:
    """Twelve bytes do not fit into ten; they do fit into twelve."""
    nothing = ((0.0,), (0.0,))
    certificate = Prices((0, 1), nothing, nothing, (1.0, 1.0))
    assert proven(ExactProblem.of(chain(SerialLatency(), 5.0)), certificate) is NOTHING_FEASIBLE
    assert proven(ExactProblem.of(chain(SerialLatency(), 8.0)), certificate) == 0
    assert proven(ExactProblem.of(chain(SerialLatency(), 3.0)), NoDevice(0)) is NOTHING_FEASIBLE
    assert proven(ExactProblem.of(chain(SerialLatency(), 5.0)), NoDevice(0)) == 0


def test_ops_run_on_one_device_where_moving_takes_longer() -> None:
    """Five ops of 1 s between a fork and a join: elsewhere they are too late, so the makespan is their sum."""
    names = ["fork", *"abcde", "join"]
    edges = [edge for name in "abcde" for edge in (("fork", name), (name, "join"))]
    graph = pk.OpGraph.from_edges(names, edges)
    costs = pk.CostTable(("gpu",), np.ones((7, 1)), np.full((graph.num_tensors, 1), 10.0), np.zeros(7))
    problem = Problem(graph, pk.Platform.of(gpu=4), costs, Makespan())
    exact = ExactProblem.of(problem)
    assert exact.seconds(longest_path(exact)) == 7
    heads, tails = around(exact)
    assert exact.seconds(min(heads[6].values())) == 6
    assert exact.seconds(min(tails[0].values())) == 6


@given(st.data())
@settings(parent=examples(60), phases=GENERATED)
def test_heads_and_tails_hold_in_every_schedule(data: st.DataObject) -> None:
    """Of the best schedule of every placement: no op starts before its head, or is followed by less than its tail."""
    makespan = st.sampled_from([each for each in MAKESPANS if not each.contention])
    problem = data.draw(problems(max_ops=4, max_kinds=2, max_devices=3, objective=makespan))
    exact = ExactProblem.of(problem.replace(contiguity="none"))
    if any(not devices for devices in exact.allowed):
        return
    heads, tails = around(exact)
    for device in itertools.product(range(exact.num_devices), repeat=exact.num_ops):
        constraints = {name for name, _ in broken_constraints(exact, list(device))}
        if constraints & {"support", "pin", "colocation", "memory"}:
            continue
        for order in itertools.permutations(range(exact.num_ops)):
            ends = ordered_finishes(exact, list(device), list(order), False)
            if ends is None:
                continue
            starts = [end - exact.ticks(op, device[op]) for op, end in enumerate(ends)]
            assert all(start >= heads[op][device[op]] for op, start in enumerate(starts))
            assert all(max(ends) - end >= tails[op][device[op]] for op, end in enumerate(ends))


@given(problems(objective=st.just(Throughput()), contiguity=st.just(Contiguity.CONVEX)), st.integers(1, 10**18))
@examples(40)
def test_units_are_rounded_to_the_side_that_proves(problem: Problem, ticks: int) -> None:
    """Work in units is the largest whole number that is not above the true one; rounded up, the smallest above it."""
    exact = ExactProblem.of(problem)
    groups = list(range(len(exact.groups)))
    for rounds_up in (False, True):
        most = Fraction(3 * ticks, 7)
        program = IdealProgram(exact, [set() for _ in groups], groups, most, rounds_up=rounds_up)
        for devices, row in zip(program.devices, program.work, strict=True):
            for group, units in zip(groups, row, strict=True):
                if devices[0] in exact.allowed[group]:
                    true = sum(exact.ticks(op, devices[0]) for op in exact.groups[group]) * program.limit / most
                    rounded = (
                        -(-true.numerator // true.denominator) if rounds_up else true.numerator // true.denominator
                    )
                    assert units == min(rounded, program.limit)
                else:
                    assert units == program.limit

"""Proofs of chains by runs: rules that hold a bound, one at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import oracle
import pytest
from forged import small
from linked_problems import on_two_nodes

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.memory import MemoryBlocks, Pool
from placekit.objectives import SerialLatency, Throughput
from placekit.verification import runs
from placekit.verification.exact import ExactProblem
from placekit.verification.ideals import IdealProgram, reaches_below
from placekit.verification.runs import RunProgram, runs_below


def line(memory: list[float], limit: float, num_devices: int = 2) -> pk.Problem:
    """Return ops in a line that take a second each, on equal devices with a limit of memory."""
    names = [f"op{at}" for at in range(len(memory))]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    platform = pk.Platform.of(gpu=num_devices, memory_bytes={"gpu": limit})
    times, moves = np.ones((len(memory), 1)), np.zeros((graph.num_tensors, 1))
    costs = pk.CostTable(("gpu",), times, moves, op_memory_bytes=np.array(memory))
    return pk.Problem(graph, platform, costs, objective=Throughput(), contiguity=Contiguity.ACYCLIC)


def test_a_beginning_that_fits_is_no_placement() -> None:
    """Two of three ops have room; a program that forgot the last op would call the problem feasible."""
    exact = ExactProblem.of(line([1.0, 1.0, 1.0], 1.0))
    assert runs_below(exact, None) is False
    assert runs_below(ExactProblem.of(line([1.0, 1.0, 1.0], 2.0)), None) is True


def test_bytes_are_rounded_to_the_side_of_the_proof() -> None:
    """Beyond 2^50 bytes sizes lose digits: down where a placement is to be excluded, up where one is to be shown."""
    exact = ExactProblem.of(line([2.0**53 + 2, 2.0**53 + 2, 2.0**53 + 2], 2.0**54 + 4))
    down, up = (RunProgram(exact, [0, 1, 2], None, rounds_up=rounds_up) for rounds_up in (False, True))
    assert down.shift == up.shift > 0
    for less, more, group in zip(down.held.tolist(), up.held.tolist(), exact.groups, strict=True):
        held = sum(exact.memory[op] for op in group)
        assert less << down.shift <= held <= more << up.shift
        assert less < more


def test_ideals_round_bytes_as_runs_do() -> None:
    """2^53 + 2 bytes in units of 2^5."""
    exact = ExactProblem.of(line([2.0**53 + 2, 2.0**53 + 2, 2.0**53 + 2], 2.0**54 + 4))
    for rounds_up, units in ((False, 2**48), (True, 2**48 + 1)):
        program = IdealProgram(exact, [set(), {0}, {1}], [0, 1, 2], Fraction(10), rounds_up=rounds_up)
        assert program.memory == [units] * 3


def test_seconds_are_rounded_to_the_side_of_the_proof() -> None:
    """Work in units of the value, 7/3 s: down where a placement is to be excluded, up where one is to be shown."""
    exact = ExactProblem.of(line([1.0, 1.0, 1.0], 2.0))
    most = Fraction(7, 3) / exact.tick
    for rounds_up in (False, True):
        program = RunProgram(exact, [0, 1, 2], most, rounds_up=rounds_up)
        true = exact.ticks(0, 0) * program.limit / most
        down = true.numerator // true.denominator
        assert true > down
        assert program._units(exact.ticks(0, 0)) == down + rounds_up


def test_no_placement_is_claimed_where_devices_share_their_memory() -> None:
    """Two ops of a byte fit on two devices, but not into the one byte that both share, of which these know nothing."""
    problem = line([1.0, 1.0], 2.0)
    assert (runs_below(ExactProblem.of(problem), None), reaches_below(ExactProblem.of(problem), Fraction(9))) == (
        True, True,
    )  # fmt: skip
    shared = problem.platform.replace(pools=(Pool("ram", 1.0, problem.platform.device_names),))
    exact = ExactProblem.of(problem.replace(platform=shared))
    assert (runs_below(exact, None), reaches_below(exact, Fraction(9))) == (None, None)


def test_activations_take_no_memory_from_a_bound() -> None:
    """Six bytes of weights do not fit into five, and two activations beside them give none back."""
    problem = line([3.0, 3.0], 5.0, 1)
    blocks = MemoryBlocks.of([(1.0, False, [0, 1])] * 2)
    problem = problem.replace(costs=problem.costs.replace(blocks=blocks))
    assert runs_below(ExactProblem.of(problem), None) is False
    program = RunProgram(ExactProblem.of(problem), [0, 1], None, rounds_up=False)
    assert program._held_from(0).tolist() == [3, 6]


def test_shared_weights_are_in_runs_from_their_first_user_on() -> None:
    """Two bytes that ops 0 and 2 use: once in a run with either, and not in one that begins behind both."""
    problem = line([1.0, 1.0, 1.0, 1.0], 9.0)
    problem = problem.replace(costs=problem.costs.replace(blocks=MemoryBlocks.of([(2.0, True, [0, 2])])))
    program = RunProgram(ExactProblem.of(problem), [0, 1, 2, 3], None, rounds_up=False)
    assert program.shift == 0
    assert [program._held_from(begin).tolist() for begin in range(4)] == [[3, 4, 5, 6], [1, 4, 5], [3, 4], [1]]


def test_nothing_is_below_nothing() -> None:
    """No load is negative, be it of ops that take no time."""
    problem = line([1.0, 1.0], 2.0)
    at_once = problem.replace(costs=replace(problem.costs, op_time_s=np.zeros((2, 1))))
    for exact in (ExactProblem.of(problem), ExactProblem.of(at_once)):
        for below in (Fraction(0), Fraction(-1)):
            assert reaches_below(exact, below) is False
            assert runs_below(exact, below) is False


def test_a_team_shares_its_samples() -> None:
    """Three seconds of work on two devices: as a team they take a second and a half, and never less."""
    exact = ExactProblem.of(line([1.0, 1.0, 1.0], 3.0).replace(objective=Throughput(teams="equal")))
    assert runs_below(exact, Fraction(3, 2) - Fraction(1, 10**9)) is False
    assert (
        runs_below(exact, Fraction(3, 2)) is not True
    )  # thirds that are rounded down reach it, rounded up they do not
    assert runs_below(exact, Fraction(3, 2) + Fraction(1, 10**9)) is True


def test_runs_go_where_they_are_pinned() -> None:
    """The first op and the last are pinned to one device, so that the one between them is there, too."""
    exact = ExactProblem.of(line([1.0, 1.0, 1.0], 3.0).replace(pinned=np.array([1, -1, 1])))
    assert runs_below(exact, Fraction(3) - Fraction(1, 10**9)) is False
    assert runs_below(exact, Fraction(3) + Fraction(1, 10**9)) is True


def test_searches_that_would_take_long_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses of the devices, of two kinds or nodes, times pairs of ops, times devices or triples of neighbours."""
    apart = small(Throughput(), [[1, 1]] * 3, "ab bc", counts=(2, 1), contiguity="acyclic")
    linked = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], Throughput(), contiguity=Contiguity.ACYCLIC)
    for problem, steps in ((apart, (3 * 2) * 3**2 * 3), (linked, (3 * 3) * 4**2 * 3**3)):
        exact = ExactProblem.of(problem)
        monkeypatch.setattr(runs, "MAX_WORK", steps)
        assert runs_below(exact, Fraction(1)) is False
        monkeypatch.setattr(runs, "MAX_WORK", steps - 1)
        assert runs_below(exact, Fraction(1)) is None


def test_a_value_is_excluded_exactly() -> None:
    """Three seconds of work on two devices: two seconds are reached, nothing below."""
    problem = line([1.0, 1.0, 1.0], 2.0)
    exact = ExactProblem.of(problem)
    assert runs_below(exact, Fraction(2)) is False
    assert runs_below(exact, Fraction(2) + Fraction(1, 10**9)) is True
    serial = ExactProblem.of(problem.replace(objective=SerialLatency()))
    assert runs_below(serial, Fraction(3) - Fraction(1, 10**9)) is False
    assert runs_below(serial, Fraction(3) + Fraction(1, 10**9)) is True


@pytest.mark.parametrize("objective", [Throughput(), SerialLatency()], ids=["loads", "sum"])
def test_a_value_over_direct_links_is_excluded_exactly(objective: pk.Objective) -> None:
    """The optimum of four ops on two nodes, with room for one op each, is reached just above it, and not at it."""
    problem = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], objective, contiguity=Contiguity.ACYCLIC)
    devices = tuple(device.replace(memory_bytes=1.0) for device in problem.platform.devices)
    platform = replace(problem.platform, devices=devices)
    problem = problem.replace(platform=platform, costs=replace(problem.costs, op_memory_bytes=np.ones(4)))
    best = oracle.brute_force(problem)
    assert best is not None
    exact = ExactProblem.of(problem)
    assert runs_below(exact, Fraction(best) * (1 - Fraction(1, 10**9))) is False
    assert runs_below(exact, Fraction(best) * (1 + Fraction(1, 10**9))) is True


def random_line(rng: np.random.Generator, *, has_links: bool) -> pk.Problem:
    """Return four or five ops in a line with small whole numbers, on up to four devices of two kinds.

    Tensors go to ops further on, too, but for direct links, which some pairs of devices have.
    """
    num_ops, node = int(rng.integers(4, 6)), ["x", "y"] if has_links else [""]
    names = [f"op{at}" for at in range(num_ops)]
    edges = list(pairwise(names))
    if not has_links and rng.random() < 0.7:
        edges += [(names[at], names[at + 2]) for at in range(num_ops - 2) if rng.random() < 0.5]
    graph = pk.OpGraph.from_edges(names, edges)
    limit = float(rng.integers(4, 9)) if rng.random() < 0.6 else None
    counts = rng.permutation([1, 2]) if rng.random() < 0.7 else [0, 3]
    devices = [
        pk.Device(f"{kind}.{at}", kind, memory_bytes=limit, node=str(rng.choice(node)) or None)
        for kind, count in zip("pq", counts, strict=True)
        for at in range(count)
    ]
    far = pk.DirectLink(1.0, 1e9, None, True)
    links = ((far,) if rng.random() < 0.5 else (pk.DirectLink(1.0, 1e9), far)) if has_links else ()
    kinds = tuple(dict.fromkeys(device.kind for device in devices))
    platform = pk.Platform(tuple(devices), {kind: pk.Link(1.0, 1.0) for kind in kinds}, links)
    size = (graph.num_tensors, len(kinds))
    costs = pk.CostTable(
        kinds,
        rng.integers(1, 6, (num_ops, len(kinds))).astype(float),
        rng.integers(0, 4, size).astype(float),
        rng.integers(1, 4, num_ops).astype(float),
        direct_links=platform.direct_link_names,
        direct_time_s=rng.integers(0, 4, (graph.num_tensors, len(platform.direct_link_names))).astype(float),
    )
    objective = SerialLatency() if rng.random() < 0.5 else Throughput(overlap=bool(rng.random() < 0.5))
    return pk.Problem(graph, platform, costs, objective, Contiguity.ACYCLIC)


@pytest.mark.parametrize("has_links", [False, True], ids=["through memory", "direct links"])
def test_runs_exclude_what_no_placement_reaches(has_links: bool) -> None:
    """Just above the optimum by brute force, at it, and below it, for the programs of runs and of ideals."""
    rng, known = np.random.default_rng(5), Counter[bool | None]()
    for _ in range(60):
        problem = random_line(rng, has_links=has_links)
        best, exact = oracle.brute_force(problem), ExactProblem.of(problem)
        if best is None:
            known[runs_below(exact, None)] += 1
            assert runs_below(exact, None) in (None, False)
            continue
        for factor, expected in ((1 - 1e-9, False), (1 + 1e-9, True)):
            value = Fraction(best) * Fraction(factor)
            said = runs_below(exact, value)
            known[said] += 1
            assert said in (None, expected)
            said = reaches_below(exact.for_bounds, value)  # without links: less is reached than there
            assert said in (None, expected) or (has_links and said)
    assert known[True] > 30
    assert known[False] > 30


def test_what_the_programs_of_runs_do_not_know() -> None:
    """Groups that wait for each other; over direct links tensors that go further, and overlap."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("gpu",), np.ones((3, 1)), np.zeros((2, 1)), np.zeros(3))
    around = pk.Problem(graph, pk.Platform.of(gpu=2), costs, Throughput(), Contiguity.CONVEX, np.array([0, 1, 0]))
    assert runs_below(ExactProblem.of(around), None) is None
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    acyclic = Contiguity.ACYCLIC
    for problem in (
        on_two_nodes([*edges, ("a", "d")], Throughput(), contiguity=acyclic),
        on_two_nodes(edges, Throughput(overlap=True), contiguity=acyclic),
    ):
        assert runs_below(ExactProblem.of(problem), Fraction(1)) is None
    assert runs_below(ExactProblem.of(on_two_nodes(edges, Throughput(), contiguity=acyclic)), Fraction(1)) is False


def test_memory_may_be_met_as_nearly_as_the_judge_allows() -> None:
    """What is above a limit by a part of 1e-12 is still within it, twice as much is not."""
    for above, fits in ((9.0, True), (15.0, False)):
        assert runs_below(ExactProblem.of(line([5e12, 5e12 + above], 1e13, 1)), None) is fits


def test_capacity_of_unused_devices_is_counted() -> None:
    """Ops in a line on devices of two or three kinds, which take an op each, three, or one or two."""
    names = [f"op{at}" for at in range(7)]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    costs = pk.CostTable(("p", "q"), np.ones((7, 2)), np.zeros((6, 2)), np.zeros(7))
    problem = pk.Problem(graph, pk.Platform.of(p=4, q=3), costs, Throughput(), Contiguity.ACYCLIC)
    slow = problem.replace(
        costs=replace(costs, op_time_s=np.array([[1.0, 3.0]] * 7)), platform=pk.Platform.of(p=2, q=1)
    )
    six = replace(costs, op_time_s=np.ones((7, 2)), op_memory_bytes=np.array([1.0] * 6 + [0.0]))
    tight = problem.replace(costs=six, platform=pk.Platform.of(p=2, q=1, memory_bytes={"q": 1.0}))
    assert reaches_below(ExactProblem.of(tight), Fraction(5, 2)) is False  # two, two and one, and what has no bytes
    able = np.array([[False, False, True]] + [[True, True, False]] * 6)  # the third kind begins
    three = np.array([[1.0, 0.5, 1.0]] * 7)
    times = pk.CostTable(("p", "q", "r"), three, np.zeros((6, 3)), np.zeros(7), supported=able)
    third = problem.replace(costs=times, platform=pk.Platform.of(p=2, q=2, r=1))
    many = small(Throughput(), [[1, 1]] * 11, " ".join(map("".join, pairwise("abcdefghijk"))), counts=(6, 5))
    many = many.replace(contiguity=Contiguity.ACYCLIC)
    for case, best in ((problem, 1), (slow, 3), (third, 1), (many, 1)):
        assert reaches_below(ExactProblem.of(case), Fraction(best)) is False
        assert reaches_below(ExactProblem.of(case), Fraction(best) + Fraction(1, 10**9)) is True

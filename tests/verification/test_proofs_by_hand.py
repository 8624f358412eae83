"""Values of proofs from scratch by hand: one that says less than it could passes every comparison with an optimum."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from forged import small

import placekit as pk
from placekit.objectives import Objective
from placekit.verification import exhaustive, ideals
from placekit.verification.exact import ExactProblem, rounded
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.heads import around, longest_path
from placekit.verification.ideals import reaches_below
from placekit.verification.prices import with_subgraphs
from placekit.verification.proofs import SLACK, fastest_everywhere, largest_op, rounded_up, step_of

OFFLOAD, MAKESPAN, LOAD = pk.OffloadLatency(), pk.Makespan(), pk.Throughput()


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        # 1 s on the host, 1 s into the call, 2 s, 1 s out of it, 3 s on the host
        (small(OFFLOAD, [[1, None], [None, 2], [3, None]], "ab bc", move_s=[0, 1], host="p"), 8),
        # one call, in which nothing moves
        (small(OFFLOAD, [[None, 2], [None, 2]], "ab", move_s=[0, 1], host="p"), 4),
        # on the host 4 s and 4 s, in a call 1 s and 1 s; the source is on the host, so 5 s move in
        (small(OFFLOAD, [[1, None], [4, 1], [4, 1]], "ab bc", move_s=[0, 5], host="p"), 8),
        (small(OFFLOAD, [[1, None], [4, 1], [4, 1]], "ab bc", move_s=[0, 3], host="p"), 6),
        # two accelerators: 1 s, out 1 s, in 1 s, 1 s; on the host 9 s each
        (small(OFFLOAD, [[9, 1, None], [9, None, 1]], "ab", counts=(1, 1, 1), move_s=[0, 1, 1], host="p"), 4),
        # a host is as wide as the graph
        (small(OFFLOAD, [[2, None]] * 3, host="p"), 2),
        (small(OFFLOAD, [[2, None], [1, None], [3, None]], "ac bc", host="p"), 5),
        (small(MAKESPAN, [[1, 2], [3, 1]], "ab", move_s=1), 3),
        (small(MAKESPAN, [[1, 9], [9, 1]], "ab", move_s=1), 4),
        (small(MAKESPAN, [[1, None], [None, 1], [1, None]], "ab bc", move_s=[0.5, 1]), 6),
        # b, c and d come too late from elsewhere, so they run one after the other beside a and e
        (small(MAKESPAN, [[1]] * 5, "ab ac ad be ce de", counts=(3,), move_s=9), 5),
        # one of three may go elsewhere in time
        (small(MAKESPAN, [[2]] * 4, "ad bd cd", counts=(2,), move_s=0.5), 5),
    ],
)
def test_longest_paths(problem: pk.Problem, seconds: float) -> None:
    """Each op where its path is shortest."""
    exact = ExactProblem.of(problem)
    assert exact.seconds(longest_path(exact)) == seconds


def test_heads_and_tails() -> None:
    """Of a -> b, a being quick on p and b on q; devices that are alike have the same."""
    exact = ExactProblem.of(small(MAKESPAN, [[1, 2], [3, 1]], "ab", counts=(1, 3), move_s=1))
    heads, tails = ([{d: exact.seconds(ticks) for d, ticks in row.items()} for row in rows] for rows in around(exact))
    assert heads == [{0: 0, 1: 0, 2: 0, 3: 0}, {0: 1, 1: 2, 2: 2, 3: 2}]
    assert tails == [{0: 3, 1: 1, 2: 1, 3: 1}, {0: 0, 1: 0, 2: 0, 3: 0}]


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        (small(LOAD, [[2, 3], [4, 1]]), 2),
        (small(LOAD, [[2, 3], [4, None]], together=[0, 0]), 6),
        (small(pk.Throughput(teams="equal"), [[6, 3]], counts=(3, 1)), 2),
        (small(pk.Throughput(teams="equal"), [[6, 1]], counts=(3, 1)), 1),
        (small(pk.Throughput(teams="any"), [[6, 3]]), 2),
        (small(pk.Throughput(teams="any"), [[0, 3]]), 0),
        (small(OFFLOAD, [[2, 9], [3, 9]], together=[0, 0], host="p"), 3),
    ],
)
def test_largest_ops(problem: pk.Problem, seconds: float) -> None:
    """Each group on its fastest device, or team; the ops of a group at the same time on a host."""
    assert largest_op(ExactProblem.of(problem)) == seconds


COSTLY: Objective = pk.SerialLatency(subgraph_cost_s=10)


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        (small(COSTLY, [[1, 3], [3, 1]]), 4 + 10),  # all on one device is better than two subgraphs
        (small(COSTLY, [[1, 99], [99, 1]]), 2 + 20),
        (small(COSTLY, [[1, None], [None, 1]]), 2 + 20),
        (small(COSTLY, [[1], [1]], counts=(1,)), 2 + 10),
        (small(COSTLY, [[1]] * 3, counts=(3,), size=1, memory={"p": 1}), 3 + 30),
        (small(COSTLY, [[1]] * 3, counts=(3,), size=1, memory={"p": 2}), 3 + 20),
        (small(COSTLY, [[1]] * 3, counts=(3,), size=1, memory={"p": 3}), 3 + 10),
        (small(COSTLY, [[1, 1]] * 3, size=1, memory={"p": 1}), 3 + 10),  # the other one has no limit
        (small(COSTLY, [[1, None, None], [None, 1, None], [None, None, 1]], counts=(1, 1, 1)), 3 + 30),
    ],
)
def test_subgraphs_are_counted(problem: pk.Problem, seconds: float) -> None:
    """One per device that must be used, or one in all."""
    exact = ExactProblem.of(problem)
    assert with_subgraphs(exact, fastest_everywhere(exact)) == seconds


def test_a_device_that_all_ops_overfill_lowers_no_proof() -> None:
    """All on p would take nothing, but does not fit; a proof of what p lacks room for stands, with a subgraph or two.

    Where all fit on p, the proof itself is what is left.
    """
    problem = small(COSTLY, [[0, 4], [0, 4]], size=2, memory={"p": 3})
    assert with_subgraphs(ExactProblem.of(problem), Fraction(3)) == 8 + 10  # all on q
    assert with_subgraphs(ExactProblem.of(problem), Fraction(9)) == 9 + 10
    whole = ExactProblem.of(small(COSTLY, [[0, 4], [0, 4]], size=2, memory={"p": 4}))
    assert with_subgraphs(whole, Fraction(3)) == 3 + 10


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        (small(LOAD, [[0.055, 0.11]]), Fraction(55, 1000)),
        (small(LOAD, [[0.5], [0.75]], "ab", counts=(1,), move_s=0.2), Fraction(5, 100)),
        (small(pk.SerialLatency(subgraph_cost_s=0.3), [[1.0]], counts=(1,)), Fraction(1, 10)),
        (small(LOAD, [[6.0], [4.0]], counts=(1,)), Fraction(2)),
        (small(LOAD, [[0.0]], counts=(1,)), None),
        (small(LOAD, [[1 / 3]], counts=(1,)), None),
        (small(LOAD, [[1e-12]], counts=(1,)), Fraction(1, 10**12)),
        (small(LOAD, [[1e-13]], counts=(1,)), None),
        (small(LOAD, [[2.0**41]], counts=(1,)), None),
        (small(pk.Throughput(teams="any"), [[1.0]], counts=(1,)), None),
    ],
)
def test_steps_of_time(problem: pk.Problem, step: Fraction | None) -> None:
    """The largest one that all times and constants are multiples of, in decimals; teams divide times."""
    assert step_of(ExactProblem.of(problem)) == step


def test_bounds_are_rounded_up_to_steps() -> None:
    """To the next multiple, less the slack; what is a multiple already stays, and nothing is made of 0."""
    step = Fraction(1, 10)
    assert rounded_up(Fraction(1, 4), step) == Fraction(3, 10) * (1 - SLACK)
    assert rounded_up(Fraction(3, 10), step) == Fraction(3, 10)
    assert rounded_up(Fraction(1, 4), None) == Fraction(1, 4)
    assert rounded_up(Fraction(0), step) == 0
    assert rounded_up(Fraction(-1), step) == -1
    assert rounded(Fraction(1, 3)) == 1 / 3
    assert rounded(Fraction(10) ** 400) == -rounded(-(Fraction(10) ** 400)) == np.finfo(float).max


def test_the_least_that_a_kind_pays_without_direct_links() -> None:
    """A second through host memory; 0.25 s over the link that q has among its devices, and p has not."""
    problem = small(LOAD, [[1, 1]] * 2, "ab", counts=(2, 2), move_s=1)
    links = (pk.DirectLink(0.25, 1e9, ("q", "q")),)
    platform = pk.Platform(problem.platform.devices, problem.platform.links, links)
    costs = problem.costs.replace(direct_links=platform.direct_link_names, direct_time_s=np.array([[0.25]]))
    exact = ExactProblem.of(problem.replace(platform=platform, costs=costs)).without_links
    assert [exact.seconds(ticks) for ticks in exact.transfer[0]] == [1, 0.25]


# a and c are on p, b between them on q
AND_BACK = small(LOAD, [[1, None], [None, 0], [1, None]], "ab bc", contiguity="acyclic")
CHAIN = small(LOAD, [[1]] * 4, "ab bc cd", counts=(2,), move_s=0.5, contiguity="acyclic")  # 2.5 s


def test_ideals_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes no time still has its place; limits of memory and of devices; nothing is said beyond its limits."""
    assert reaches_below(ExactProblem.of(AND_BACK), Fraction(100)) is False
    exact = ExactProblem.of(CHAIN)
    assert [reaches_below(exact, Fraction(below)) for below in ("2.4", "2.6", "4.1")] == [False, True, True]
    even = small(LOAD, [[1]] * 2, "ab", counts=(2,), move_s=1, contiguity="acyclic")  # 2 s in any way
    assert [reaches_below(ExactProblem.of(even), Fraction(below)) for below in ("2", "2.1")] == [False, True]
    overlap = ExactProblem.of(CHAIN.replace(objective=pk.Throughput(overlap=True)))
    assert [reaches_below(overlap, Fraction(below)) for below in ("1.9", "2.1")] == [False, True]
    for below in (0, -1):
        assert reaches_below(exact, Fraction(below)) is False
    tight = small(LOAD, [[1]] * 4, "ab bc cd", counts=(2,), size=1, memory={"p": 1}, contiguity="acyclic")
    assert reaches_below(ExactProblem.of(tight), Fraction(100)) is False
    mixed = small(LOAD, [[1, 3], [3, 1], [1, 3]], "ab bc", counts=(2, 1), contiguity="acyclic")
    assert [reaches_below(ExactProblem.of(mixed), Fraction(below)) for below in ("0.9", "1.1")] == [False, True]
    for name in ("MAX_IDEALS", "MAX_PAIRS", "MAX_ENTRIES", "MAX_STATES"):
        with monkeypatch.context() as patched:
            patched.setattr(ideals, name, 0)
            assert reaches_below(exact, Fraction("2.4")) is None, name
    for other in (
        CHAIN.replace(contiguity="none"),
        CHAIN.replace(objective=MAKESPAN),
        CHAIN.replace(objective=pk.Throughput(teams="equal")),
    ):
        assert reaches_below(ExactProblem.of(other), Fraction("2.4")) is None


def test_enumeration_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups or ops are not begun with; steps end it."""
    exact = ExactProblem.of(CHAIN)
    assert enumerate_all(exact, Fraction("2.5")).is_complete
    assert not enumerate_all(exact, Fraction("2.5"), max_steps=3).is_complete
    for name, most in (("MAX_GROUPS", 4), ("MAX_OPS", 4)):
        with monkeypatch.context() as patched:
            patched.setattr(exhaustive, name, most)
            assert enumerate_all(exact, Fraction("2.5")).is_complete
            patched.setattr(exhaustive, name, most - 1)
            assert not enumerate_all(exact, Fraction("2.5")).is_complete


def test_leaves_that_take_little_time_are_left_out() -> None:
    """Forty constants of 1 us on a chain would be 2**40 ideals; without them it is still proven that 2 s is best."""
    names = [f"op{i}" for i in range(4)] + [f"constant{i}" for i in range(40)]
    edges = [("op0", "op1"), ("op1", "op2"), ("op2", "op3"), *((f"constant{i}", f"op{i % 4}") for i in range(40))]
    graph = pk.OpGraph.from_edges(names, edges)
    times = np.array([[1.0]] * 4 + [[1e-6]] * 40)
    costs = pk.CostTable(("gpu",), times, np.full((graph.num_tensors, 1), 1e-3), np.zeros(len(names)))
    exact = ExactProblem.of(pk.Problem(graph, pk.Platform.of(gpu=2), costs))
    assert reaches_below(exact, Fraction(2)) is False
    assert reaches_below(exact, Fraction(3)) is None  # what was left out might make a difference


def test_leaves_of_leaves_are_left_out() -> None:
    """Forty pairs of ops that take no time, one behind the other, before or behind a chain: all of them go."""
    chain = [("op0", "op1"), ("op1", "op2"), ("op2", "op3")]
    for is_behind in (True, False):
        pairs = [(f"op{at % 4}", f"x{at}", f"y{at}")[:: 1 if is_behind else -1] for at in range(40)]
        edges = [edge for a, b, c in pairs for edge in ((a, b), (b, c))]
        names = [f"op{at}" for at in range(4)] + [f"{letter}{at}" for at in range(40) for letter in "xy"]
        graph = pk.OpGraph.from_edges(names, chain + edges)
        times = np.array([[1.0]] * 4 + [[0.0]] * 80)
        costs = pk.CostTable(("gpu",), times, np.zeros((graph.num_tensors, 1)), np.zeros(len(names)))
        exact = ExactProblem.of(pk.Problem(graph, pk.Platform.of(gpu=2), costs))
        assert reaches_below(exact, Fraction(2)) is False

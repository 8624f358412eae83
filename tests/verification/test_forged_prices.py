"""One forged certificate per rule of prices and directions: without the rule it would prove what is not true.

The comment of each says what it would prove, and of which optimum. What is malformed is refused, too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from forged import prices, small

import placekit as pk
from placekit.model.errors import InvalidCertificateError
from placekit.solve.certificates import (
    Certificate,
    Directions,
    NoDevice,
    OrderedPrices,
    PricedEdge,
    PricedNet,
    Prices,
)
from placekit.verification.exact import ExactProblem
from placekit.verification.prices import NOTHING_FEASIBLE, Bound
from placekit.verification.proofs import proven
from placekit.verification.verify import certifies

SERIAL, LOAD, OVERLAP = pk.SerialLatency(), pk.Throughput(), pk.Throughput(overlap=True)
GPIPE = pk.Throughput(schedule="gpipe")

ONE = small(LOAD, [[1.0]], counts=(1,))  # an op of 1 s on the only device
FREE = small(LOAD, [[1.0, 1.0], [1.0, 1.0]])  # two ops of 1 s on two devices: 1 s
MOVED = small(LOAD, [[0.0, None], [None, 0.0]], "ab", move_s=1.0)  # a tensor that leaves p for q: 1 s on each
BOTH_PASSES = small(GPIPE, [[1.0], [1.0]], counts=(1,), is_backward=[False, True])  # 1 s forward and 1 s backward
LIMITED = small(LOAD, [[1.0], [1.0]], counts=(2,), size=1.0, memory={"p": 100.0})  # 1 s


def flow(seconds: float, *tensors: int, payer: int = 0, receiver: int = 1, profile: int = 0) -> PricedNet:
    """Return a net in which one op pays another on the devices of a profile."""
    return PricedNet(tensors or (0,), ((profile, payer, seconds), (profile, receiver, -seconds)))


NUMBERS = "must be finite and at least 0"
SHAPES = "must have weights for"
PROFILES = "must name one of"
OF_OPS = "weights of at least 0, once"
FORGED_WEIGHTS: dict[str, tuple[pk.Problem, Prices, str]] = {
    # 3 s of 1 s: with overlap the two add up to 1
    "negative transfers": (ONE.replace(objective=OVERLAP), prices([3.0], [-2.0]), NUMBERS),
    # 3 s of 1 s: the price of the tensor is within what three times its transfer costs
    "negative work": (
        MOVED.replace(objective=OVERLAP),
        prices([-2.0, 0.0], [3.0, 0.0], nets=[flow(3.0)]),
        NUMBERS,
    ),
    # 199 s of 1 s: bytes that are not there are paid for
    "negative price of memory": (LIMITED, prices([0.5], memory=[-1.0], profile=(0, 0)), NUMBERS),
    "no number of work": (ONE, prices([math.nan]), NUMBERS),
    "endless work": (ONE, prices([math.inf]), NUMBERS),
    "no number of transfers": (ONE, prices([0.0], [math.nan]), NUMBERS),
    "endless transfers": (ONE, prices([0.0], [math.inf]), NUMBERS),
    "no price of memory": (LIMITED, prices([0.5], memory=[math.nan], profile=(0, 0)), NUMBERS),
    "endless price of memory": (LIMITED, prices([0.5], memory=[math.inf], profile=(0, 0)), NUMBERS),
    # 5 s of 1 s: only the first pass is added up, as the first row has no other
    "a pass that is not added up": (
        small(GPIPE, [[None, 1.0]], is_backward=[True]),
        Prices((0, 1), ((1.0,), (0.0, 5.0)), ((0.0,), (0.0, 0.0)), (0.0, 0.0)),
        SHAPES,
    ),
    "one pass of two": (BOTH_PASSES, prices([1.0]), SHAPES),
    "two passes of one": (ONE, prices([[1.0, 1.0]]), SHAPES),
    "one pass of transfers": (BOTH_PASSES, prices([[1.0, 1.0]], [1.0]), SHAPES),
    "a row too few": (FREE, prices([1.0], [0.0], [0.0, 0.0], profile=(0, 0)), SHAPES),
    "a row too many": (FREE, prices([0.5, 0.5], [0.0, 0.0], [0.0], profile=(0, 0)), SHAPES),
    "a row of transfers too few": (FREE, prices([0.5, 0.5], [0.5]), SHAPES),
    "a device without a profile": (FREE, prices([1.0], profile=(0,)), PROFILES),
    "a profile of no device": (FREE, prices([0.3], profile=(0, 0, 0)), PROFILES),
    "a profile beyond the last": (FREE, prices([0.5], profile=(0, 1)), PROFILES),
    "a profile before the first": (FREE, prices([0.5], profile=(0, -1)), PROFILES),
    # infeasible, with 4 bytes on a device without a limit, and an optimum of 0 s
    "a price of unlimited memory": (
        small(LOAD, [[0.0, 0.0]], size=4.0, memory={"q": 1.0}),
        prices([0.0, 0.0], memory=[1.0, 1.0]),
        "memory price for device 0, which has no limit",
    ),
    # 5.5 s of 5 s
    "a negative weight of an op": (
        small(LOAD, [[4.0], [1.0]], counts=(1,)),
        prices([0.0], ops={0: 1.5, 1: -0.5}),
        OF_OPS,
    ),
    "no weight of an op": (ONE, prices([0.0], ops={0: math.nan}), OF_OPS),
    "an endless weight of an op": (ONE, prices([0.0], ops={0: math.inf}), OF_OPS),
    "an op twice": (ONE, prices([0.0], ops=[(0, (0.5,)), (0, (0.5,))]), OF_OPS),
    "two passes of an op": (ONE, prices([0.0], ops={0: (0.5, 0.5)}), OF_OPS),
    "no such op": (ONE, prices([0.0], ops={1: 1.0}), "names op 1; the problem has 1"),
    "an op from the end": (ONE, prices([0.0], ops={-1: 1.0}), "names op -1; the problem has 1"),
}

ABOVE_1 = "no weight may be above 1, and ops have none of their own"
HOSTS = "hosts run ops at the same time and have no weight"
APART = small(SERIAL, [[1.0, None], [None, 1.0]])  # an op of 1 s on each device, one after the other
ON_HOST = small(pk.OffloadLatency(), [[1.0], [1.0]], counts=(1,), host="p")  # both at the same time: 1 s
FORGED_RULES: dict[str, tuple[pk.Problem, Prices, str]] = {
    # 4 s of 2 s
    "serial latency, work twice": (APART, prices([2.0, 2.0], [1.0, 1.0]), ABOVE_1),
    # 3 s of 2 s: 2 s at p, 1 s at q
    "serial latency, transfers twice": (
        MOVED.replace(objective=SERIAL),
        prices([1.0, 1.0], [2.0, 1.0], nets=[PricedNet((0,), ((0, 0, 2.0), (0, 1, -2.0), (1, 1, 1.0), (1, 0, -1.0)))]),
        ABOVE_1,
    ),
    # 3 s of 2 s: the op's work counts on its device, and once more
    "serial latency, an op twice": (APART, prices([1.0, 1.0], [1.0, 1.0], ops={0: 1.0}), ABOVE_1),
    # 3 s of 2 s: three tensors go from p to q at the same time, and each takes a second at either end
    "makespan, transfers in a row": (
        small(pk.Makespan(), [[0.0, None], [None, 0.0]] * 3, "ab cd ef", move_s=1.0),
        prices([0.0, 0.0], [1.0, 0.0], nets=[flow(1.0, t, payer=2 * t, receiver=2 * t + 1) for t in range(3)]),
        "transfers overlap with work and have no weight",
    ),
    # 2 s of 1 s
    "offload latency, ops of a host in a row": (ON_HOST, prices([1.0]), HOSTS),
    # 5 s of 1 s: the host's side of a transfer is free
    "offload latency, transfers of a host": (
        small(pk.OffloadLatency(), [[0.0, None], [None, 0.0]], "ab", move_s=[5.0, 1.0], host="p"),
        prices([0.0, 0.0], [1.0, 0.0], nets=[flow(5.0)]),
        HOSTS,
    ),
    # 2 s of 1 s: the two ops share a host, and run there at the same time
    "offload latency, a group in a row": (
        small(pk.OffloadLatency(), [[1.0], [1.0]], counts=(1,), host="p", together=[0, 0]),
        prices([0.0], ops={0: 1.0}),
        HOSTS,
    ),
    # 1 s of 0.5 s: both devices take half of the samples
    "an op that a team shares": (
        small(pk.Throughput(teams="any"), [[1.0, 1.0]]),
        prices([0.0, 0.0], ops={0: 1.0}),
        "with teams of any devices no group has a weight of its own",
    ),
    # 2 s of 1 s, each
    "two devices of weight 1": (FREE, prices([1.0, 1.0]), r"add up to 2\.0; at most 1"),
    "a profile of two devices": (
        small(LOAD, [[1.0], [1.0]], counts=(2,)),
        prices([1.0], profile=(0, 0)),
        r"add up to 2\.0; at most 1",
    ),
    "a device and an op": (ONE, prices([1.0], ops={0: 1.0}), r"add up to 2\.0; at most 1"),
    # 2 s of 1 s: work overlaps with transfers
    "work and transfers that overlap": (
        small(OVERLAP, [[1.0, None], [None, 1.0]], "ab", move_s=1.0),
        prices([1.0, 0.0], [1.0, 0.0], nets=[flow(1.0)]),
        r"add up to 2\.0; at most 1",
    ),
    # 3 s of 2 s: each pass has a weight of 1
    "a pass twice": (BOTH_PASSES, prices([[1.0, 2.0]]), r"add up to 2\.0; at most 1"),
    "transfers of two devices": (MOVED, prices([0.0, 0.0], [1.0, 0.5]), r"add up to 1\.5; at most 1"),
}

BETWEEN = small(LOAD, [[None, 0.0], [None, 0.0], [0.0, None]], "ab", move_s=1.0)  # a and b on q, c on p: 0 s


def of_transfers(*nets: PricedNet) -> Prices:
    """Return prices of what device p sends and receives."""
    return prices([0.0, 0.0], [1.0, 0.0], nets=nets)


FORGED_NETS: dict[str, tuple[pk.Problem, Prices, str]] = {
    # 2 s of 1 s, each
    "a tensor in two nets": (MOVED, of_transfers(flow(1.0), flow(1.0)), r"hands out a tensor of \[0\] twice"),
    "a tensor twice in a net": (MOVED, of_transfers(flow(2.0, 0, 0)), r"names a tensor of \[0, 0\] twice"),
    "a tensor by two names": (MOVED, of_transfers(flow(1.0), flow(1.0, -1)), "names tensor -1; the problem has 1"),
    "more than the transfer": (MOVED, of_transfers(flow(2.0)), "more flows than they cost on profile 0"),
    # 0.5 s of 0.25 s: what one receives makes up for nothing that the other pays
    "a little more than the transfer": (
        small(LOAD, [[0.0, None], [None, 0.0]], "ab", move_s=0.25),
        of_transfers(flow(0.5)),
        "more flows than they cost on profile 0",
    ),
    "no such tensor": (MOVED, of_transfers(flow(1.0, 1)), "names tensor 1; the problem has 1"),
    # 1 s of 0 s: c pays for a tensor that it does not touch, to an op that is never on p
    "an op beside the net": (
        BETWEEN,
        of_transfers(flow(1.0, payer=2, receiver=0)),
        "price 1.0 of op 2 does not belong to tensors",
    ),
    # 2 s of 1 s: both tensors have to be touched, and c touches one only
    "an op that touches one tensor of two": (
        small(LOAD, [[None, 0.0], [0.0, 0.0], [0.0, None]], "ab bc", move_s=1.0),
        of_transfers(flow(2.0, 0, 1, payer=2, receiver=0)),
        "price 2.0 of op 2 does not belong to tensors",
    ),
    # 1 s of 0 s: what a pays nobody receives
    "out of nothing": (
        small(LOAD, [[0.0], [0.0]], "ab", counts=(1,), move_s=1.0),
        prices([0.0], [1.0], nets=[PricedNet((0,), ((0, 0, 1.0),))]),
        "more flows out than in on profile 0",
    ),
    "a profile that no device has": (MOVED, of_transfers(flow(1.0, profile=2)), "does not belong to tensors"),
    "no number": (MOVED, of_transfers(flow(math.nan)), "price nan of op 0 does not belong"),
    "an endless price": (MOVED, of_transfers(flow(math.inf)), "price inf of op 0 does not belong"),
    "no such op": (MOVED, of_transfers(flow(1.0, payer=2)), "names op 2; the problem has 2"),
}

COSTLY = pk.SerialLatency(subgraph_cost_s=1.0)
ONES = ([1.0, 1.0], [1.0, 1.0])


def edge(sender: int, receiver: int, weight: float = 1.0, paid: float = 0.5) -> PricedEdge:
    """Return an edge whose sender pays on p, and its receiver on q."""
    handed = ((0, sender, paid), (0, receiver, -paid), (1, receiver, paid), (1, sender, -paid))
    return PricedEdge(sender, receiver, weight, handed)


# a on p leads to b on q, beside c on p which leads to d on q: 4 s of work, and two subgraphs
TWO_PATHS = small(COSTLY, [[1.0, None], [None, 1.0]] * 2, "ab cd")
CHANGE = small(COSTLY, [[0.0, None], [None, 0.0]], "ab")  # two subgraphs: 2 s
NO_WEIGHT = "has no weight"
FORGED_EDGES: dict[str, tuple[pk.Problem, Prices, str]] = {
    # 7 s of 6 s
    "two paths": (TWO_PATHS, prices(*ONES, edges=[edge(0, 1), edge(2, 3)]), "more than one path"),
    # 3 s of 2 s: without edges there are no more than two subgraphs
    "edges that are none": (
        small(COSTLY, [[0.0, None], [None, 0.0], [0.0, None]]),
        prices(*ONES, edges=[edge(0, 1), edge(1, 2)]),
        "0 -> 1 has no weight 1.0",
    ),
    "an edge against its direction": (CHANGE, prices(*ONES, edges=[edge(1, 0)]), "1 -> 0 has no weight 1.0"),
    # 3 s of 2 s: the edge to b counts twice, and the path through c takes one away
    "negative weights": (
        small(COSTLY, [[0.0, None], [None, 0.0], [0.0, None]], "ab ac cb"),
        prices(*ONES, edges=[edge(0, 1, 2.0, 1.0), PricedEdge(0, 2, -1.0, ()), PricedEdge(2, 1, -1.0, ())]),
        "0 -> 2 has no weight -1.0",
    ),
    "an edge twice": (CHANGE, prices(*ONES, edges=[edge(0, 1, 0.5, 0.0)] * 2), "0 -> 1 has no weight 0.5"),
    "no number": (CHANGE, prices(*ONES, edges=[edge(0, 1, math.nan)]), "has no weight nan"),
    "an endless weight": (CHANGE, prices(*ONES, edges=[edge(0, 1, math.inf)]), "has no weight inf"),
    # 3 s of 2 s: both ends pay the whole change
    "a change paid twice": (CHANGE, prices(*ONES, edges=[edge(0, 1, paid=1.0)]), "edge 0 -> 1: more flows than"),
    "an op beside the edge": (
        TWO_PATHS,
        prices(*ONES, edges=[PricedEdge(0, 1, 1.0, ((0, 2, 0.5), (0, 1, -0.5)))]),
        "price 0.5 of op 2 does not belong to edge 0 -> 1",
    ),
    "another objective": (
        small(LOAD, [[0.0, None], [None, 0.0]], "ab"),
        prices([0.5, 0.5], edges=[edge(0, 1)]),
        "objective throughput has no cost per subgraph",
    ),
}

ACROSS = small(LOAD, [[None, 1.0], [1.0, None]], "ab", contiguity="acyclic")  # a on q leads to b on p: 1 s
AVERAGE = prices([0.5, 0.5])
RULE = "cases of two devices under contiguity acyclic"


def directions(*orders: tuple[tuple[int, int, float], ...] | None, of: Prices = AVERAGE) -> Directions:
    """Return prices with an order for either direction."""
    first, second = (None if order is None else OrderedPrices(of, order) for order in orders)
    return Directions((first, second))


FORGED_DIRECTIONS: dict[str, tuple[pk.Problem, Directions, str]] = {
    # infeasible, with an optimum of 2 s: a, b and c may go to p, to q and back
    "any order": (small(LOAD, [[1.0, None], [None, 1.0], [1.0, None]], "ab bc"), directions(None, None), RULE),
    # infeasible, with an optimum of 1 s: a comes first on the third device
    "three devices": (
        small(
            LOAD,
            [[None, None, 1.0], [1.0, None, None], [None, 1.0, None]],
            "ab ac",
            counts=(1, 1, 1),
            contiguity="acyclic",
        ),
        directions(None, None),
        RULE,
    ),
    "one device": (small(LOAD, [[1.0], [1.0]], "ab", counts=(1,), contiguity="acyclic"), directions(None, None), RULE),
    # infeasible, with an optimum of 1 s, each: q may come first, and p where nothing leads from q to it
    "q may come first": (ACROSS, directions(None, None), "device 1 may come first, and there is no proof"),
    "p may come first": (
        small(LOAD, [[1.0, None], [None, 1.0]], "ab", contiguity="acyclic"),
        directions(None, None),
        "device 0 may come first, and there is no proof",
    ),
    # 11 s of 1 s: ops that no edge orders pay for their order
    "an edge that is none": (
        small(LOAD, [[None, 1.0], [1.0, None]], contiguity="acyclic"),
        directions(((0, 1, 10.0),), ((1, 0, 10.0),)),
        "0 -> 1 has no price 10.0 of its order",
    ),
    # 11 s of 1 s, each: a pays on q, which comes first
    "an edge against its direction": (ACROSS, directions(None, ((1, 0, 10.0),)), "1 -> 0 has no price 10.0"),
    "a negative price": (ACROSS, directions(None, ((0, 1, -10.0),)), "0 -> 1 has no price -10.0"),
    "a price a little below 0": (ACROSS, directions(None, ((0, 1, -0.5),)), "0 -> 1 has no price -0.5"),
    "no number": (ACROSS, directions(None, ((0, 1, math.nan),)), "0 -> 1 has no price nan"),
    "an endless price": (ACROSS, directions(None, ((0, 1, math.inf),)), "0 -> 1 has no price inf"),
    "a profile for both": (ACROSS, directions(None, (), of=prices([0.5], profile=(0, 0))), "profiles of their own"),
    "a device without a profile": (ACROSS, directions(None, (), of=prices([1.0], profile=(0,))), "of their own"),
    "prices above 1": (ACROSS, directions(None, (), of=prices([1.0, 1.0])), r"add up to 2\.0"),
}

ALL: dict[str, tuple[pk.Problem, Certificate, str]] = {
    f"{kind}: {name}": each
    for kind, forged in (
        ("weights", FORGED_WEIGHTS),
        ("rules", FORGED_RULES),
        ("nets", FORGED_NETS),
        ("edges", FORGED_EDGES),
        ("directions", FORGED_DIRECTIONS),
    )
    for name, each in forged.items()
}


@pytest.mark.parametrize("name", ALL)
def test_forged_prices_are_refused(name: str) -> None:
    """For the reason that the rule names; so nothing is certified, however little is claimed."""
    problem, certificate, words = ALL[name]
    with pytest.raises(InvalidCertificateError, match=words):
        proven(ExactProblem.of(problem), certificate)
    assert not certifies(certificate, 0.0, problem)
    assert not certifies(certificate, None, problem)


APIECE = small(LOAD, [[1.0, 1.0]] * 3, size=4.0, memory={"p": 10.0, "q": 10.0})
SHARED = pk.Pool("ram", 10.0, APIECE.platform.device_names)
POOLED = APIECE.replace(platform=replace(APIECE.platform, pools=(SHARED,)))
ENOUGH = APIECE.replace(platform=replace(APIECE.platform, pools=(replace(SHARED, memory_bytes=12.0),)))
BOTH_ENDS = PricedNet((0,), ((0, 0, 1.0), (0, 1, -1.0), (1, 1, 1.0), (1, 0, -1.0)))
HONEST: dict[str, tuple[pk.Problem, Certificate, Bound]] = {
    "the average": (FREE, prices([0.5, 0.5]), 1),
    # three ops of 4 bytes, 10 on each of two devices, which share 10
    "bytes of a pool": (POOLED, prices([0.0, 0.0], memory=[1.0, 1.0]), NOTHING_FEASIBLE),
    # half of 3 s, 12 bytes used and 12 shared, which may be exceeded by a part of 1e-12
    "work beside bytes of a pool": (
        ENOUGH,
        prices([0.5, 0.5], memory=[1.0, 1.0]),
        Fraction(3, 2) + 12 - 12 * (1 + Fraction(1, 10**12)),
    ),
    "all weight on one device": (ONE, prices([1.0], [1.0]), 1),
    "work and transfers of the same seconds": (
        small(LOAD, [[1.0, None], [None, 1.0]], "ab", move_s=1.0),
        prices([1.0, 0.0], [1.0, 0.0], nets=[flow(1.0)]),
        2,
    ),
    "work and transfers that overlap": (
        small(OVERLAP, [[1.0, None], [None, 1.0]], "ab", move_s=1.0),
        prices([0.5, 0.0], [0.5, 0.0], nets=[flow(0.5)]),
        1,
    ),
    "a group of its own": (ONE, prices([0.0], ops={0: 1.0}), 1),
    "a group of two ops": (small(LOAD, [[1.0], [2.0]], counts=(1,), together=[0, 0]), prices([0.0], ops={1: 1.0}), 3),
    "a group that equal devices share": (
        small(pk.Throughput(teams="equal"), [[1.0]], counts=(2,)),
        prices([0.0], profile=(0, 0), ops={0: 1.0}),
        0.5,
    ),
    "no weight of a group that any devices share": (
        small(pk.Throughput(teams="any"), [[1.0, 1.0]]),
        prices([0.5, 0.5], ops={0: 0.0}),
        0.5,
    ),
    "two passes": (BOTH_PASSES, prices([[1.0, 1.0]]), 2),
    "the backward pass": (BOTH_PASSES, prices([[0.0, 1.0]]), 1),
    "makespan": (FREE.replace(objective=pk.Makespan()), prices([0.5, 0.5]), 1),
    "offload latency": (
        small(pk.OffloadLatency(), [[0.0, None], [None, 2.0]], "ab", move_s=[0.0, 1.0], host="p"),
        prices([0.0, 1.0], [0.0, 1.0], nets=[flow(1.0, payer=1, receiver=0, profile=1)]),
        3,
    ),
    "serial latency": (MOVED.replace(objective=SERIAL), prices(*ONES, nets=[BOTH_ENDS]), 2),
    # a path has one change, and each end pays half of it
    "one path": (TWO_PATHS, prices(*ONES, edges=[edge(0, 1)]), 6),
    "half of two paths": (TWO_PATHS, prices(*ONES, edges=[edge(0, 1, 0.5, 0.25), edge(2, 3, 0.5, 0.25)]), 6),
    "a path of two edges": (
        small(COSTLY, [[0.0, None], [None, 0.0], [0.0, None]], "ab bc"),
        prices(
            *ONES, edges=[edge(0, 1), PricedEdge(1, 2, 1.0, ((1, 1, 0.5), (1, 2, -0.5), (0, 2, 0.5), (0, 1, -0.5)))]
        ),
        3,
    ),
    "an edge without weight": (CHANGE, prices(*ONES, edges=[edge(0, 1, 0.0, 0.0)]), 1),
    "a tensor to two readers": (
        small(LOAD, [[0.0, None], [None, 0.0], [None, 0.0]], "ab ac", move_s=1.0),
        of_transfers(flow(1.0, receiver=2)),
        1,
    ),
    "two tensors at once": (
        small(LOAD, [[0.0, None], [None, 0.0], [0.0, None]], "ab bc", move_s=1.0),
        of_transfers(flow(1.0), flow(1.0, 1, payer=2)),
        2,
    ),
    "a profile costs the least of its kinds": (
        small(LOAD, [[0.0, None], [None, 0.0]], "ab", move_s=[5.0, 2.0]),
        prices([0.0], [0.5], profile=(0, 0), nets=[flow(1.0)]),
        0,
    ),
    "memory that fits": (LIMITED, prices([0.0], memory=[1.0], profile=(0, 0)), 0),
    "memory that does not": (
        LIMITED.replace(platform=pk.Platform.of(p=2, memory_bytes={"p": 0.5})),
        prices([0.0], memory=[1.0], profile=(0, 0)),
        NOTHING_FEASIBLE,
    ),
    # a on q leads to b, which is quick on p, and c on p to d, which is quick on q: one of the two has to be slow
    "orders": (
        small(SERIAL, [[None, 0.0], [1.0, 9.0], [0.0, None], [9.0, 1.0]], "ab cd", contiguity="acyclic"),
        directions(((0, 1, 8.0),), ((2, 3, 8.0),), of=prices(*ONES)),
        10,
    ),
    "no order": (
        small(LOAD, [[None, 1.0], [1.0, None], [None, 1.0]], "ab bc", contiguity="acyclic"),
        directions(None, None),
        NOTHING_FEASIBLE,
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_prices_within_the_rules_prove_this(name: str) -> None:
    """The value by hand, at the edge of every rule."""
    problem, certificate, value = HONEST[name]
    assert proven(ExactProblem.of(problem), certificate) == value


def test_a_group_is_named_by_its_ops() -> None:
    """An op before the first is not the last one."""
    for op in (-1, 1):
        with pytest.raises(InvalidCertificateError, match=f"names op {op}; the problem has 1"):
            proven(ExactProblem.of(ONE), NoDevice(op))

"""The judge: hand-checked values, every violation, and an independent formula on random problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from linked_problems import on_two_nodes

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.model.memory import MemoryBlocks
from placekit.objectives.evaluate import DeviceLoad


def place(problem: pk.Problem, devices: str) -> pk.Placement:
    """Return the placement of a, b, c, d given by one digit each."""
    return pk.Placement.of(problem, [int(d) for d in devices])


@pytest.mark.parametrize(
    ("devices", "objective", "why"),
    [
        ("0000", 16.0, "the CPU runs four ops of 4 s and pays nothing"),
        ("1111", 4.0, "an accelerator runs four ops of 1 s; nothing crosses"),
        ("1222", 5.0, "acc.1 runs b, c, d and reads a's tensor once although two ops need it: 3 + 2"),
        ("0111", 5.0, "the CPU works 4 s; the accelerator works 3 s and reads a's tensor once: 3 + 2 = 5"),
        ("1112", 7.0, "acc.0 runs a, b, c and sends two tensors (b's and c's): 3 + 2 * 2"),
    ],
)
def test_throughput_by_hand(diamond: pk.Problem, devices: str, objective: float, why: str) -> None:
    """The largest device load, computed with pencil and paper."""
    assert pk.evaluate(diamond, place(diamond, devices)).objective == objective, why


def test_overlap_takes_the_larger_of_work_and_transfers(diamond: pk.Problem) -> None:
    """acc.0: max(3 work, 4 transfers); acc.1: max(1, 4)."""
    problem = diamond.replace(objective=pk.Throughput(overlap=True))
    assert pk.evaluate(problem, place(problem, "1112")).objective == 4.0


def test_gpipe_adds_the_largest_forward_and_the_largest_backward_load(diamond: pk.Problem) -> None:
    """With c and d backward and a, b on acc.0, c, d on acc.1: a's tensor is forward, c's stays, b's is forward."""
    graph = diamond.graph.replace(is_backward=[False, False, True, True])
    gpipe = diamond.replace(graph=graph, objective=pk.Throughput(schedule="gpipe"))
    evaluation = pk.evaluate(gpipe, place(gpipe, "1122"))
    # forward: acc.0 works 2 s and sends a's and b's tensors (4 s); acc.1 reads them (4 s). backward: acc.1 works 2 s.
    assert evaluation.objective == 6.0 + 2.0
    one_f_one_b = gpipe.replace(objective=pk.Throughput(schedule="1f1b"))
    assert pk.evaluate(one_f_one_b, place(gpipe, "1122")).objective == 6.0


def test_serial_latency_by_hand(diamond: pk.Problem) -> None:
    """With b on the CPU and the rest on acc.0: 7 s of work, a's and b's tensors cross, 3 subgraphs of 0.5 s."""
    problem = diamond.replace(objective=pk.SerialLatency(), contiguity=None)
    assert pk.evaluate(problem, place(problem, "1011")).objective == 7.0 + 2 * 2.0
    # levels: a 0 on acc; b 1 on cpu; c 0 on acc; d 2 on acc
    problem = problem.replace(objective=pk.SerialLatency(subgraph_cost_s=0.5))
    assert pk.evaluate(problem, place(problem, "1011")).objective == 11.0 + 3 * 0.5


def test_loads_say_what_every_device_does(diamond: pk.Problem) -> None:
    """Work, transfers, memory and ops per device."""
    cpu, first, second = pk.evaluate(diamond, place(diamond, "0111")).device_loads
    assert (cpu.load_s, cpu.transfer_s, cpu.num_ops, cpu.memory_bytes) == (4.0, 0.0, 1, 1.0)
    assert (first.compute_s, first.transfer_s, first.load_s) == (3.0, 2.0, 5.0)
    assert second.num_ops == 0
    assert [load.team for load in (cpu, first, second)] == [None] * 3


def test_cyclic_devices_are_a_violation(diamond: pk.Problem) -> None:
    """With a and d on one device, b and c on another: convex for neither, cyclic as a quotient."""
    placement = place(diamond, "1221")
    (violation,) = pk.evaluate(diamond, placement).violations
    assert (violation.constraint, violation.message) == (
        "contiguity",
        "devices 'acc.0', 'acc.1' wait for each other: their graph has a cycle",
    )
    convex = diamond.replace(contiguity="convex")
    (violation,) = pk.evaluate(convex, placement).violations
    assert "'acc.0' is not convex: a path leaves it and returns through op 'b'" in violation.message
    assert pk.evaluate(diamond.replace(contiguity="none"), placement).violations == ()


def test_convex_devices_may_form_a_cycle() -> None:
    """Two chains crossed over: each device is convex, the quotient is not acyclic."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("c", "d")])
    costs = pk.CostTable(("cpu",), np.ones((4, 1)), np.zeros((2, 1)), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs, contiguity=pk.Contiguity.CONVEX)
    crossed = pk.Placement.of(problem, [0, 1, 1, 0])
    assert pk.evaluate(problem, crossed).violations == ()
    assert [v.constraint for v in pk.evaluate(problem.replace(contiguity="acyclic"), crossed).violations] == [
        "contiguity"
    ]


def test_every_other_violation_is_named(diamond: pk.Problem) -> None:
    """Support, memory, pins and colocation give op, device, value and bound."""
    supported = np.array([[True, False]] + [[True, True]] * 3)
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 2.0})
    problem = diamond.replace(platform=platform, costs=diamond.costs.replace(supported=supported))
    problem = problem.pin({"b": "cpu.0"}).colocate(["c", "d"])
    evaluation = pk.evaluate(problem, place(problem, "1112"))
    assert evaluation.objective is None
    assert [v.message for v in evaluation.violations] == [
        "op 'a' (Op) is not supported on device 'acc.0'",
        "device 'acc.0' needs 3 bytes, it has 2 bytes",
        "op 'b' is pinned to 'cpu.0' but placed on 'acc.0'",
        "op 'd' on 'acc.1' must share a device with 'c' on 'acc.0'",
    ]
    assert evaluation.violations[1].amount == 1.0


def test_orphan_backward_ops_take_part_in_the_order() -> None:
    """A backward op without forward sibling stands in the forward order through its reversed backward edges.

    Forward f1 -> f2; backward f2 -> g2 -> g1 with g2 bound to f2 and g1 on its own: g1 counts as before f2.
    """
    graph = pk.OpGraph.from_edges(
        ["f1", "f2", "g2", "g1"],
        [("f1", "f2"), ("f2", "g2"), ("g2", "g1")],
        is_backward=[False, False, True, True],
    )
    costs = pk.CostTable(("cpu",), np.ones((4, 1)), np.zeros((3, 1)), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs).colocate(["f2", "g2"])
    senders, receivers = problem.order_edges
    assert sorted(zip(senders.tolist(), receivers.tolist(), strict=True)) == [(0, 1), (3, 2)]
    # with f1 bound to g1 there is no orphan left, and backward edges do not count
    senders, _ = problem.colocate(["f1", "g1"]).order_edges
    assert len(senders) == 1


def test_foreign_placement_is_refused(diamond: pk.Problem) -> None:
    """A placement of other ops is an error, not a score."""
    with pytest.raises(InvalidProblemError, match=r"the placement is of 1 ops on cpu\.0"):
        pk.evaluate(diamond, pk.Placement(("a",), ("cpu.0",), np.array([0])))
    for names in ("bcde", "1234"):
        with pytest.raises(InvalidProblemError, match="the placement is of 4 ops"):
            pk.evaluate(diamond, pk.Placement(tuple(names), diamond.platform.device_names, np.zeros(4, dtype=int)))


def test_weights_are_what_is_neither_activation_nor_queue() -> None:
    """Not known where activations are not."""
    load = DeviceLoad("a", "k", 1.0, 1.0, 0.0, 10.0, None, 1, activation_bytes=3.0, queue_bytes=2.0)
    assert load.weight_bytes == 5
    assert replace(load, queue_bytes=None).weight_bytes == 7
    assert replace(load, activation_bytes=None).weight_bytes is None


def test_a_method_may_settle_on_less_than_the_judge_s_best(diamond: pk.Problem) -> None:
    """The answer is then what it says, with the judge's objective of it; but never an infeasible placement."""
    run = pk.Run(diamond)
    run.offer([0, 1, 1, 1])
    slow = pk.Placement.of(diamond, [0, 0, 0, 0])
    assert run.objective != 16.0
    run.settle_on(slow)
    assert run.placement is slow
    assert run.objective == 16.0
    with pytest.raises(InvalidProblemError, match="the answer to problem 'diamond' breaks: "):
        run.settle_on(pk.Placement.of(diamond, [1, 0, 0, 1]))


def test_a_direct_transfer_is_one_of_the_serial_latency() -> None:
    """Four ops of 2 s and a tensor of 1 s from one node to the other, for which only the receiver waits."""
    problem = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], pk.SerialLatency(), contiguity="none")
    assert pk.evaluate(problem, pk.Placement.of(problem, [0, 0, 1, 1])).objective == 9


def test_shared_memory_is_told_where_there_is_some(diamond: pk.Problem) -> None:
    """Bytes of activations and queues belong to problems with blocks of memory."""
    blocks = MemoryBlocks.of([(5.0, False, [0, 1])])
    for problem, expected in ((diamond, None), (diamond.replace(costs=diamond.costs.replace(blocks=blocks)), 5.0)):
        load = pk.evaluate(problem, pk.Placement.of(problem, [0] * 4)).device_loads[0]
        assert load.activation_bytes == expected
        assert load.queue_bytes == (None if expected is None else 0.0)

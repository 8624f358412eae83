"""Few stages: any placement is cut into runnable stages, with as few as possible where that is claimed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import examples

from placekit.arrays import topological_order
from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages
from placekit.model.graph import OpGraph


@st.composite
def placed_graphs(draw: st.DrawFn, max_ops: int = 12, max_devices: int = 4) -> tuple[OpGraph, NDArray[np.int64]]:
    """Random graphs, sparse to dense, with a random device for every op."""
    num_ops, num_devices = draw(st.integers(1, max_ops)), draw(st.integers(1, max_devices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    is_edge = np.triu(rng.random((num_ops, num_ops)) < rng.uniform(0.05, 0.7), 1)
    names = [str(op) for op in rng.permutation(num_ops)]
    edges = [(names[a], names[b]) for a, b in np.argwhere(is_edge)]
    return OpGraph.from_edges(sorted(names), edges), rng.integers(0, num_devices, num_ops)


def least_num_stages(graph: OpGraph, device_of_op: NDArray[np.int64]) -> int:
    """Search all orders of turns, breadth first; a longer turn is never worse, so every turn is as long as it can."""
    before: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for a, b in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        before[b].add(a)
    reached, number = {frozenset[int]()}, 0
    while not any(len(done) == graph.num_ops for done in reached):
        number += 1
        longer: set[frozenset[int]] = set()
        for done in reached:
            for device in set(device_of_op.tolist()):
                now = set(done)
                for op in graph.order.tolist():
                    if device_of_op[op] == device and before[op] <= now:
                        now.add(op)
                longer.add(frozenset(now))
        reached = longer
    return number


@examples(300)
@given(placed=placed_graphs())
def test_stages_can_run_one_after_another(placed: tuple[OpGraph, NDArray[np.int64]]) -> None:
    """A stage is on one device, numbers have no gap, and no edge leads to an earlier stage."""
    graph, device_of_op = placed
    stage = few_stages(graph, device_of_op)
    assert sorted(set(stage.tolist())) == list(range(stage.max() + 1))
    assert len(set(zip(stage.tolist(), device_of_op.tolist(), strict=True))) == stage.max() + 1
    assert (stage[graph.senders] <= stage[graph.receivers]).all()


@examples(300)
@given(placed=placed_graphs(max_ops=10, max_devices=2))
def test_two_devices_take_the_least_number_of_turns(placed: tuple[OpGraph, NDArray[np.int64]]) -> None:
    """For two devices an exhaustive search finds nothing shorter."""
    graph, device_of_op = placed
    assert few_stages(graph, device_of_op).max() + 1 == least_num_stages(graph, device_of_op)


@examples(300)
@given(placed=placed_graphs())
def test_devices_in_no_circle_get_one_stage_each(placed: tuple[OpGraph, NDArray[np.int64]]) -> None:
    """Where the devices can run one after another, they do."""
    graph, device_of_op = placed
    used, device = np.unique(device_of_op, return_inverse=True)
    crossing = device[graph.senders] != device[graph.receivers]
    _, stuck = topological_order(len(used), device[graph.senders][crossing], device[graph.receivers][crossing])
    num_stages = few_stages(graph, device_of_op).max() + 1
    assert (num_stages == len(used)) == (stuck.size == 0)


def test_bug_an_op_that_waited_for_two_devices_is_not_lost() -> None:
    """What a device can run in its turn changes also when another device gives an op only one of its inputs.

    a0 -> b0 and c1 -> b0: device 1 goes first, after device 0 was asked what it can run.
    """
    graph = OpGraph.from_edges(list("abc"), [("a", "b"), ("c", "b")])
    assert few_stages(graph, np.array([0, 0, 1])).tolist() == [1, 1, 0]


def test_parameters_and_results_have_no_stage() -> None:
    """The ends of the model are no work, wherever they are placed, and tie nothing together."""
    graph = OpGraph.from_edges(
        ["x", "a", "b", "y"],
        [("x", "a"), ("x", "b"), ("a", "b"), ("b", "y")],
        op_types=["Parameter", "A", "B", "Result"],
    )
    assert few_stages(graph, np.array([1, 0, 1, 0])).tolist() == [NO_STAGE, 0, 1, NO_STAGE]


def test_a_device_waits_until_it_can_do_all_of_its_work() -> None:
    """Op c of device 1 could run at once, but b of device 1 needs a: one turn for both, after a.

    a0 -> b1, c1, and b1 -> d2 <- c1.
    """
    graph = OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "d"), ("c", "d")])
    assert few_stages(graph, np.array([0, 1, 1, 2])).tolist() == [0, 1, 1, 2]


def test_a_state_is_in_one_stage() -> None:
    """What reads a state could run first, and what assigns it is needed late: both wait for the later turn."""
    names, types = ["first", "other", "read", "join", "assign"], ["Relu", "Relu", "ReadValue", "Concat", "Assign"]
    edges = [("first", "other"), ("other", "join"), ("read", "join"), ("join", "assign")]
    graph = OpGraph.from_edges(names, edges).replace(op_types=tuple(types))
    device = np.array([0, 1, 0, 0, 0])
    assert few_stages(graph, device).tolist() == [0, 1, 0, 2, 2]
    assert few_stages(graph, device, np.array([0, 1, 2, 2, 2])).tolist() == [0, 1, 2, 2, 2]
    # states on two devices, or that wait for each other, are left to whoever cuts the model
    assert few_stages(graph, device, np.array([0, 1, 0, 0, 0])).tolist() == [0, 1, 0, 2, 2]
    assert few_stages(graph, device, np.array([0, 1, 1, 1, 1])).tolist() == [0, 1, 0, 2, 2]

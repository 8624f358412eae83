"""Fused groups: every op has one, and they form a DAG."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.cost_models.openvino.groups import NO_GROUP, RuntimeNode, fuse, join_groups, merge_cycles
from placekit.model.graph import OpGraph

# a chain with an input and an output: x - conv - relu - reshape - fc - out
CHAIN = OpGraph.from_edges(
    ["x", "conv", "relu", "reshape", "fc", "out"],
    [("x", "conv"), ("conv", "relu"), ("relu", "reshape"), ("reshape", "fc"), ("fc", "out")],
    op_types=["Parameter", "Convolution", "Relu", "Reshape", "MatMul", "Result"],
)


def groups_of(graph: OpGraph, labels: NDArray[np.int64]) -> list[set[str]]:
    """Return the groups as sets of names, in order."""
    return [{graph.op_names[op] for op in np.flatnonzero(labels == g)} for g in range(int(labels.max()) + 1)]


def is_dag(graph: OpGraph, labels: NDArray[np.int64]) -> bool:
    """Whether the group graph has no cycle."""
    source, target = labels[graph.senders], labels[graph.receivers]
    crossing = source != target
    return not topological_order(int(labels.max()) + 1, source[crossing], target[crossing])[1].size


def test_named_ops_join_their_node_and_others_their_consumer() -> None:
    """The Reshape, which is no node of its own, goes with the MatMul behind it; input and output stay alone."""
    nodes = [
        RuntimeNode("x", ("x",), (), False),
        RuntimeNode("conv", ("conv", "relu"), (0,), True),
        RuntimeNode("reshape", ("reshape",), (1,), False),
        RuntimeNode("fc", ("fc",), (2,), True),
    ]
    fusion = fuse(CHAIN, nodes)
    assert groups_of(CHAIN, fusion.op_group) == [{"x"}, {"conv", "relu"}, {"reshape", "fc"}, {"out"}]
    assert fusion.node_group.tolist() == [NO_GROUP, 1, NO_GROUP, 2]


def test_an_unnamed_op_without_consumers_joins_its_producer() -> None:
    """The bias Add stole the name of the MatMul's node; a Reshape behind the last node joins it too."""
    graph = OpGraph.from_edges(["mm", "add", "view"], [("mm", "add"), ("add", "view")])
    fusion = fuse(graph, [RuntimeNode("add", ("add",), (), True)])
    assert groups_of(graph, fusion.op_group) == [{"mm", "add", "view"}]


def test_inserted_nodes_go_to_the_first_node_behind_them_else_before() -> None:
    """A Reorder in front of the MatMul counts there, one at the very end with the node before it."""
    nodes = [
        RuntimeNode("conv", ("conv", "relu"), (), True),
        RuntimeNode("reorder", (), (0,), True),
        RuntimeNode("renamed", ("Multiply_5191",), (1,), True),
        RuntimeNode("fc", ("fc",), (2,), True),
        RuntimeNode("last", (), (3,), True),
    ]
    fusion = fuse(CHAIN, nodes)
    assert fusion.node_group.tolist() == [1, 2, 2, 2, 2]


def test_nodes_that_name_the_same_op_are_one_group() -> None:
    """An op that was computed in two pieces cannot be divided."""
    nodes = [RuntimeNode("a", ("conv", "relu"), (), True), RuntimeNode("b", ("relu", "fc"), (0,), True)]
    fusion = fuse(CHAIN, nodes)
    assert {"conv", "relu", "reshape", "fc"} in groups_of(CHAIN, fusion.op_group)
    assert fusion.node_group.tolist() == [1, 1]


def test_groups_on_a_cycle_are_merged() -> None:
    """A node that stands for the first and last op of a chain takes the middle with it."""
    graph = OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d")])
    nodes = [RuntimeNode(name, ops, (), True) for name, ops in (("n", ("a", "c")), ("b", ("b",)), ("d", ("d",)))]
    assert groups_of(graph, fuse(graph, nodes).op_group) == [{"a", "b", "c"}, {"d"}]


def test_joined_groups_are_straddled_by_none() -> None:
    """One kind fuses conv with relu, the other relu with reshape: together all three."""
    joined = join_groups(CHAIN, [np.array([0, 1, 1, 2, 3, 4]), np.array([0, 1, 2, 2, 3, 4])])
    assert groups_of(CHAIN, joined) == [{"x"}, {"conv", "relu", "reshape"}, {"fc"}, {"out"}]


@st.composite
def labelled_graphs(draw: st.DrawFn) -> tuple[OpGraph, list[NDArray[np.int64]]]:
    """Random DAGs of up to 8 ops with two random labellings."""
    num_ops = draw(st.integers(1, 8))
    names = [f"op{i}" for i in range(num_ops)]
    pairs = [(names[i], names[j]) for j in range(num_ops) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    label = st.lists(st.integers(0, num_ops), min_size=num_ops, max_size=num_ops)
    return OpGraph.from_edges(names, edges), [np.array(draw(label)) for _ in range(2)]


@settings(max_examples=150, deadline=None)
@given(labelled_graphs())
def test_joined_groups_are_a_dag_and_coarser_than_both(case: tuple[OpGraph, list[NDArray[np.int64]]]) -> None:
    """Ops of one group of either kind stay together, and the group graph has no cycle."""
    graph, labels = case
    joined = join_groups(graph, labels)
    assert is_dag(graph, joined)
    for each in labels:
        for value in np.unique(each):
            assert len(np.unique(joined[each == value])) == 1
    assert np.array_equal(np.unique(joined), np.arange(joined.max() + 1))
    np.testing.assert_array_equal(merge_cycles(graph, joined), joined)  # nothing is left to merge


@pytest.mark.parametrize("seed", range(20))
def test_random_runtime_models_give_every_op_a_group_and_lose_no_node(seed: int) -> None:
    """Whatever nodes name, the groups cover all ops, form a DAG, and a node with a name has a group."""
    rng = np.random.default_rng(seed)
    names = [f"op{i}" for i in range(12)]
    graph = OpGraph.from_edges(names, [(names[i], names[j]) for j in range(12) for i in range(j) if rng.random() < 0.2])
    nodes = []
    for i in range(8):
        originals = tuple(rng.choice(names, rng.integers(0, 3), replace=False).tolist())
        nodes.append(RuntimeNode(f"n{i}", originals, (i - 1,) if i else (), bool(rng.random() < 0.8)))
    fusion = fuse(graph, nodes)
    assert is_dag(graph, fusion.op_group)
    any_named = any(node.is_executed and node.originals for node in nodes)
    for node, group in zip(nodes, fusion.node_group, strict=True):
        assert (group != NO_GROUP) == (node.is_executed and any_named)

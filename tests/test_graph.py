"""OpGraph: construction, derived arrays, named errors."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from strategies import graphs

from placekit.arrays import number_by_first, sum_by, topological_order
from placekit.model.errors import InvalidGraphError
from placekit.model.graph import OpGraph


def line(**changes: object) -> OpGraph:
    """Return a -> b -> c, with some constructor arguments replaced."""
    arguments: dict[str, object] = {
        "name": "line",
        "op_names": ("a", "b", "c"),
        "op_types": ("Op",) * 3,
        "tensor_producer": [0, 1],
        "consumer_offsets": [0, 1, 2],
        "consumers": [1, 2],
        "tensor_bytes": [8.0, 8.0],
    }
    return OpGraph(**(arguments | changes))  # type: ignore[arg-type]  # wrong values are what is tested


def test_edges_are_distinct_and_sorted() -> None:
    """Two tensors between the same ops are one edge; a repeated edge counts once."""
    graph = OpGraph("g", ("a", "b"), ("Split", "Add"), [0, 0], [0, 1, 2], [1, 1], [4, 4])  # type: ignore[arg-type]
    assert graph.num_tensors == 2
    assert (graph.senders.tolist(), graph.receivers.tolist()) == ([0], [1])
    assert OpGraph.from_edges(["a", "b"], [("a", "b"), ("a", "b")]).num_edges == 1


def test_order_puts_producers_before_consumers() -> None:
    """The order is topological whatever the numbering."""
    graph = OpGraph.from_edges(["c", "b", "a"], [("a", "b"), ("b", "c")])
    assert graph.order.tolist() == [2, 1, 0]


def test_cycle_is_named() -> None:
    """The error shows the ops of the cycle, and not those that merely hang on it."""
    with pytest.raises(InvalidGraphError, match=r"cycle: (b -> c -> b|c -> b -> c)$"):
        OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_names": ("a", "b", "a")}, "op name 'a' appears twice"),
        ({"op_types": ("Op",)}, "1 op_types for 3 ops"),
        ({"consumers": [1, 7]}, r"consumers\[1\] is 7; op indices run from 0 to 2"),
        ({"tensor_producer": [0, -1]}, r"tensor_producer\[1\] is -1"),
        ({"consumer_offsets": [0, 2, 1]}, "consumer_offsets must rise from 0 to 2"),
        ({"consumers": [0, 2]}, "op 'a' consumes its own output"),
        ({"tensor_bytes": [8.0, -1.0]}, "tensor 1 has tensor_bytes -1.0"),
        ({"tensor_bytes": [8.0]}, r"tensor_bytes has shape \(1,\); expected \(2,\)"),
        ({"op_flops": [0.0, np.nan, 0.0]}, "op 'b' has op_flops nan"),
        ({"op_weight_bytes": ["x", 0, 0]}, "op_weight_bytes cannot be read as float64"),
        ({"tensor_shapes": ((1,),)}, "1 tensor_shapes for 2 tensors"),
    ],
)
def test_bad_input_is_named(changes: dict[str, object], message: str) -> None:
    """Every wrong array is refused with the object, the value and the bound."""
    with pytest.raises(InvalidGraphError, match=message):
        line(**changes)


def test_unknown_edge_end_is_named() -> None:
    """An edge to an op that is not there is refused."""
    with pytest.raises(InvalidGraphError, match="edge 'a' -> 'x' names no op 'x'"):
        OpGraph.from_edges(["a"], [("a", "x")])


def test_graph_cannot_be_changed() -> None:
    """Arrays are read-only, and so is the record."""
    graph = line()
    with pytest.raises(ValueError, match="read-only"):
        graph.tensor_bytes[0] = 1
    with pytest.raises(AttributeError):
        graph.name = "other"  # type: ignore[misc]


def test_equality_is_by_content() -> None:
    """Copies, pickles included, are equal and hash alike; another size is another graph."""
    graph = line()
    assert pickle.loads(pickle.dumps(graph)) == graph == line()
    assert hash(graph) == hash(line())
    assert graph != line(tensor_bytes=[8.0, 9.0])
    assert graph.replace(name="other") != graph


def test_topological_order_reports_what_is_stuck() -> None:
    """Nodes on or behind a cycle are returned apart."""
    order, stuck = topological_order(4, np.array([0, 1, 2, 2]), np.array([1, 2, 1, 3]))
    assert (order.tolist(), stuck.tolist()) == ([0], [1, 2, 3])


def test_sum_by_adds_per_label() -> None:
    """Labels without members get 0."""
    assert sum_by(np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]), 4).tolist() == [2.0, 0.0, 4.0, 0.0]


def test_labels_are_numbered_by_first_appearance() -> None:
    """The first label becomes 0, whatever its value."""
    assert number_by_first(np.array([7, 3, 7, 9, 3])).tolist() == [0, 1, 0, 2, 1]


@given(graphs())
def test_networkx_keeps_edges_and_columns(graph: OpGraph) -> None:
    """There and back: names, types, flops, weights, passes and edges; several tensors of an op become one."""
    digraph = graph.to_networkx()
    assert set(digraph.edges) == {
        (graph.op_names[u], graph.op_names[v])
        for u, v in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    }
    back = OpGraph.from_networkx(digraph)
    assert (back.name, back.op_names, back.op_types) == (graph.name, graph.op_names, graph.op_types)
    for column in ("op_flops", "op_weight_bytes", "is_backward", "senders", "receivers"):
        assert np.array_equal(getattr(back, column), getattr(graph, column)), column
    assert sum(data["bytes"] for _, data in digraph.nodes(data=True)) == pytest.approx(graph.tensor_bytes.sum())


def test_networkx_graphs_that_are_none_are_refused() -> None:
    """No direction, a cycle, and two nodes of one name."""
    with pytest.raises(InvalidGraphError, match="undirected"):
        OpGraph.from_networkx(nx.Graph([("a", "b")]))  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(InvalidGraphError, match="cycle"):
        OpGraph.from_networkx(nx.DiGraph([("a", "b"), ("b", "a")]))
    with pytest.raises(InvalidGraphError, match="'1' appears twice"):
        OpGraph.from_networkx(nx.DiGraph([(1, "1")]))

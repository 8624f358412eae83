"""Parsing: every node keeps its best-scoring edge, and the kept edges split the graph into groups.

Nodes are classes of ops that must share a device, or chains of them. One pass is one level; the groups of a level are
the nodes of the next.

References
----------
Song et al., "Graph parsing networks", ICLR 2024; HSDAG, equations 9 to 11.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, components, distinct, number_by_first, topological_order
from placekit.learned.features import group_edges, group_sums
from placekit.model.problem import Problem

_NEGLIGIBLE = 0.01  # share of the mean transfer below which seconds do not count


class NodeGraph(NamedTuple):
    """Nodes, where they may go, and the undirected edges between them."""

    # mask, times: ``[num_nodes, num_devices]`` where each node may go, and the seconds of all of its ops
    mask: NDArray[np.bool_]
    times: NDArray[np.float64]
    edges: NDArray[np.int64]  # ``[2, num_edges]`` distinct edges, smaller end first, sorted
    # ``[num_edges]`` seconds of the slowest transfer along each edge; of edges between groups, their sum
    transfers: NDArray[np.float64]

    def edge_costs(self) -> NDArray[np.float32]:
        """``[num_edges]`` what cutting each edge costs over what sharing a device costs its ends; log, standardised.

        Ends that are best on different devices lose time when they share one. Where that is more than a transfer takes,
        a group of both would be a bad unit to move, however large the transfer.
        """
        one, other = self.edges
        fastest = self.times.min(axis=1)
        together = (self.times[one] + self.times[other]).min(axis=1)
        regret = np.maximum(together - fastest[one] - fastest[other], 0.0)
        # a free transfer or a common best device is no reason for an infinite score
        least = _NEGLIGIBLE * float(self.transfers.mean()) if self.transfers.any() else 1.0
        logs = np.log(self.transfers + least) - np.log(regret + least)
        centred = logs - logs.mean()
        deviation = float(centred.std())
        costs: NDArray[np.float32] = (centred / (deviation if deviation > 1e-9 else np.inf)).astype(np.float32)
        return costs


class Level(NamedTuple):
    """One level of groups."""

    group_of_node: NDArray[np.int64]  # ``[num_nodes]`` group ``0 .. num_groups - 1`` of every node.
    is_inside: NDArray[np.bool_]  # ``[num_edges]`` True for the edges within a group
    # ``[num_edges]`` edge between groups of every edge that is not inside; meaningless for the others
    edge_of_edge: NDArray[np.int64]
    graph: NodeGraph  # the groups as nodes


def coarse_nodes(
    problem: Problem,
    # ``[num_classes, num_devices]`` where each class may go; nodes that have no device in common are not merged
    mask: NDArray[np.bool_],
    *,
    # False for the classes of ops that must share a device, nothing else. True: along a topological order, a class
    # joins its only parent if it is that parent's only child (HSDAG, appendix G).
    has_chains: bool,
) -> NDArray[np.int64]:
    """``[num_ops]`` node of every op, numbered by first op. Near-linear."""
    classes, num_classes = problem.op_class, problem.num_classes
    if not has_chains:
        return classes
    senders, receivers = group_edges(problem, classes)
    parents, children = np.bincount(receivers, minlength=num_classes), np.bincount(senders, minlength=num_classes)
    parent = np.full(num_classes, -1, dtype=np.int64)
    parent[receivers] = senders  # read only where there is exactly one
    top = np.arange(num_classes)
    allowed = mask.copy()
    for c in topological_order(num_classes, senders, receivers)[0].tolist():
        p = int(parent[c])
        if parents[c] != 1 or children[p] != 1:
            continue
        together = allowed[top[p]] & allowed[c]
        if together.any():
            top[c] = top[p]  # parents come first in the order, so theirs is settled
            allowed[top[p]] = together
    return number_by_first(top[classes])


def node_graph(problem: Problem, node_of_op: NDArray[np.int64], mask: NDArray[np.bool_]) -> NodeGraph:
    """Return the nodes ``[num_ops]`` of `problem` with their edges, on devices ``[num_nodes, num_devices]``."""
    graph, num_nodes = problem.graph, len(mask)
    edges = np.unique(np.sort(np.stack(group_edges(problem, node_of_op)), axis=0), axis=1)
    producer, reader = node_of_op[graph.tensor_producer[graph.consumed_tensor]], node_of_op[graph.consumers]
    crossing = producer != reader
    keys = np.minimum(producer, reader) * num_nodes + np.maximum(producer, reader)
    transfers = np.zeros(edges.shape[1])
    slowest = problem.costs.transfer_time_s.max(axis=1)[graph.consumed_tensor]
    np.maximum.at(transfers, np.searchsorted(edges[0] * num_nodes + edges[1], keys[crossing]), slowest[crossing])
    times = problem.costs.op_time_s[:, problem.platform.kind_of_device]
    times = np.where(mask[node_of_op], times, 0.0)  # a table may hold anything where an op is not supported
    whole = times.max(axis=1).sum()  # where a node may not go, it takes as long as the whole model
    return NodeGraph(mask, np.where(mask, group_sums(times, node_of_op, num_nodes), whole), edges, transfers)


def parse(
    graph: NodeGraph,
    # ``[num_edges]`` one score per edge, the same in both directions (else the result would depend on the direction)
    scores: NDArray[np.float32],
) -> Level:
    """Group nodes by their dominant edges.

    1. The dominant edge of a node is its incident edge of highest score, ties to the smaller neighbour.
    2. Groups are the connected components of the dominant edges; a node without edges is a group of its own.
    3. A component whose nodes have no device in common falls apart into its nodes.

    O(edges log edges + nodes * devices).
    """
    edges, mask = graph.edges, graph.mask
    num_nodes = len(mask)
    ends, others, score = np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]), np.tile(scores, 2)
    best_first = np.lexsort((others, -score, ends))
    owners, first = np.unique(ends[best_first], return_index=True)
    dominant = others[best_first[first]]
    group = components(num_nodes, owners, dominant)
    together = all_by(group, mask, int(group.max()) + 1)
    has_none = np.logical_not(together.any(axis=1))
    if has_none.any():
        group = np.where(has_none[group], len(together) + np.arange(num_nodes), group)
    group = number_by_first(group)
    together = all_by(group, mask, int(group.max()) + 1)
    ends = group[edges]
    between = ends[0] != ends[1]
    pairs = np.minimum(*ends) * len(together) + np.maximum(*ends)
    keys = distinct(pairs[between])
    edge_of_edge = np.searchsorted(keys, pairs)
    transfers = group_sums(graph.transfers[between], edge_of_edge[between], len(keys))
    times = group_sums(graph.times, group, len(together))
    coarser = NodeGraph(together, times, np.stack(np.divmod(keys, len(together))), transfers)
    return Level(group, ~between, edge_of_edge, coarser)


def largest(values: NDArray[np.float32], group: NDArray[np.int64], num_groups: int) -> NDArray[np.float32]:
    """``[num_groups]`` largest value of each group; minus infinity for one without values."""
    most = np.full(num_groups, -np.inf, dtype=np.float32)
    np.maximum.at(most, group, values)
    return most

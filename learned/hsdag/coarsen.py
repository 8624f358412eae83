"""Nodes of the graph that is parsed: classes of ops, or chains of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.model.graph import distinct, number_by_first, topological_order
from placekit.model.problem import Problem

__all__ = ["COARSENINGS", "coarse_nodes", "edge_costs", "edge_transfers", "node_edges", "node_times"]

COARSENINGS = ("classes", "chains")
"""Known rules; see `coarse_nodes`."""

_NEGLIGIBLE = 0.01  # share of the mean transfer below which seconds do not count


def coarse_nodes(problem: Problem, mask: NDArray[np.bool_], rule: str) -> NDArray[np.int64]:
    """``[num_ops]`` node of every op, numbered by first op.

    Parameters
    ----------
    problem
        The problem.
    mask
        ``[num_classes, num_devices]`` where each class may go; nodes that have no device in common are not merged.
    rule
        - ``"classes"``: the classes of ops that must share a device, nothing else.
        - ``"chains"``: along a topological order, a class joins its only parent if it is that parent's only child (the
          paper, appendix G).

    Notes
    -----
    O(ops + edges) unions, near-linear. A class graph with a cycle keeps the classes on it and behind it as they are.
    """
    classes, num_classes = problem.op_class, problem.num_classes
    if rule == "classes":
        return classes
    senders, receivers = node_edges(problem, classes)
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


def node_edges(problem: Problem, node_of_op: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return senders and receivers of the distinct edges between different nodes, sorted."""
    num_nodes = int(node_of_op.max()) + 1
    senders, receivers = node_of_op[problem.graph.senders], node_of_op[problem.graph.receivers]
    keys = distinct((senders * num_nodes + receivers)[senders != receivers])
    senders, receivers = np.divmod(keys, num_nodes)
    return senders, receivers


def edge_transfers(problem: Problem, node_of_op: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """``[num_edges]`` seconds of the slowest transfer along each undirected edge.

    Parameters
    ----------
    problem, node_of_op
        The problem and the node of every op.
    edges
        ``[2, num_edges]`` distinct undirected edges between nodes, smaller end first, sorted.
    """
    graph, num_nodes = problem.graph, int(node_of_op.max()) + 1
    producer, reader = node_of_op[graph.tensor_producer[graph.consumed_tensor]], node_of_op[graph.consumers]
    crossing = producer != reader
    keys = np.minimum(producer, reader) * num_nodes + np.maximum(producer, reader)
    slowest = np.zeros(edges.shape[1])
    transfer = problem.costs.transfer_time_s.max(axis=1)[graph.consumed_tensor]
    np.maximum.at(slowest, np.searchsorted(edges[0] * num_nodes + edges[1], keys[crossing]), transfer[crossing])
    return slowest


def node_times(problem: Problem, node_of_op: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """``[num_nodes, num_devices]`` seconds of all ops of a node; as much as the whole model where it may not go."""
    times = problem.costs.op_time_s[:, problem.platform.kind_of_device]
    times = np.where(mask[node_of_op], times, 0.0)  # a table may hold anything where an op is not supported
    total = np.zeros(mask.shape)
    np.add.at(total, node_of_op, times)
    return np.where(mask, total, times.max(axis=1).sum())


def edge_costs(
    transfers: NDArray[np.float64], times: NDArray[np.float64], edges: NDArray[np.int64]
) -> NDArray[np.float32]:
    """``[num_edges]`` what cutting each edge costs over what sharing a device costs its ends; log, standardised.

    Ends that are best on different devices lose time when they share one. Where that is more than a transfer takes, a
    group of both would be a bad unit to move, however large the transfer.

    Parameters
    ----------
    transfers
        ``[num_edges]`` seconds to transfer what crosses each edge.
    times
        ``[num, num_devices]`` seconds of each end.
    edges
        ``[2, num_edges]`` edges.
    """
    fastest = times.min(axis=1)
    together = (times[edges[0]] + times[edges[1]]).min(axis=1)
    regret = np.maximum(together - fastest[edges[0]] - fastest[edges[1]], 0.0)
    # a free transfer or a common best device is no reason for an infinite score
    least = _NEGLIGIBLE * float(transfers.mean()) if transfers.any() else 1.0
    logs = np.log(transfers + least) - np.log(regret + least)
    centred = logs - logs.mean()
    deviation = float(centred.std())
    costs: NDArray[np.float32] = (centred / (deviation if deviation > 1e-9 else np.inf)).astype(np.float32)
    return costs

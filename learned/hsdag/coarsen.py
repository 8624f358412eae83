"""Which ops form a node of the graph that is parsed: classes, chains, or what the released code makes of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.graph import distinct, number_by_first, topological_order
from placekit.problem import Problem

__all__ = ["COARSENINGS", "coarse_nodes", "edge_weights", "node_edges"]

COARSENINGS = ("classes", "chains", "only-parents")
"""Known rules; see `coarse_nodes`."""


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
        - ``"only-parents"``: a class joins its only parent, however many children that has (the released code).

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
        if parents[c] != 1 or (rule == "chains" and children[p] != 1):
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


def edge_weights(problem: Problem, node_of_op: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.float32]:
    """``[num_edges]`` what cutting each undirected edge costs: log of its slowest transfer, standardised.

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
    known = slowest[slowest > 0]
    logs = np.log(np.maximum(slowest, known.min() if known.size else 1.0))
    centred = (logs - logs.mean()) if logs.size else logs
    deviation = float(centred.std()) if logs.size else 0.0
    return (centred / (deviation if deviation > 1e-9 else np.inf)).astype(np.float32)

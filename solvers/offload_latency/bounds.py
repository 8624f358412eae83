"""Bounds on the offload latency without search: critical path with transfers, and the longest latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, sum_by, topological_order
from placekit.model.problem import Problem
from placekit.objectives import OffloadLatency
from placekit.solvers.offload_latency.flat import OffloadProblem

CRITICAL_PATH = "critical path with transfers"


def rounded_down(flat: OffloadProblem, latency_s: float) -> float:
    """Return a computed lower bound in seconds, reduced by the largest rounding error."""
    return max(0.0, latency_s * (1 - 1e-12) - flat.rounding_s)


def critical_path(flat: OffloadProblem) -> float:
    """Return a lower bound in seconds: the longest path, see `earliest_ends`."""
    return float(earliest_ends(flat).max())


def earliest_ends(flat: OffloadProblem) -> NDArray[np.float64]:
    """Return lower bounds ``[N]`` on the end of each node, in seconds.

    1. A node in a call ends after its inputs from outside the call have moved in. For a predecessor u, either u is in
       the same call and has ended before, or u's output is in host memory and all of u's nets to the node move in.
    2. Two nodes that do not fit on one accelerator together are not in one call.
    3. The output of a node is in host memory when the node ends on the host, or when it ends in a call and the cheapest
       of its nets has moved out. The last node of a path may share the call of its successor, and need not move out.

    O(nodes + edges + pins). Source: the best-times critical path of Tarnawski et al. 2020, with transfers where the
    device changes.
    """
    out, moved_s = _transfers(flat)
    out, moved, sender = out.tolist(), moved_s.tolist(), flat.senders.tolist()
    call = flat.time_s.min(axis=1, initial=np.inf).tolist()
    host, size = flat.host_time_s.tolist(), flat.memory_bytes.tolist()
    largest = float(flat.limit_bytes.max(initial=0.0))
    offsets, incoming = (
        each.tolist() for each in csr_lists(flat.receivers, np.arange(len(flat.receivers)), flat.num_nodes)
    )
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    ends, known = [0.0] * flat.num_nodes, [0.0] * flat.num_nodes  # in a call; in host memory
    earliest = np.zeros(flat.num_nodes)
    for v in order.tolist():
        on_host = start = 0.0
        for edge in incoming[offsets[v] : offsets[v + 1]]:
            u = sender[edge]
            together = ends[u] if size[u] + size[v] <= largest else np.inf
            on_host = max(on_host, known[u])
            start = max(start, min(together, known[u] + moved[edge]))
        on_host += host[v]
        ends[v] = start + call[v]
        known[v] = min(on_host, ends[v] + out[v])
        earliest[v] = min(on_host, ends[v])
    return earliest


def _transfers(flat: OffloadProblem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least seconds in which a net of each node moves out, and those of all nets along each edge to move in.

    A node with an edge without nets, along which only order counts, is known as soon as it ends.
    """
    net_in = flat.net_time_s.min(axis=1, initial=np.inf)
    producer = flat.net_nodes[flat.net_offsets[:-1]]
    out = np.full(flat.num_nodes, np.inf)
    np.minimum.at(out, producer, net_in)
    is_reader = np.ones(len(flat.net_nodes), dtype=np.bool_)
    is_reader[flat.net_offsets[:-1]] = False
    net = np.repeat(np.arange(flat.num_nets), np.diff(flat.net_offsets))[is_reader]
    edges = flat.senders * flat.num_nodes + flat.receivers
    by_edge = np.argsort(edges)
    keys = producer[net] * flat.num_nodes + flat.net_nodes[is_reader]
    at = np.searchsorted(edges[by_edge], keys)
    is_edge = np.append(edges[by_edge], -1)[at] == keys
    edge = by_edge[at[is_edge]]
    moved = sum_by(edge, net_in[net[is_edge]], len(edges))
    out[flat.senders[np.bincount(edge, minlength=len(edges)) == 0]] = 0.0
    out[~np.isfinite(out)] = 0.0
    return out, moved


def longest_latency(problem: Problem[OffloadLatency]) -> float:
    """Return an upper bound on every latency: all ops in turn, every tensor moved as often as possible."""
    costs, graph = problem.costs, problem.graph
    moves = 1 + np.diff(graph.consumer_offsets)
    return float(costs.op_time_s.max(axis=1).sum() + (moves * costs.transfer_time_s.max(axis=1)).sum())

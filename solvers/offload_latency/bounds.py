"""Bounds on the offload latency without search: critical path with transfers, and the longest latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.model.graph import topological_order
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
    net_in = flat.net_time_s.min(axis=1, initial=np.inf)
    moved: dict[tuple[int, int], float] = dict.fromkeys(
        zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True), 0.0
    )
    out = np.full(flat.num_nodes, np.inf)
    is_priced = set()
    for n, time in enumerate(net_in.tolist()):
        producer, *others = flat.nodes_of_net(n).tolist()
        out[producer] = min(out[producer], time)
        for v in others:
            if (producer, v) in moved:
                moved[producer, v] += time
                is_priced.add((producer, v))
    for edge in moved.keys() - is_priced:
        out[edge[0]] = 0.0
    out[~np.isfinite(out)] = 0.0
    call = flat.time_s.min(axis=1, initial=np.inf).tolist()
    host, size = flat.host_time_s.tolist(), flat.memory_bytes.tolist()
    largest = float(flat.limit_bytes.max(initial=0.0))
    before: list[list[tuple[int, float]]] = [[] for _ in range(flat.num_nodes)]
    for (u, v), time in moved.items():
        before[v].append((u, time))
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    ends, known = [0.0] * flat.num_nodes, [0.0] * flat.num_nodes  # in a call; in host memory
    earliest = np.zeros(flat.num_nodes)
    for v in order.tolist():
        on_host = max((known[u] for u, _ in before[v]), default=0.0) + host[v]
        start = 0.0
        for u, time in before[v]:
            together = ends[u] if size[u] + size[v] <= largest else np.inf
            start = max(start, min(together, known[u] + time))
        ends[v] = start + call[v]
        known[v] = min(on_host, ends[v] + float(out[v]))
        earliest[v] = min(on_host, ends[v])
    return earliest


def longest_latency(problem: Problem[OffloadLatency]) -> float:
    """Return an upper bound on every latency: all ops in turn, every tensor moved as often as possible."""
    costs, graph = problem.costs, problem.graph
    moves = 1 + np.diff(graph.consumer_offsets)
    return float(costs.op_time_s.max(axis=1).sum() + (moves * costs.transfer_time_s.max(axis=1)).sum())

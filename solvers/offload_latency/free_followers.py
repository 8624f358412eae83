"""Nodes that take no time and hang on one other node: in an optimum they go along with it.

A constant is read, and costs nothing where it is read: it is best in the call that reads it, or on the same host. Take
any placement, and move a node *v* without time that waits for nothing and is read by *u* alone to the place of *u*.
The call of *u* no longer moves the tensors of *v* in, nor waits for them, and the call that *v* was in no longer moves
them out; nothing becomes later. The same holds for a node that only *u* feeds and nobody reads: its output is there
when that of *u* is. So the latency does not rise. Only memory may forbid it.
"""

from __future__ import annotations

import numpy as np

from placekit.solvers.offload_latency.flat import OffloadProblem


def memory_is_moot(flat: OffloadProblem) -> bool:
    """Tell whether every accelerator could hold all nodes."""
    return not len(flat.limit_bytes) or float(flat.memory_bytes.sum()) <= float(flat.limit_bytes.min()) * (1 - 1e-12)


def free_followers(flat: OffloadProblem) -> dict[int, int]:
    """Return the nodes that can go along with another one without loss but for memory, and with which.

    Nothing with several calls per device, where a class of ops that share a device is more than one node.
    O(nodes + edges).
    """
    if flat.calls_per_device > 1:
        return {}
    contraction = flat.contraction
    graph, node = contraction.problem.graph, contraction.class_of_op
    before: list[set[int]] = [set() for _ in range(flat.num_nodes)]
    behind: list[set[int]] = [set() for _ in range(flat.num_nodes)]
    for a, b in zip(node[graph.senders].tolist(), node[graph.receivers].tolist(), strict=True):
        if a != b:
            behind[a].add(b)
            before[b].add(a)
    follows: dict[int, int] = {}
    for v in np.flatnonzero(contraction.time_s.max(axis=(1, 2)) == 0).tolist():
        if len(before[v]) + len(behind[v]) != 1:
            continue
        (u,) = before[v] | behind[v]
        if u not in follows and (contraction.allowed[v] | ~contraction.allowed[u]).all():
            follows[v] = u
    return follows

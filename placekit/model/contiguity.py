"""Contiguity: which ops one device may hold together, and what breaks the rule.

The rule looks at the *order graph*: every edge between forward ops. Backward ops have no contiguity of their own, they
follow their forward sibling through colocation; but a backward class without any forward member needs a place in the
forward order, so a backward edge that touches such an orphan counts, reversed (Tarnawski et al. 2020, section 5.3).
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import distinct, topological_order
from placekit.model.graph import OpGraph


class Contiguity(StrEnum):
    """Rule for the set of ops on one device."""

    NONE = "none"
    """Anything."""
    CONVEX = "convex"
    """No path of the order graph leaves the device and comes back to it."""
    ACYCLIC = "acyclic"
    """The order graph, with every device shrunk to one node, has no cycle: a runnable pipeline."""


def order_edges(graph: OpGraph, op_class: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return senders and receivers of the order graph (see the module docstring)."""
    senders, receivers, backward = graph.senders, graph.receivers, graph.is_backward
    if not backward.any():
        return senders, receivers
    forward = ~backward[senders] & ~backward[receivers]
    has_forward = np.zeros(int(op_class.max()) + 1, dtype=bool)
    has_forward[op_class[~backward]] = True
    orphan = ~has_forward[op_class]
    mirrored = backward[senders] & backward[receivers] & (orphan[senders] | orphan[receivers])
    return (
        np.concatenate([senders[forward], receivers[mirrored]]),
        np.concatenate([receivers[forward], senders[mirrored]]),
    )


def edges_along_order(
    num_ops: int, senders: NDArray[np.int64], receivers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges of the order graph, sorted along a topological order of their senders. O(edges log edges)."""
    order, _ = topological_order(num_ops, senders, receivers)
    rank = np.empty(num_ops, dtype=np.int64)
    rank[order] = np.arange(num_ops)
    along = np.argsort(rank[senders], kind="stable")
    return senders[along], receivers[along]


def quotient_cycle(
    senders: NDArray[np.int64], receivers: NDArray[np.int64], device_of_op: NDArray[np.int64], num_devices: int
) -> list[int]:
    """Return the devices that lie on or behind a cycle of the quotient graph; empty if it is acyclic. O(edges)."""
    source, target = device_of_op[senders], device_of_op[receivers]
    crossing = source != target
    pairs = distinct(source[crossing] * num_devices + target[crossing])
    _, stuck = topological_order(num_devices, *np.divmod(pairs, num_devices))
    devices: list[int] = stuck.tolist()
    return devices


def escaping_op(
    senders: NDArray[np.int64], receivers: NDArray[np.int64], order: NDArray[np.int64], inside: NDArray[np.bool_]
) -> int | None:
    """Return an op outside `inside` that lies on a path from `inside` back to it, or None if `inside` is convex.

    `senders` and `receivers` are the edges of the order graph, `order` is a topological order of it. O(ops + edges):
    two sweeps, one along the order ("is behind") and one against it ("is before").
    """
    num_ops = len(inside)
    rank = np.empty(num_ops, dtype=np.int64)
    rank[order] = np.arange(num_ops)
    along = np.argsort(rank[senders], kind="stable")
    behind, before = inside.tolist(), inside.tolist()
    edges = list(zip(senders[along].tolist(), receivers[along].tolist(), strict=True))
    for u, v in edges:
        behind[v] = behind[v] or behind[u]
    for u, v in sorted(edges, key=lambda edge: -int(rank[edge[1]])):
        before[u] = before[u] or before[v]
    found = np.flatnonzero(~inside & np.array(behind, dtype=bool) & np.array(before, dtype=bool))
    return int(found[0]) if found.size else None

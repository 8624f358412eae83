"""The smallest cut of a hypergraph: nets that join some set of nodes to the rest, minimised over the sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.assignment.flat import invert

WORK_BETWEEN_LOOKS = 20_000_000
"""Steps between two looks at the clock: hundredths of a second."""


def minimum_cut(
    num_nodes: int,  # number of nodes, at least 2
    # net_offsets, net_pins: CSR lists of the nodes of each net
    net_offsets: NDArray[np.int64],
    net_pins: NDArray[np.int64],
    weight: NDArray[np.float64],  # ``[num_nets]`` weights, at least 0
    # asked often; True ends the search, and nothing is known then: None
    should_stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Return the smallest total weight of the nets between a non-empty proper set of nodes and the rest.

    1. Order the nodes: start anywhere, and go on with the node that the most net weight joins to the nodes before
       (a net counts for a node from the moment that its first pin is ordered).
    2. The nets of the last node t are then a minimum cut between t and the node s before it.
    3. Merge s and t, and start again, until one node is left; the smallest of the cuts is the answer.

    O(num_nodes * (num_nodes**2 + num_pins)).

    References
    ----------
    Klimmek and Wagner, "A simple hypergraph min cut algorithm", FU Berlin, report B 96-02 (1996).
    """
    nets = Nets(net_offsets, net_pins, *invert(net_offsets, net_pins, num_nodes), weight)
    every = np.arange(num_nodes)
    merge = Merge(every, every.copy(), np.full(num_nodes, -1), every.copy())
    best, left = np.inf, num_nodes
    while left > 1:
        if should_stop():
            return None
        until = max(1, left - 1 - WORK_BETWEEN_LOOKS // (left * left + len(net_pins)))
        found = _minimum_cut(left, until, merge, nets)
        best, left = min(best, float(found)), until
    return best


class Nets(NamedTuple):
    """Nets with their nodes, nodes with their nets, and weights of nets."""

    net_offsets: NDArray[np.int64]
    net_pins: NDArray[np.int64]
    node_offsets: NDArray[np.int64]
    node_nets: NDArray[np.int64]
    weight: NDArray[np.float64]


class Merge(NamedTuple):
    """Nodes that have become one."""

    alive: NDArray[np.int64]  # the first ones are those that are left
    merged: NDArray[np.int64]  # node that each node has become
    # chain, tail: next original node inside the same merged node; and the last one of each
    chain: NDArray[np.int64]
    tail: NDArray[np.int64]


@njit
def _minimum_cut(first_left: int, last_left: int, merge: Merge, nets: Nets) -> float:
    """Merge from `first_left` nodes to `last_left`, in place, and return the smallest cut on the way."""
    alive, merged, chain, tail = merge
    net_offsets, net_pins, node_offsets, node_nets, weight = nets
    num_nodes = len(merged)
    best = np.inf
    for left in range(first_left, last_left, -1):
        key = np.zeros(num_nodes)
        ordered = np.zeros(num_nodes, dtype=np.bool_)
        touched = np.zeros(len(weight), dtype=np.bool_)
        stamp = np.full(num_nodes, -1)
        before, last = -1, -1
        for _ in range(left):
            chosen = -1
            for at in range(left):
                node = alive[at]
                if not ordered[node] and (chosen < 0 or key[node] > key[chosen]):
                    chosen = node
            ordered[chosen] = True
            before, last = last, chosen
            member = chosen
            while member >= 0:
                for at in range(node_offsets[member], node_offsets[member + 1]):
                    net = node_nets[at]
                    if touched[net]:
                        continue
                    touched[net] = True
                    for pin in range(net_offsets[net], net_offsets[net + 1]):
                        other = merged[net_pins[pin]]
                        if not ordered[other] and stamp[other] != net:
                            stamp[other] = net
                            key[other] += weight[net]
                member = chain[member]
        best = min(best, key[last])
        member = last
        while member >= 0:
            merged[member] = before
            member = chain[member]
        chain[tail[before]] = last
        tail[before] = tail[last]
        kept = 0
        for at in range(left):
            if alive[at] != last:
                alive[kept] = alive[at]
                kept += 1
    return best

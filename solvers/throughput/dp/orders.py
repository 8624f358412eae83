"""Topological orders whose prefixes make good places to cut."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.contiguity import edges_along_order
from placekit.solvers.generic.coarsen import Contraction


def order_by_key(contraction: Contraction, key: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the topological order that always takes the ready class with the smallest `key`. O((V + E) log V)."""
    successors, waiting = _successors(contraction)
    ready = [(float(key[c]), c) for c in np.flatnonzero(waiting == 0).tolist()]
    heapq.heapify(ready)
    open_predecessors = waiting.tolist()
    order = []
    while ready:
        _, c = heapq.heappop(ready)
        order.append(c)
        for s in successors[c]:
            open_predecessors[s] -= 1
            if open_predecessors[s] == 0:
                heapq.heappush(ready, (float(key[s]), s))
    return np.array(order, dtype=np.int64)


def named_orders(contraction: Contraction) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the narrow order first, which is nearly always the best, then those by depth and by height."""
    num_classes, senders, receivers = contraction.num_classes, contraction.senders, contraction.receivers
    yield "narrow", _narrow(contraction)
    yield "bfs", order_by_key(contraction, _longest(senders, receivers, np.ones(num_classes)))
    yield "dfs", topological_order(num_classes, senders, receivers, depth_first=True)[0]
    seconds = contraction.time_s.sum(axis=2).min(axis=1)
    yield "critical path", order_by_key(contraction, -_longest(receivers, senders, seconds))
    yield "earliest finish", order_by_key(contraction, _longest(senders, receivers, seconds))


def _successors(contraction: Contraction) -> tuple[list[list[int]], NDArray[np.int64]]:
    successors: list[list[int]] = [[] for _ in range(contraction.num_classes)]
    for u, v in zip(contraction.senders.tolist(), contraction.receivers.tolist(), strict=True):
        successors[u].append(v)
    return successors, np.bincount(contraction.receivers, minlength=contraction.num_classes)


def _longest(
    senders: NDArray[np.int64], receivers: NDArray[np.int64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``[num_classes]`` weight of the heaviest path that ends in each class."""
    longest = weight.tolist()
    own = weight.tolist()
    for u, v in zip(*(ends.tolist() for ends in edges_along_order(len(weight), senders, receivers)), strict=True):
        longest[v] = max(longest[v], longest[u] + own[v])
    return np.array(longest)


def _narrow(contraction: Contraction) -> NDArray[np.int64]:
    """Keep the cut small: always the ready class that adds least to the transfers across the prefix.

    A net costs its largest transfer time from its first pin inside until its last; the changes are found again only for
    classes that share a net with the one just taken, so stale entries of the heap are skipped.
    """
    successors, waiting = _successors(contraction)
    open_predecessors = waiting.tolist()
    offsets, pins = contraction.net_offsets.tolist(), contraction.net_pins.tolist()
    cost = contraction.net_time_s.sum(axis=2).max(axis=1, initial=0.0).tolist()
    nets_of: list[list[int]] = [[] for _ in range(contraction.num_classes)]
    for n in range(contraction.num_nets):
        for p in pins[offsets[n] : offsets[n + 1]]:
            nets_of[p].append(n)
    inside = [0] * contraction.num_nets

    def change(c: int) -> float:
        total = 0.0
        for n in nets_of[c]:
            size = offsets[n + 1] - offsets[n]
            total += cost[n] * ((inside[n] == 0) - (inside[n] == size - 1))
        return total

    current: dict[int, float] = {c: change(c) for c in np.flatnonzero(waiting == 0).tolist()}
    heap = [(value, c) for c, value in current.items()]
    heapq.heapify(heap)
    order = []
    while heap:
        value, c = heapq.heappop(heap)
        if current.get(c) != value:
            continue
        del current[c]
        order.append(c)
        for s in successors[c]:
            open_predecessors[s] -= 1
            if open_predecessors[s] == 0:
                current[s] = change(s)
                heapq.heappush(heap, (current[s], s))
        for n in nets_of[c]:
            inside[n] += 1
            size = offsets[n + 1] - offsets[n]
            if inside[n] not in (1, size - 1):
                continue  # the change of its other pins is what it was
            for p in pins[offsets[n] : offsets[n + 1]]:
                if p in current:
                    current[p] = change(p)
                    heapq.heappush(heap, (current[p], p))
    return np.array(order, dtype=np.int64)

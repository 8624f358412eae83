"""A first placement: devices in a row, each filled with the longest stretch of a topological order that it can bear."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.assignment.flat import FlatProblem

__all__ = ["fill_chain", "greedy_chain", "random_topological_order"]

BISECTIONS = 20


def random_topological_order(flat: FlatProblem, depth_first: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a topological order of the classes, ties at random; without an order graph, the classes as they come.

    Parameters
    ----------
    flat
        The problem.
    depth_first
        True to follow a branch to its end before the next one begins, False to go level by level.
    rng
        Where the ties are drawn.

    Notes
    -----
    O(classes log classes + edges).
    """
    waiting = np.diff(flat.previous_offsets).tolist()
    offsets, after = flat.next_offsets.tolist(), flat.next_classes.tolist()
    tie = rng.random(len(waiting)).tolist()
    heap = [(0, tie[c], c) for c, count in enumerate(waiting) if count == 0]
    heapq.heapify(heap)
    order = []
    while heap:
        age, _, c = heapq.heappop(heap)
        order.append(c)
        for e in after[offsets[c] : offsets[c + 1]]:
            waiting[e] -= 1
            if waiting[e] == 0:
                heapq.heappush(heap, (-len(order) if depth_first else age + 1, tie[e], e))
    return np.array(order, dtype=np.int64)


@njit
def fill_chain(
    flat: FlatProblem, order: NDArray[np.int64], chain: NDArray[np.int64], target_s: float, device: NDArray[np.int64]
) -> bool:
    """Give each device of `chain` the longest next stretch of `order` whose load is at most `target_s`.

    Parameters
    ----------
    flat
        The problem. Under a schedule with two passes the load is their sum.
    order
        ``[C]`` the classes in the order in which they are given away.
    chain
        ``[D]`` the devices in the order in which they take.
    target_s
        Largest load, in seconds.
    device
        ``[C]`` overwritten with the placement.

    Returns
    -------
    bool
        True if every class found a place where it is allowed and fits.

    Notes
    -----
    The load of a growing stretch falls again when a net closes inside it, so each device scans on until its work alone
    exceeds the target. O(devices * pins) at worst.
    """
    num_passes = flat.time_s.shape[2]
    count = np.zeros(len(flat.net_offsets) - 1, dtype=np.int64)
    start = 0
    for d in chain:
        kind = flat.kind[d]
        work, moved, used = 0.0, 0.0, 0.0
        end = start
        at = start
        while at < len(order):
            c = order[at]
            for p in range(num_passes):
                work += flat.time_s[c, kind, p]
            used += flat.memory_bytes[c]
            if not flat.allowed[c, d] or used > flat.limit_bytes[d] or work > target_s:
                break
            for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
                n = flat.class_nets[i]
                size = flat.net_offsets[n + 1] - flat.net_offsets[n]
                count[n] += 1
                sign = (1 if count[n] == 1 else 0) - (1 if count[n] == size else 0)
                for p in range(num_passes if sign else 0):
                    moved += sign * flat.net_time_s[n, kind, p]
            at += 1
            if (max(work, moved) if flat.has_overlap else work + moved) <= target_s:
                end = at
        for i in range(start, at):
            for j in range(flat.class_offsets[order[i]], flat.class_offsets[order[i] + 1]):
                count[flat.class_nets[j]] = 0
        for i in range(start, end):
            device[order[i]] = d
        start = end
    return start == len(order)


def greedy_chain(
    flat: FlatProblem, order: NDArray[np.int64], chain: NDArray[np.int64], most_s: float
) -> NDArray[np.int64] | None:
    """Return the chain with the smallest target that bisection finds, ``[C]`` devices; None if none fits.

    Parameters
    ----------
    flat
        The problem.
    order
        ``[C]`` a topological order.
    chain
        ``[D]`` the devices in the order in which they take.
    most_s
        A target that is surely large enough unless memory, pins or support are in the way, in seconds.
    """
    device = np.zeros(len(order), dtype=np.int64)
    if len(order) < len(flat.memory_bytes) or not fill_chain(flat, order, chain, most_s, device):
        return None
    best = device.copy()
    low, high = 0.0, most_s
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if fill_chain(flat, order, chain, middle, device):
            high, best = middle, device.copy()
        else:
            low = middle
    return best

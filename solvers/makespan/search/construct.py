"""Schedules to start from: list scheduling by earliest finish, with noise for variety."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.solvers.makespan.schedule.sequence import SequenceProblem

__all__ = ["construct", "dispatch_order"]


@njit(cache=True, nogil=True)
def dispatch_order(flat: SequenceProblem, key: NDArray[np.float64]) -> NDArray[np.int64]:
    """``[V]`` topological order that always takes the available op of the smallest `key`, then of the lowest rank."""
    num_ops = len(key)
    waiting = np.zeros(num_ops, dtype=np.int64)
    heap = [(0.0, np.int64(0), np.int64(0)) for _ in range(0)]
    for v in range(num_ops):
        waiting[v] = flat.instance.in_offsets[v + 1] - flat.instance.in_offsets[v]
        if waiting[v] == 0:
            heapq.heappush(heap, (key[v], flat.instance.rank[v], np.int64(v)))
    order = np.empty(num_ops, dtype=np.int64)
    at = 0
    while len(heap) > 0:
        v = int(heapq.heappop(heap)[2])
        order[at] = v
        at += 1
        for j in range(flat.instance.out_offsets[v], flat.instance.out_offsets[v + 1]):
            t = flat.instance.out_tensors[j]
            for i in range(flat.instance.reader_offsets[t], flat.instance.reader_offsets[t + 1]):
                w = flat.instance.readers[i]
                waiting[w] -= 1
                if waiting[w] == 0:
                    heapq.heappush(heap, (key[w], flat.instance.rank[w], w))
    return order


@njit(cache=True, nogil=True)
def construct(
    flat: SequenceProblem, sequence: NDArray[np.int64], wanted: NDArray[np.int64], patience: NDArray[np.float64]
) -> tuple[NDArray[np.int64], bool]:
    """Place the ops of a topological order one by one, each class where its first op ends earliest.

    Parameters
    ----------
    sequence
        ``[V]`` a topological order.
    wanted
        ``[C]`` device that a class takes if it is allowed and has room; -1 for the earliest finish.
    patience
        ``[V]`` seconds by which an op that could stay with the producer of its latest input may end later there than
        elsewhere: transfers that others would have to pay back.

    Returns
    -------
    tuple[NDArray[np.int64], bool]
        ``[V]`` devices, and True if all memory limits hold: a class that fits nowhere goes where most room is left.

    Notes
    -----
    O(V D + E D). Contention is ignored.
    """
    num_ops, num_devices = flat.time_s.shape
    device = np.full(num_ops, -1, dtype=np.int64)
    finish = np.zeros(num_ops)
    free = np.zeros(num_devices)
    room = flat.instance.limit_bytes.copy()
    fits = True
    for v in sequence:
        c = flat.instance.class_of_op[v]
        if device[v] < 0:
            best, best_s, roomiest = -1, np.inf, -1
            for d in range(num_devices):
                if not flat.allowed[c, d]:
                    continue
                if roomiest < 0 or room[d] > room[roomiest]:
                    roomiest = d
                if flat.class_bytes[c] > room[d]:
                    continue
                if d == wanted[c]:
                    best = d
                    break
                end = free[d]
                latest, from_here = 0.0, False
                for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
                    t = flat.instance.in_tensors[j]
                    u = flat.instance.producer[t]
                    at = finish[u]
                    if device[u] != d:
                        at += flat.link_s[t, device[u]] + flat.link_s[t, d]
                    if finish[u] >= latest:
                        latest, from_here = finish[u], device[u] == d
                    end = max(end, at)
                end += flat.time_s[v, d] - (patience[v] if from_here else 0.0)
                if end < best_s:
                    best, best_s = d, end
            if best < 0:
                best, fits = roomiest, False
            room[best] -= flat.class_bytes[c]
            for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
                device[flat.class_ops[i]] = best
        d = device[v]
        start = free[d]
        for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
            t = flat.instance.in_tensors[j]
            u = flat.instance.producer[t]
            at = finish[u]
            if device[u] != d:
                at += flat.link_s[t, device[u]] + flat.link_s[t, d]
            start = max(start, at)
        finish[v] = start + flat.time_s[v, d]
        free[d] = finish[v]
    return device, fits


@njit(cache=True, nogil=True)
def place_by_wish(
    flat: SequenceProblem, wish: NDArray[np.float64], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], bool]:
    """Place every class on the device that it wishes most among those with room.

    Parameters
    ----------
    wish
        ``[C]`` number in [0, 1): the place among the devices allowed, which are then tried in turn.
    order
        ``[C]`` order in which the classes choose.

    Returns
    -------
    tuple[NDArray[np.int64], bool]
        ``[V]`` devices, and True if all memory limits hold. O(V + C D).
    """
    num_devices = flat.allowed.shape[1]
    device = np.zeros(flat.time_s.shape[0], dtype=np.int64)
    room = flat.instance.limit_bytes.copy()
    open_devices = np.empty(num_devices, dtype=np.int64)
    fits = True
    for c in order:
        count = 0
        for d in range(num_devices):
            if flat.allowed[c, d]:
                open_devices[count] = d
                count += 1
        if count == 0:
            fits = False
            continue
        at = min(int(wish[c] * count), count - 1)
        chosen = -1
        for k in range(count):
            d = open_devices[(at + k) % count]
            if flat.class_bytes[c] <= room[d]:
                chosen = d
                break
        if chosen < 0:
            chosen, fits = open_devices[at], False
        room[chosen] -= flat.class_bytes[c]
        for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
            device[flat.class_ops[i]] = chosen
    return device, fits

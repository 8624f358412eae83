"""The best order of the ops of a placement for the makespan, by depth-first search over schedules sorted by start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.moves import move_s

ROUNDING = 1e-13
"""Relative: more than sums of a few terms differ by, and less than what methods call equal."""


@njit
def best_order(
    instance: MakespanInstance,
    device: NDArray[np.int64],  # ``[V]`` device of every op
    has_contention: bool,  # True if a device sends one transfer at a time, in the order in which its ops end
    most_s: float,  # seconds that a schedule must be below
) -> tuple[float, NDArray[np.int64]]:
    """Return the least makespan below `most_s` of a placement, and an order of the ops that has it.

    An op is appended to its device's order, and starts when the device is free and its inputs are there; no op starts
    before the one appended last. Sorted by start, the ops of every schedule are such a sequence, so all are seen.
    A sequence is given up when the tails of the ops that are left, or the work left on a device, exceed `most_s`, or
    reach the best schedule found: those that only equal it can be all orders of the ops.

    Returns
    -------
    tuple
        The makespan, to a relative `ROUNDING`, or `most_s` if there is none below; and ``[V]`` the ops in their order.

    Notes
    -----
    Exponential in the number of ops, O(ops + edges) a sequence.
    """
    num_ops, num_devices = len(device), len(instance.kind)
    num_tensors = len(instance.producer)
    time = np.zeros(num_ops)
    for v in range(num_ops):
        time[v] = instance.op_time_s[v, instance.kind[device[v]]]
    tail = np.zeros(num_ops)  # from the end of each op on, without waiting for devices
    for at in range(num_ops - 1, -1, -1):
        u = instance.order[at]
        for i in range(instance.edge_offsets[u], instance.edge_offsets[u + 1]):
            v, t = instance.edge_readers[i], instance.edge_tensors[i]
            delay = 0.0
            if device[v] != device[u]:
                delay = move_s(instance, t, device[u], device[v])
            tail[u] = max(tail[u], delay + time[v] + tail[v])
    best, order = most_s, np.full(num_ops, -1)
    below_s = most_s * (1 + ROUNDING)
    # by depth: what the op appended there has changed
    chosen = np.full(num_ops + 1, -1)
    free, bus = np.zeros((num_ops + 1, num_devices)), np.zeros((num_ops + 1, num_devices))
    left = np.zeros((num_ops + 1, num_devices))
    clock, latest = np.zeros(num_ops + 1), np.zeros(num_ops + 1)
    for v in range(num_ops):
        left[0, device[v]] += time[v]
    arrival = np.zeros((num_tensors, num_devices))
    is_done = np.zeros(num_ops, np.bool_)
    depth = 0
    while depth >= 0:
        if depth == num_ops:
            if latest[depth] < best:
                best = latest[depth]
                below_s = best * (1 - ROUNDING)
                for at in range(num_ops):
                    order[at] = chosen[at]
            depth -= 1
            is_done[chosen[depth]] = False
            continue
        v = chosen[depth] + 1
        found = False
        while v < num_ops:
            if not is_done[v]:
                is_ready, start = True, free[depth, device[v]]
                for i in range(instance.in_offsets[v], instance.in_offsets[v + 1]):
                    t = instance.in_tensors[i]
                    if not is_done[instance.producer[t]]:
                        is_ready = False
                        break
                    start = max(start, arrival[t, device[v]])
                if is_ready and start >= clock[depth]:
                    end = start + time[v]
                    least = max(latest[depth], end + tail[v])
                    for d in range(num_devices):
                        begins = end if d == device[v] else max(free[depth, d], start)
                        rest = left[depth, d] - time[v] if d == device[v] else left[depth, d]
                        if rest > 0:
                            least = max(least, begins + rest)
                    if least < below_s:
                        found = True
                        break
            v += 1
        if not found:
            chosen[depth] = -1
            depth -= 1
            if depth >= 0:
                is_done[chosen[depth]] = False
            continue
        chosen[depth], is_done[v] = v, True
        d = device[v]
        depth += 1
        free[depth], bus[depth], left[depth] = free[depth - 1], bus[depth - 1], left[depth - 1]
        free[depth, d], clock[depth] = end, start
        left[depth, d] -= time[v]
        latest[depth] = max(latest[depth - 1], end)
        if depth < num_ops:
            chosen[depth] = -1
        for i in range(instance.out_offsets[v], instance.out_offsets[v + 1]):
            t = instance.out_tensors[i]
            arrival[t] = -1.0
            arrival[t, d] = end
            for j in range(instance.reader_offsets[t], instance.reader_offsets[t + 1]):
                to = device[instance.readers_in_turn[j]]
                if arrival[t, to] >= 0.0:
                    continue
                leaves = max(end, bus[depth, d]) if has_contention else end
                arrives = leaves + move_s(instance, t, d, to)
                arrival[t, to] = arrives
                if has_contention:
                    bus[depth, d] = arrives
    return best, order

"""Earliest task first, compiled: of all ready ops and all devices, the pair that can start earliest.

Every device has two heaps of ready ops: ops whose inputs arrive after the device is free, by arrival, and ops that
could start at once, by priority. Ops that were placed elsewhere, or no longer fit, are dropped when they reach the top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.objectives.makespan.moves import move_s


@njit
def schedule_earliest_start(instance, place_of_op, favourite, wait_s):  # type: ignore[no-untyped-def]  # compiled
    """Start the pair of ready op and device that can start earliest, again and again, without contention.

    A pair can start when the device has ended all its ops and the inputs have arrived there. Ties go to the op of the
    smallest place, then to the earliest finish, then to the lowest device index. A device without room for the whole
    class of an op is no candidate. Once some class has no candidate at all, limits are ignored.

    An op with a favourite child keeps its device *awake* for the child for `wait_s` after its end, until another device
    could run the child as well. Other ops start on the device only afterwards, unless they are *urgent*: their inputs
    have then arrived on every device that may run them.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    place_of_op : int64[V]
        Distinct places of the ops in the order in which ties are decided.
    favourite : int64[V]
        Favourite child of every op, -1 for none.
    wait_s : float64[V]
        Seconds for which the device of an op waits for the favourite child.

    Returns
    -------
    tuple[int64[V], float64[V], float64[V], bool]
        Device, start and finish of every op; and False if limits were ignored.

    Notes
    -----
    O((V D + E) log V + E D) time, O(V D) memory.
    """
    num_ops, num_devices = len(place_of_op), len(instance.kind)
    op_at = np.empty(num_ops, dtype=np.int64)
    for op in range(num_ops):
        op_at[place_of_op[op]] = op
    num_classes = instance.class_of_op.max() + 1
    class_bytes = np.zeros(num_classes)
    for op in range(num_ops):
        class_bytes[instance.class_of_op[op]] += instance.memory_bytes[op]
    class_device = np.full(num_classes, -1, dtype=np.int64)
    used, limit = np.zeros(num_devices), instance.limit_bytes.copy()
    fits_all = True

    # slice d of each pair of arrays is the heap of device d; the last heap holds ops by when they are ready everywhere
    arrival, arrival_place = np.empty(num_devices * num_ops), np.empty(num_devices * num_ops, dtype=np.int64)
    now, now_place = np.empty(num_devices * num_ops), np.empty(num_devices * num_ops, dtype=np.int64)
    num_later, num_now = np.zeros(num_devices, dtype=np.int64), np.zeros(num_devices, dtype=np.int64)
    everywhere, everywhere_place = np.empty(num_ops), np.empty(num_ops, dtype=np.int64)
    num_urgent = 0

    device = np.full(num_ops, -1, dtype=np.int64)
    start, finish = np.zeros(num_ops), np.zeros(num_ops)
    free = np.zeros(num_devices)
    awake_for = np.full(num_devices, -1, dtype=np.int64)
    awake_until = np.zeros(num_devices)
    state = (instance, device, class_device, class_bytes, used, limit)
    missing = np.empty(num_ops, dtype=np.int64)
    fresh = np.empty(num_ops, dtype=np.int64)  # ops that became ready and are in no heap yet
    num_fresh, num_placed = 0, 0
    for op in range(num_ops):
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        if missing[op] == 0:
            fresh[num_fresh] = op
            num_fresh += 1
    while num_placed < num_ops:
        for i in range(num_fresh):
            op = fresh[i]
            last = 0.0
            for d in range(num_devices):
                if instance.allowed[op, d] and class_device[instance.class_of_op[op]] in (-1, d):
                    ready = _ready(instance, op, d, device, finish)
                    last = max(last, ready)
                    push(arrival, arrival_place, d * num_ops, num_later[d], ready, place_of_op[op])
                    num_later[d] += 1
            push(everywhere, everywhere_place, 0, num_urgent, last, place_of_op[op])
            num_urgent += 1
        num_fresh = 0
        while num_urgent > 0 and device[op_at[everywhere_place[0]]] >= 0:
            num_urgent -= 1
            pop(everywhere, everywhere_place, 0, num_urgent)

        best, best_op, best_start, best_finish = -1, -1, np.inf, np.inf
        for d in range(num_devices):
            base = d * num_ops
            while num_later[d] > 0 and (
                arrival[base] <= free[d] or not _may_take(op_at[arrival_place[base]], d, state)
            ):
                place = arrival_place[base]
                num_later[d] -= 1
                pop(arrival, arrival_place, base, num_later[d])
                if _may_take(op_at[place], d, state):
                    push(now, now_place, base, num_now[d], 0.0, place)
                    num_now[d] += 1
            while num_now[d] > 0 and not _may_take(op_at[now_place[base]], d, state):
                num_now[d] -= 1
                pop(now, now_place, base, num_now[d])
            child = awake_for[d]
            if child >= 0 and not _may_take(child, d, state):
                child = awake_for[d] = -1
            for choice in range(3):
                op, begin = -1, np.inf
                if choice == 0 and num_now[d] > 0:
                    op, begin = op_at[now_place[base]], free[d]
                elif choice == 0 and num_later[d] > 0:
                    op, begin = op_at[arrival_place[base]], arrival[base]
                elif choice == 1 and child >= 0 and missing[child] == 0:
                    op, begin = child, max(free[d], _ready(instance, child, d, device, finish))
                elif choice == 2 and child >= 0 and num_urgent > 0:
                    op, begin = op_at[everywhere_place[0]], max(free[d], everywhere[0])
                    if not _may_take(op, d, state):
                        op = -1
                if op < 0:
                    continue
                if choice == 0 and child >= 0 and op != child:
                    begin = max(begin, awake_until[d])
                end = begin + instance.op_time_s[op, instance.kind[d]]
                if best < 0 or (begin, place_of_op[op], end) < (best_start, place_of_op[best_op], best_finish):
                    best, best_op, best_start, best_finish = d, op, begin, end

        if best < 0:  # no class that is left has room: go on without limits, for the caller to repair
            fits_all = False
            limit[:] = np.inf
            num_urgent = 0
            num_later[:] = 0
            num_now[:] = 0
            for op in range(num_ops):
                if device[op] < 0 and missing[op] == 0:
                    fresh[num_fresh] = op
                    num_fresh += 1
            continue
        op, c = best_op, instance.class_of_op[best_op]
        if class_device[c] < 0:
            class_device[c] = best
            used[best] += class_bytes[c]
        device[op], start[op], finish[op] = best, best_start, best_finish
        free[best] = best_finish
        awake_for[best] = favourite[op]
        awake_until[best] = best_finish + wait_s[op]
        num_placed += 1
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader = instance.edge_readers[j]
            missing[reader] -= 1
            if missing[reader] == 0:
                fresh[num_fresh] = reader
                num_fresh += 1
    return device, start, finish, fits_all


@njit(inline=True)
def _may_take(
    op: int,
    d: int,
    state: tuple[
        MakespanInstance,
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
    ],
) -> bool:
    """Return True if `op` has no device yet and may run on `d`."""
    instance, device, class_device, class_bytes, used, limit = state
    c = instance.class_of_op[op]
    if device[op] >= 0 or not instance.allowed[op, d]:
        return False
    return bool(class_device[c] == d) or bool(class_device[c] < 0 and used[d] + class_bytes[c] <= limit[d])


@njit(inline=True)
def _ready(
    instance: MakespanInstance, op: int, d: int, device: NDArray[np.int64], finish: NDArray[np.float64]
) -> float:
    """Return the time at which the inputs of `op`, all of them produced, have arrived on device `d`."""
    ready = 0.0
    for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
        tensor = instance.in_tensors[i]
        source = device[instance.producer[tensor]]
        at = finish[instance.producer[tensor]]
        if source != d:
            at += move_s(instance, tensor, source, d)
        ready = max(ready, at)
    return ready

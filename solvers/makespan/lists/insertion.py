"""List scheduling with insertion, compiled: ops by priority, each to its best device.

Idle time of a device is a linked list of gaps, which includes the endless gap after the last op. So a device without
other gaps costs one look, however many ops it has run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.objectives.makespan.moves import move_s


@njit
def schedule_by_priority(instance, priority, lookahead_s, wanted, has_insertion):  # type: ignore[no-untyped-def]
    """Place the ready op of the largest priority, again and again, without contention.

    1. Of the ready ops take the one of largest `priority`, ties by topological position.
    2. If the class of the op has a device, use it. Otherwise the candidates are the devices that may run the class and
       have room for all of it. On each of them the op starts in the earliest gap that is long enough, or after all
       other ops without `has_insertion`. Take the device with the earliest end plus `lookahead_s`; ties by device
       index.
    3. If no device has room, take the device that exceeds its limit least.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    priority : float64[V]
        Larger first.
    lookahead_s : float64[V, K]
        Seconds that are added to the end of an op on each kind.
    wanted : int64[V]
        Preferred device of a class, used if it is allowed and has room (read at its first op); -1 for none.
    has_insertion : bool
        See above.

    Returns
    -------
    tuple[int64[V], float64[V], float64[V], bool]
        Device, start and finish of every op; and False if a memory limit is broken.

    Notes
    -----
    O(V log V + E D + gaps looked at), where an op looks at the gaps of a device that end after its inputs arrive.
    """
    num_ops, num_devices = len(priority), len(instance.kind)
    num_classes = instance.class_of_op.max() + 1
    class_bytes = np.zeros(num_classes)
    for op in range(num_ops):
        class_bytes[instance.class_of_op[op]] += instance.memory_bytes[op]
    class_device = np.full(num_classes, -1, dtype=np.int64)
    used = np.zeros(num_devices)
    fits_all = True

    device = np.full(num_ops, -1, dtype=np.int64)
    start, finish = np.zeros(num_ops), np.zeros(num_ops)
    # gap d < num_devices is the endless gap of device d; every op makes at most one more
    gap_begin = np.zeros(num_devices + num_ops)
    gap_end = np.full(num_devices + num_ops, np.inf)
    before = np.full(num_devices + num_ops, -1, dtype=np.int64)
    after = np.full(num_devices + num_ops, -1, dtype=np.int64)
    num_gaps = num_devices

    missing = np.empty(num_ops, dtype=np.int64)
    urgency, rank = np.empty(num_ops), np.empty(num_ops, dtype=np.int64)  # a heap of the ready ops
    num_ready = 0
    for op in range(num_ops):
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        if missing[op] == 0:
            push(urgency, rank, 0, num_ready, -priority[op], instance.rank[op])
            num_ready += 1
    while num_ready > 0:
        op = instance.order[rank[0]]
        num_ready -= 1
        pop(urgency, rank, 0, num_ready)
        c = instance.class_of_op[op]
        first, last = 0, num_devices
        if class_device[c] >= 0:
            first, last = class_device[c], class_device[c] + 1
        elif (
            wanted[op] >= 0
            and instance.allowed[op, wanted[op]]
            and used[wanted[op]] + class_bytes[c] <= instance.limit_bytes[wanted[op]]
        ):
            first, last = wanted[op], wanted[op] + 1
        best, best_gap, best_value, best_begin = -1, -1, np.inf, 0.0
        least, least_over = -1, np.inf
        for d in range(first, last):
            if class_device[c] < 0:
                if not instance.allowed[op, d]:
                    continue
                over = used[d] + class_bytes[c] - instance.limit_bytes[d]
                if over > 0:
                    if over < least_over:
                        least, least_over = d, over
                    continue
            gap, begin = earliest_gap(instance, op, d, device, finish, gap_begin, gap_end, before, has_insertion)
            value = begin + instance.op_time_s[op, instance.kind[d]] + lookahead_s[op, instance.kind[d]]
            if best < 0 or value < best_value:
                best, best_gap, best_value, best_begin = d, gap, value, begin
        if best < 0:
            fits_all = False
            best = max(least, 0)  # a class that no device may take is no case of this function; it stays defined
            best_gap, best_begin = earliest_gap(
                instance, op, best, device, finish, gap_begin, gap_end, before, has_insertion
            )
        if class_device[c] < 0:
            class_device[c] = best
            used[best] += class_bytes[c]
        device[op], start[op] = best, best_begin
        finish[op] = best_begin + instance.op_time_s[op, instance.kind[best]]
        num_gaps = fill_gap(best_gap, start[op], finish[op], gap_begin, gap_end, before, after, num_gaps)
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader = instance.edge_readers[j]
            missing[reader] -= 1
            if missing[reader] == 0:
                push(urgency, rank, 0, num_ready, -priority[reader], instance.rank[reader])
                num_ready += 1
    return device, start, finish, fits_all


@njit(inline=True)
def earliest_gap(
    instance: MakespanInstance,
    op: int,
    d: int,
    device: NDArray[np.int64],
    finish: NDArray[np.float64],
    gap_begin: NDArray[np.float64],
    gap_end: NDArray[np.float64],
    before: NDArray[np.int64],
    has_insertion: bool,
) -> tuple[int, float]:
    """Return the earliest gap of device `d` that is long enough for `op` after its inputs, and the start there."""
    kind = instance.kind[d]
    ready = 0.0
    for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
        tensor = instance.in_tensors[i]
        producer = instance.producer[tensor]
        source = device[producer]
        at = finish[producer]
        if source != d:
            at += move_s(instance, tensor, source, d)
        ready = max(ready, at)
    gap, begin = d, max(ready, gap_begin[d])
    if has_insertion:
        time = instance.op_time_s[op, kind]
        other = before[d]
        while other >= 0 and gap_end[other] >= ready + time:
            if max(ready, gap_begin[other]) + time <= gap_end[other]:
                gap, begin = other, max(ready, gap_begin[other])
            other = before[other]
    return gap, begin


@njit(inline=True)
def fill_gap(
    gap: int,
    begin: float,
    end: float,
    gap_begin: NDArray[np.float64],
    gap_end: NDArray[np.float64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    num_gaps: int,
) -> int:
    """Take the time from `begin` to `end` out of a gap; return the number of gaps ever made."""
    left, right = begin > gap_begin[gap], end < gap_end[gap]
    if left and right:  # the new gap is the left part, so that the endless one stays the last
        new = num_gaps
        num_gaps += 1
        gap_begin[new], gap_end[new] = gap_begin[gap], begin
        before[new], after[new] = before[gap], gap
        if before[gap] >= 0:
            after[before[gap]] = new
        before[gap] = new
        gap_begin[gap] = end
    elif right:
        gap_begin[gap] = end
    elif left:
        gap_end[gap] = begin
    else:
        if before[gap] >= 0:
            after[before[gap]] = after[gap]
        before[after[gap]] = before[gap]
    return num_gaps

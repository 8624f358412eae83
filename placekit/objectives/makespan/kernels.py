"""Compiled simulators of asynchronous execution: non-delay dispatch, strict orders, and the transfers they make.

All of them take a :class:`~placekit.objectives.makespan.arrays.MakespanInstance`. Times that a plain event simulation
computes come out bit by bit, whatever the number of threads: every time is one sum ``start + duration`` or a maximum of
such sums, never a sum over a set. The kernels are compiled on the first call on a machine and cached on disk after
that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.objectives.makespan.moves import move_s

FIFO = 0
"""Dispatch rule: smallest (time at which the op became ready, topological position) first."""
BY_PRIORITY = 1
"""Dispatch rule: smallest (priority, topological position) first."""


@njit(inline=True)
def _push_event(times: NDArray[np.float64], codes: NDArray[np.int64], size: int, time: float, code: int) -> int:
    """Add an event to the binary heap of times; O(log size)."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] <= time:
            break
        times[at] = times[parent]
        codes[at] = codes[parent]
        at = parent
    times[at] = time
    codes[at] = code
    return size + 1


@njit(inline=True)
def _pop_event(times: NDArray[np.float64], codes: NDArray[np.int64], size: int) -> int:
    """Remove the earliest event, which the caller has read at index 0; O(log size)."""
    size -= 1
    time, code = times[size], codes[size]
    times[size] = np.inf  # a right sibling that is not there never comes first
    at, child = 0, 1
    while child < size:  # the hole goes to the bottom, where the last event most likely belongs, then up
        child += times[child + 1] < times[child]
        times[at] = times[child]
        codes[at] = codes[child]
        at, child = child, 2 * child + 1
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] <= time:
            break
        times[at] = times[parent]
        codes[at] = codes[parent]
        at = parent
    times[at] = time
    codes[at] = code
    return size


@njit(inline=True)
def _queue_receivers(
    instance: MakespanInstance,
    device: NDArray[np.int64],
    tensor: int,
    stamp: NDArray[np.int64],
    found: NDArray[np.int64],
) -> int:
    """Write the devices that receive `tensor` into `found`, first come first; return how many.

    A device comes with the first of its readers whose turn it is. ``stamp[d] == tensor``: seen.
    """
    stamp[device[instance.producer[tensor]]] = tensor
    count = 0
    for i in range(instance.reader_offsets[tensor], instance.reader_offsets[tensor + 1]):
        target = device[instance.readers_in_turn[i]]
        if stamp[target] != tensor:
            stamp[target] = tensor
            found[count] = target
            count += 1
    return count


@njit(inline=True)
def _send(
    instance: MakespanInstance,
    device: NDArray[np.int64],
    tensor: int,
    now: float,
    bus_free: NDArray[np.float64],
    arrival: NDArray[np.float64],
    stamp: NDArray[np.int64],
    receivers: NDArray[np.int64],
) -> None:
    """Queue the transfers of `tensor`, produced `now`, on its device's bus; write when each one arrives."""
    source = device[instance.producer[tensor]]
    for r in range(_queue_receivers(instance, device, tensor, stamp, receivers)):
        target = receivers[r]
        begin = max(bus_free[source], now)
        bus_free[source] = begin + move_s(instance, tensor, source, target)
        arrival[target] = bus_free[source]


@njit
def dispatch(instance, device, priority, rule, has_contention, start, finish, step):  # type: ignore[no-untyped-def]
    """Run a placement without idling by choice: a free device starts one of its ready ops at once.

    An op is ready when all its inputs have arrived on its device. All finishes and arrivals of a moment come before
    any start of that moment; an op of zero seconds makes a second round of the same moment. On one device transfers
    queue in the order in which the ops that produce them finish, then by tensor, then as their readers are in turn.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    device : int64[V]
        Device of every op.
    priority : float64[V]
        Smaller first; read with rule `BY_PRIORITY` only, then of length V.
    rule : int
        `FIFO` or `BY_PRIORITY`.
    has_contention : bool
        True if every device sends one transfer at a time.
    start, finish : float64[V]
        Receive the seconds at which every op starts and ends.
    step : int64[V]
        Receives the position of every op in the order of all starts.

    Returns
    -------
    float
        The makespan in seconds.

    Notes
    -----
    O((V + E) log V) time, O(V + D) memory.
    """
    num_ops, num_devices = len(device), len(instance.kind)
    kind, rank, order = instance.kind, instance.rank, instance.order
    times = np.empty(num_ops + 2)  # event heap: an op is in it either until it is ready or until it ends
    codes = np.empty(num_ops + 2, dtype=np.int64)  # an op that ends, or num_ops + an op that becomes ready
    num_events = 0
    base = np.zeros(num_devices + 1, dtype=np.int64)  # the ready heaps of the devices lie in one array
    for op in range(num_ops):
        base[device[op] + 1] += 1
    for d in range(num_devices):
        base[d + 1] += base[d]
    keys = np.empty(num_ops)
    places = np.empty(num_ops, dtype=np.int64)
    num_ready = np.zeros(num_devices, dtype=np.int64)
    busy_until = np.full(num_devices, -1.0)  # -1: idle
    touched = np.empty(num_devices, dtype=np.int64)  # devices that may start an op in this round
    is_touched = np.zeros(num_devices, dtype=np.bool_)
    num_touched = 0
    bus_free = np.zeros(num_devices)
    arrival = np.zeros(num_devices)
    stamp = np.full(num_devices, -1, dtype=np.int64)
    receivers = np.empty(num_devices, dtype=np.int64)
    missing = np.empty(num_ops, dtype=np.int64)
    ready = start  # until an op starts, its slot holds the latest arrival so far
    for op in range(num_ops):
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        ready[op] = 0.0
        if missing[op] == 0:
            d = device[op]
            key = 0.0 if rule == FIFO else priority[op]
            push(keys, places, base[d], num_ready[d], key, rank[op])
            num_ready[d] += 1
    for d in range(num_devices):
        touched[d] = d
    num_touched = num_devices
    now, num_started = 0.0, 0
    while True:
        for i in range(num_touched):
            d = touched[i]
            is_touched[d] = False
            if busy_until[d] >= 0 or num_ready[d] == 0:
                continue
            op = order[places[base[d]]]
            num_ready[d] -= 1
            pop(keys, places, base[d], num_ready[d])
            start[op] = now
            finish[op] = now + instance.op_time_s[op, kind[d]]
            busy_until[d] = finish[op]
            step[op] = num_started
            num_started += 1
            num_events = _push_event(times, codes, num_events, finish[op], op)
        num_touched = 0
        if num_events == 0:
            return now
        now = times[0]
        while num_events > 0 and times[0] == now:
            code = codes[0]
            num_events = _pop_event(times, codes, num_events)
            op = code - num_ops if code >= num_ops else code
            d = device[op]
            if not is_touched[d]:
                is_touched[d] = True
                touched[num_touched] = d
                num_touched += 1
            if code >= num_ops:
                push(keys, places, base[d], num_ready[d], now if rule == FIFO else priority[op], rank[op])
                num_ready[d] += 1
                continue
            busy_until[d] = -1.0
            sent = -1
            for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
                reader, tensor = instance.edge_readers[j], instance.edge_tensors[j]
                target = device[reader]
                if has_contention:
                    if tensor != sent:
                        _send(instance, device, tensor, now, bus_free, arrival, stamp, receivers)
                        sent = tensor
                    at = arrival[target] if target != d else now
                else:
                    at = now + (target != d) * move_s(instance, tensor, d, target)  # a branch is hard to predict
                ready[reader] = max(ready[reader], at)
                missing[reader] -= 1
                if missing[reader] > 0:
                    continue
                if ready[reader] > max(now, busy_until[target]):
                    num_events = _push_event(times, codes, num_events, ready[reader], num_ops + reader)
                    continue
                key = ready[reader] if rule == FIFO else priority[reader]
                push(keys, places, base[target], num_ready[target], key, rank[reader])
                num_ready[target] += 1
                if not is_touched[target]:
                    is_touched[target] = True
                    touched[num_touched] = target
                    num_touched += 1


@njit
def run_in_order(instance, device, queue, has_contention, start, finish):  # type: ignore[no-untyped-def]  # compiled
    """Run a placement in which every device follows `queue`, idling where it must.

    An op starts as soon as the op before it on its device has ended and its inputs have arrived: a longest path in the
    graph with one more edge between neighbours in a device's queue. On one device ops end in the order of the queue, so
    its transfers leave in that order too, and any topological order of that graph gives the same times.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    device : int64[V]
        Device of every op.
    queue : int64[V]
        All ops; every device runs its own in this order.
    has_contention : bool
        True if every device sends one transfer at a time.
    start, finish : float64[V]
        Receive the seconds at which every op starts and ends.

    Returns
    -------
    tuple[float, int]
        The makespan in seconds and -1; or anything and an op on a cycle, if the queues and the graph make devices wait
        for each other.

    Notes
    -----
    O(V + E) time, O(V + D) memory.
    """
    num_ops, num_devices = len(device), len(instance.kind)
    kind = instance.kind
    missing = np.empty(num_ops, dtype=np.int64)
    next_op = np.full(num_ops, -1, dtype=np.int64)
    last = np.full(num_devices, -1, dtype=np.int64)
    previous_op = np.empty(num_ops, dtype=np.int64)
    stack = np.empty(num_ops, dtype=np.int64)
    num_stacked = 0
    for i in range(num_ops):
        op = queue[i]
        d = device[op]
        previous_op[op] = last[d]
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        if last[d] >= 0:
            next_op[last[d]] = op
            missing[op] += 1
        last[d] = op
        start[op] = 0.0
        if missing[op] == 0:
            stack[num_stacked] = op
            num_stacked += 1
    bus_free = np.zeros(num_devices)
    arrival = np.zeros(num_devices)
    stamp = np.full(num_devices, -1, dtype=np.int64)
    receivers = np.empty(num_devices, dtype=np.int64)
    makespan, num_done = 0.0, 0
    while num_stacked > 0:
        num_stacked -= 1
        op = stack[num_stacked]
        num_done += 1
        d = device[op]
        now = start[op] + instance.op_time_s[op, kind[d]]
        finish[op] = now
        makespan = max(makespan, now)
        following = next_op[op]
        if following >= 0:
            start[following] = max(start[following], now)
            missing[following] -= 1
            if missing[following] == 0:
                stack[num_stacked] = following
                num_stacked += 1
        sent = -1
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader, tensor = instance.edge_readers[j], instance.edge_tensors[j]
            target = device[reader]
            at = now
            if target != d and has_contention:
                if tensor != sent:
                    _send(instance, device, tensor, now, bus_free, arrival, stamp, receivers)
                    sent = tensor
                at = arrival[target]
            elif target != d:
                at = now + move_s(instance, tensor, d, target)
            start[reader] = max(start[reader], at)
            missing[reader] -= 1
            if missing[reader] == 0:
                stack[num_stacked] = reader
                num_stacked += 1
    if num_done == num_ops:
        return makespan, -1
    # every op left has a predecessor left: walk backwards for as many steps as there are ops, and be on a cycle
    op = 0
    while missing[op] <= 0:
        op += 1
    for _ in range(num_ops):
        before = previous_op[op]
        if before < 0 or missing[before] <= 0:
            for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
                before = instance.producer[instance.in_tensors[i]]
                if missing[before] > 0:
                    break
        op = before
    return makespan, op


@njit
def list_transfers(  # type: ignore[no-untyped-def]  # compiled: the argument types are in the docstring
    instance, device, queue, finish, has_contention, tensor, target, begin, end
):
    """Write every transfer of a run, in the order of `queue`, then of tensors, then in which the receivers queue.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    device : int64[V]
        Device of every op.
    queue : int64[V]
        All ops in the order of their starts (per device is enough).
    finish : float64[V]
        Seconds at which every op ends.
    has_contention : bool
        True if every device sends one transfer at a time.
    tensor, target : int64[E]
        Receive the tensor and the receiving device.
    begin, end : float64[E]
        Receive the seconds at which each transfer leaves and arrives.

    Returns
    -------
    int
        Number of transfers, E at most. O(V + E + transfers * D).
    """
    num_devices = len(instance.kind)
    bus_free = np.zeros(num_devices)
    stamp = np.full(num_devices, -1, dtype=np.int64)
    receivers = np.empty(num_devices, dtype=np.int64)
    count = 0
    for i in range(len(queue)):
        op = queue[i]
        d = device[op]
        for j in range(instance.out_offsets[op], instance.out_offsets[op + 1]):
            t = instance.out_tensors[j]
            for r in range(_queue_receivers(instance, device, t, stamp, receivers)):
                to = receivers[r]
                leaves = max(bus_free[d], finish[op]) if has_contention else finish[op]
                tensor[count], target[count], begin[count] = t, to, leaves
                end[count] = leaves + move_s(instance, t, d, to)
                bus_free[d] = end[count]
                count += 1
    return count

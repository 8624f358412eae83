"""Compiled simulators of asynchronous execution: non-delay dispatch, strict orders, and the transfers they make.

All of them take a :class:`~placekit.objectives.makespan.arrays.MakespanInstance`. Times that a plain event simulation
computes come out bit by bit, whatever the number of threads: every time is one sum ``start + duration`` or a maximum of
such sums, never a sum over a set. The kernels are compiled on the first call on a machine and cached on disk after
that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.objectives.makespan.moves import move_s

FIFO = 0
"""Dispatch rule: smallest (time at which the op became ready, topological position) first."""
BY_PRIORITY = 1
"""Dispatch rule: smallest (priority, topological position) first."""


@njit(inline=True, allocates=False)
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


@njit(inline=True, allocates=False)
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


class Bus(NamedTuple):
    """Transfers of every device, one after the other."""

    free: NDArray[np.float64]  # ``[D]`` end of the last one
    arrival: NDArray[np.float64]  # ``[D]`` of the tensor that was sent last, on every device that receives it
    stamp: NDArray[np.int64]  # ``[D]`` last tensor for which the device was seen
    receivers: NDArray[np.int64]  # ``[D]`` devices that receive a tensor, first come first


@njit(inline=True)
def _idle_bus(num_devices: int) -> Bus:
    return Bus(
        np.zeros(num_devices),
        np.zeros(num_devices),
        np.full(num_devices, -1, dtype=np.int64),
        np.empty(num_devices, dtype=np.int64),
    )


@njit(inline=True, allocates=False)
def _queue_receivers(instance: MakespanInstance, device: NDArray[np.int64], tensor: int, bus: Bus) -> int:
    """Write the devices that receive `tensor` into ``bus.receivers``, first come first; return how many.

    A device comes with the first of its readers whose turn it is. ``stamp[d] == tensor``: seen.
    """
    bus.stamp[device[instance.producer[tensor]]] = tensor
    count = 0
    for i in range(instance.reader_offsets[tensor], instance.reader_offsets[tensor + 1]):
        target = device[instance.readers_in_turn[i]]
        if bus.stamp[target] != tensor:
            bus.stamp[target] = tensor
            bus.receivers[count] = target
            count += 1
    return count


@njit(inline=True, allocates=False)
def _send(instance: MakespanInstance, device: NDArray[np.int64], tensor: int, now: float, bus: Bus) -> None:
    """Queue the transfers of `tensor`, produced `now`, on its device's bus; write when each one arrives."""
    source = device[instance.producer[tensor]]
    for r in range(_queue_receivers(instance, device, tensor, bus)):
        target = bus.receivers[r]
        begin = max(bus.free[source], now)
        bus.free[source] = begin + move_s(instance, tensor, source, target)
        bus.arrival[target] = bus.free[source]


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
    agenda = Agenda(
        np.empty(num_ops + 2),
        np.empty(num_ops + 2, dtype=np.int64),
        np.zeros(num_devices + 1, dtype=np.int64),
        np.empty(num_ops),
        np.empty(num_ops, dtype=np.int64),
        np.zeros(num_devices, dtype=np.int64),
        np.full(num_devices, -1.0),
        np.empty(num_devices, dtype=np.int64),
        np.zeros(num_devices, dtype=np.bool_),
        np.empty(num_ops, dtype=np.int64),
    )
    run = Dispatched(device, priority, rule, has_contention, start, finish, step)
    bus = _idle_bus(num_devices)
    return float(_run_events(by_reference(instance), by_reference(run), by_reference(agenda), by_reference(bus)))


class Dispatched(NamedTuple):
    """Arguments of `dispatch`."""

    device: NDArray[np.int64]
    priority: NDArray[np.float64]
    rule: int
    has_contention: bool
    start: NDArray[np.float64]
    finish: NDArray[np.float64]
    step: NDArray[np.int64]


class Agenda(NamedTuple):
    """Events that are to come, and ops that are ready."""

    # times, codes: heap of events: an op is in it either until it is ready or until it ends. An op that ends, or the
    # number of ops + an op that becomes ready.
    times: NDArray[np.float64]
    codes: NDArray[np.int64]
    # base, keys, places, num_ready: heaps of the ready ops of every device, in one array
    base: NDArray[np.int64]
    keys: NDArray[np.float64]
    places: NDArray[np.int64]
    num_ready: NDArray[np.int64]
    busy_until: NDArray[np.float64]  # ``[D]``; -1: idle
    # touched, is_touched: ``[D]`` devices that may start an op in this round
    touched: NDArray[np.int64]
    is_touched: NDArray[np.bool_]
    missing: NDArray[np.int64]  # ``[V]`` inputs that are to come


@njit(inner=True, allocates=False)
def _run_events(instance: Any, run: Any, agenda: Any, bus: Any) -> Any:
    """Start ops and end them, until none is left; return the makespan."""
    device, num_ops, busy_until, num_ready = run.device, len(run.device), agenda.busy_until, agenda.num_ready
    times, codes, touched, is_touched = agenda.times, agenda.codes, agenda.touched, agenda.is_touched
    num_events, num_touched, num_started, now = 0, len(busy_until), 0, 0.0
    _begin_run(instance, run, agenda)
    while True:
        for i in range(num_touched):
            d = touched[i]
            is_touched[d] = False
            if busy_until[d] >= 0 or num_ready[d] == 0:
                continue
            op = instance.order[agenda.places[agenda.base[d]]]
            num_ready[d] -= 1
            pop(agenda.keys, agenda.places, agenda.base[d], num_ready[d])
            run.start[op] = now
            run.finish[op] = now + instance.op_time_s[op, instance.kind[d]]
            busy_until[d] = run.finish[op]
            run.step[op] = num_started
            num_started += 1
            num_events = _push_event(times, codes, num_events, run.finish[op], op)
        num_touched = 0
        if num_events == 0:
            return now
        now = times[0]
        while num_events > 0 and times[0] == now:
            code = codes[0]
            num_events = _pop_event(times, codes, num_events)
            op = code - num_ops if code >= num_ops else code
            num_touched = _touch(agenda, device[op], num_touched)
            if code >= num_ops:
                _enqueue(instance, run, agenda, op, now)
            else:
                num_events, num_touched = _end(instance, run, agenda, bus, op, now, num_events, num_touched)


@njit(inline=True, allocates=False)
def _begin_run(instance: Any, run: Any, agenda: Any) -> None:
    """Divide the heaps among the devices, touch all of them, and add the ops without inputs."""
    num_devices = len(agenda.busy_until)
    for op in range(len(run.device)):
        agenda.base[run.device[op] + 1] += 1
    for d in range(num_devices):
        agenda.base[d + 1] += agenda.base[d]
        agenda.touched[d] = d
    for op in range(len(run.device)):
        agenda.missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        run.start[op] = 0.0  # until an op starts, its slot holds the latest arrival so far
        if agenda.missing[op] == 0:
            _enqueue(instance, run, agenda, op, 0.0)


@njit(inline=True, allocates=False)
def _touch(agenda: Any, d: int, num_touched: int) -> int:
    """Note that device `d` may start an op in this round; return how many may."""
    if not agenda.is_touched[d]:
        agenda.is_touched[d] = True
        agenda.touched[num_touched] = d
        num_touched += 1
    return num_touched


@njit(inline=True, allocates=False)
def _enqueue(instance: Any, run: Any, agenda: Any, op: int, ready: float) -> None:
    """Add an op to the heap of its device."""
    d = run.device[op]
    key = ready if run.rule == FIFO else run.priority[op]
    push(agenda.keys, agenda.places, agenda.base[d], agenda.num_ready[d], key, instance.rank[op])
    agenda.num_ready[d] += 1


@njit(inline=True, allocates=False)
def _end(
    instance: Any, run: Any, agenda: Any, bus: Any, op: int, now: float, num_events: int, num_touched: int
) -> tuple[int, int]:
    """End an op: send its tensors, and note when their readers are ready; return numbers of events and of devices."""
    device, ready, d, sent = run.device, run.start, run.device[op], -1
    agenda.busy_until[d] = -1.0
    for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
        reader, tensor = instance.edge_readers[j], instance.edge_tensors[j]
        target = device[reader]
        if run.has_contention:
            if tensor != sent:
                _send(instance, device, tensor, now, bus)
                sent = tensor
            at = bus.arrival[target] if target != d else now
        else:
            at = now + (target != d) * move_s(instance, tensor, d, target)  # a branch is hard to predict
        ready[reader] = max(ready[reader], at)
        agenda.missing[reader] -= 1
        if agenda.missing[reader] > 0:
            continue
        if ready[reader] > max(now, agenda.busy_until[target]):
            code = len(device) + reader
            num_events = _push_event(agenda.times, agenda.codes, num_events, ready[reader], code)
        else:
            _enqueue(instance, run, agenda, reader, ready[reader])
            num_touched = _touch(agenda, target, num_touched)
    return num_events, num_touched


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
    queues = DeviceQueues(
        device,
        queue,
        np.empty(num_ops, dtype=np.int64),
        np.full(num_ops, -1, dtype=np.int64),
        np.empty(num_ops, dtype=np.int64),
        np.full(num_devices, -1, dtype=np.int64),
    )
    stack, bus = np.empty(num_ops, dtype=np.int64), _idle_bus(num_devices)
    makespan, num_done = _run_queues(
        by_reference(instance), by_reference(queues), by_reference(bus), has_contention, stack, start, finish
    )
    if num_done == num_ops:
        return makespan, -1
    return makespan, _op_on_cycle(by_reference(instance), by_reference(queues))


class DeviceQueues(NamedTuple):
    """Orders of the devices."""

    device: NDArray[np.int64]  # ``[V]``
    queue: NDArray[np.int64]  # ``[V]``
    missing: NDArray[np.int64]  # ``[V]`` inputs that are to come, and one for the op before on the device
    # following, previous: ``[V]`` the op after and before on the device; -1 for none
    following: NDArray[np.int64]
    previous: NDArray[np.int64]
    last: NDArray[np.int64]  # ``[D]`` last op so far


@njit(inner=True, allocates=False)
def _run_queues(instance: Any, queues: Any, bus: Any, has_contention: Any, stack: Any, start: Any, finish: Any) -> Any:
    """Run the ops that do not wait for each other; return the makespan and how many they are."""
    device, missing, following, last = queues.device, queues.missing, queues.following, queues.last
    num_stacked = 0
    for i in range(len(device)):
        op = queues.queue[i]
        d = device[op]
        queues.previous[op] = last[d]
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
        if last[d] >= 0:
            following[last[d]] = op
            missing[op] += 1
        last[d] = op
        start[op] = 0.0
        if missing[op] == 0:
            stack[num_stacked] = op
            num_stacked += 1
    makespan, num_done = 0.0, 0
    while num_stacked > 0:
        num_stacked -= 1
        op = stack[num_stacked]
        num_done += 1
        d = device[op]
        now = start[op] + instance.op_time_s[op, instance.kind[d]]
        finish[op] = now
        makespan = max(makespan, now)
        if following[op] >= 0:
            num_stacked = _arrive(following[op], now, start, missing, stack, num_stacked)
        sent = -1
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader, tensor = instance.edge_readers[j], instance.edge_tensors[j]
            target = device[reader]
            at = now
            if target != d and has_contention:
                if tensor != sent:
                    _send(instance, device, tensor, now, bus)
                    sent = tensor
                at = bus.arrival[target]
            elif target != d:
                at = now + move_s(instance, tensor, d, target)
            num_stacked = _arrive(reader, at, start, missing, stack, num_stacked)
    return makespan, num_done


@njit(inline=True, allocates=False)
def _arrive(
    op: int,
    at: float,
    start: NDArray[np.float64],
    missing: NDArray[np.int64],
    stack: NDArray[np.int64],
    num_stacked: int,
) -> int:
    """Note that one of the things that `op` waits for is there, and stack it after the last of them."""
    start[op] = max(start[op], at)
    missing[op] -= 1
    if missing[op] == 0:
        stack[num_stacked] = op
        num_stacked += 1
    return num_stacked


@njit(inner=True, allocates=False)
def _op_on_cycle(instance: Any, queues: Any) -> Any:
    """Return an op on a cycle: every op left waits for another, and as many steps back as there are ops lead there."""
    missing, op = queues.missing, 0
    while missing[op] <= 0:
        op += 1
    for _ in range(len(missing)):
        before = queues.previous[op]
        if before < 0 or missing[before] <= 0:
            for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
                before = instance.producer[instance.in_tensors[i]]
                if missing[before] > 0:
                    break
        op = before
    return op


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
    bus = _idle_bus(len(instance.kind))
    count = 0
    for i in range(len(queue)):
        op = queue[i]
        d = device[op]
        for j in range(instance.out_offsets[op], instance.out_offsets[op + 1]):
            t = instance.out_tensors[j]
            for r in range(_queue_receivers(instance, device, t, bus)):
                to = bus.receivers[r]
                leaves = max(bus.free[d], finish[op]) if has_contention else finish[op]
                tensor[count], target[count], begin[count] = t, to, leaves
                end[count] = leaves + move_s(instance, t, d, to)
                bus.free[d] = end[count]
                count += 1
    return count

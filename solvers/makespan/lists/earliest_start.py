"""Earliest task first, compiled: of all ready ops and all devices, the pair that can start earliest.

Every device has two heaps of ready ops: ops whose inputs arrive after the device is free, by arrival, and ops that
could start at once, by priority. Ops that were placed elsewhere, or no longer fit, are dropped when they reach the top.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.solvers.makespan.lists.state import ListState, begin_list, ready_s, settle


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
    state, queues = begin_list(instance), _empty_heaps(num_ops, num_devices, place_of_op)
    devices = Devices(
        np.zeros(num_devices),
        instance.limit_bytes.copy(),
        np.full(num_devices, -1, dtype=np.int64),
        np.zeros(num_devices),
    )
    fresh = np.empty(num_ops, dtype=np.int64)
    fits = _place_all(
        by_reference(instance), by_reference(state), by_reference(queues), by_reference(devices), fresh, favourite,
        wait_s,
    )  # fmt: skip
    return state.device, state.start, state.finish, fits


@njit(inner=True, allocates=False)
def _place_all(instance: Any, state: Any, queues: Any, devices: Any, fresh: Any, favourite: Any, wait_s: Any) -> Any:
    """Place all ops; return False if limits were ignored."""
    num_fresh, num_placed, fits_all = 0, 0, True  # `fresh`: ops that became ready and are in no heap yet
    for op in range(len(fresh)):
        if state.missing[op] == 0:
            fresh[num_fresh] = op
            num_fresh += 1
    while num_placed < len(fresh):
        for i in range(num_fresh):
            _queue(instance, state, queues, fresh[i])
        num_fresh = 0
        best, op, begin, end = _earliest(instance, state, queues, devices)
        if best < 0:  # no class that is left has room: go on without limits, for the caller to repair
            fits_all = False
            devices.limit[:] = np.inf
            queues.num_later[:] = 0
            queues.num_now[:] = 0
            for op in range(len(fresh)):
                if state.device[op] < 0 and state.missing[op] == 0:
                    fresh[num_fresh] = op
                    num_fresh += 1
            continue
        settle(instance, state, op, best, begin, end)
        devices.free[best] = end
        devices.awake_for[best], devices.awake_until[best] = favourite[op], end + wait_s[op]
        num_placed += 1
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader = instance.edge_readers[j]
            state.missing[reader] -= 1
            if state.missing[reader] == 0:
                fresh[num_fresh] = reader
                num_fresh += 1
    return fits_all


class ReadyHeaps(NamedTuple):
    """Heaps of ready ops by place: slice d of an array is the heap of device d; the last one is for all devices."""

    # op_at, place: ``[V]`` op of every place, and place of every op
    op_at: NDArray[np.int64]
    place: NDArray[np.int64]
    # arrival, arrival_place: ``[D * V]`` ops whose inputs arrive after the device is free
    arrival: NDArray[np.float64]
    arrival_place: NDArray[np.int64]
    # now, now_place: ``[D * V]`` ops that could start at once
    now: NDArray[np.float64]
    now_place: NDArray[np.int64]
    # everywhere, everywhere_place: ``[V]`` ops by when they are ready on every device
    everywhere: NDArray[np.float64]
    everywhere_place: NDArray[np.int64]
    # num_later, num_now: ``[D + 1]`` entries of the heaps; of the last one in ``num_later[D]``
    num_later: NDArray[np.int64]
    num_now: NDArray[np.int64]


class Devices(NamedTuple):
    """Limits of devices, and the ops for which they wait."""

    free: NDArray[np.float64]  # ``[D]`` end of the last op
    limit: NDArray[np.float64]  # ``[D]`` bytes
    # awake_for, awake_until: ``[D]`` favourite child of the last op, -1 for none; and the end of the wait
    awake_for: NDArray[np.int64]
    awake_until: NDArray[np.float64]


@njit(inline=True)
def _empty_heaps(num_ops: int, num_devices: int, place_of_op: NDArray[np.int64]) -> ReadyHeaps:
    """Return queues without ops."""
    op_at = np.empty(num_ops, dtype=np.int64)
    for op in range(num_ops):
        op_at[place_of_op[op]] = op
    size = num_devices * num_ops
    return ReadyHeaps(
        op_at,
        place_of_op,
        np.empty(size),
        np.empty(size, dtype=np.int64),
        np.empty(size),
        np.empty(size, dtype=np.int64),
        np.empty(num_ops),
        np.empty(num_ops, dtype=np.int64),
        np.zeros(num_devices + 1, dtype=np.int64),
        np.zeros(num_devices + 1, dtype=np.int64),
    )


@njit(inline=True, allocates=False)
def _queue(instance: MakespanInstance, state: ListState, queues: ReadyHeaps, op: int) -> None:
    """Add a ready op to the heaps of the devices that may run it, and to that of all devices."""
    num_ops, num_devices, num_later = len(state.device), len(instance.kind), queues.num_later
    last = 0.0
    for d in range(num_devices):
        if instance.allowed[op, d] and state.class_device[instance.class_of_op[op]] in (-1, d):
            ready = ready_s(instance, state, op, d)
            last = max(last, ready)
            push(queues.arrival, queues.arrival_place, d * num_ops, num_later[d], ready, queues.place[op])
            num_later[d] += 1
    push(queues.everywhere, queues.everywhere_place, 0, num_later[num_devices], last, queues.place[op])
    num_later[num_devices] += 1


@njit(inline=True, allocates=False)
def _earliest(
    instance: MakespanInstance, state: ListState, queues: ReadyHeaps, devices: Devices
) -> tuple[int, int, float, float]:
    """Return the pair of device and op that can start earliest, its start and its end; device -1 if there is none."""
    num_devices, place = len(instance.kind), queues.place
    while queues.num_later[num_devices] > 0 and state.device[queues.op_at[queues.everywhere_place[0]]] >= 0:
        queues.num_later[num_devices] -= 1
        pop(queues.everywhere, queues.everywhere_place, 0, queues.num_later[num_devices])
    best, best_op, best_begin, best_end = -1, -1, np.inf, np.inf
    for d in range(num_devices):
        _drop(instance, state, queues, devices, d)
        child = devices.awake_for[d]
        for choice in range(3):
            op, begin = _candidate(instance, state, queues, devices, d, choice)
            if op < 0:
                continue
            if choice == 0 and child >= 0 and op != child:
                begin = max(begin, devices.awake_until[d])
            end = begin + instance.op_time_s[op, instance.kind[d]]
            if best < 0 or (begin, place[op], end) < (best_begin, place[best_op], best_end):
                best, best_op, best_begin, best_end = d, op, begin, end
    return best, best_op, best_begin, best_end


@njit(inline=True, allocates=False)
def _drop(instance: MakespanInstance, state: ListState, queues: ReadyHeaps, devices: Devices, d: int) -> None:
    """Move ops that device `d` could start at once to their heap, and drop from the tops those that it may not take."""
    op_at, num_later, num_now, base = queues.op_at, queues.num_later, queues.num_now, d * len(state.device)
    while num_later[d] > 0 and (
        queues.arrival[base] <= devices.free[d]
        or not _may_take(instance, state, devices, op_at[queues.arrival_place[base]], d)
    ):
        place = queues.arrival_place[base]
        num_later[d] -= 1
        pop(queues.arrival, queues.arrival_place, base, num_later[d])
        if _may_take(instance, state, devices, op_at[place], d):
            push(queues.now, queues.now_place, base, num_now[d], 0.0, place)
            num_now[d] += 1
    while num_now[d] > 0 and not _may_take(instance, state, devices, op_at[queues.now_place[base]], d):
        num_now[d] -= 1
        pop(queues.now, queues.now_place, base, num_now[d])
    child = devices.awake_for[d]
    if child >= 0 and not _may_take(instance, state, devices, child, d):
        devices.awake_for[d] = -1


@njit(inline=True, allocates=False)
def _candidate(
    instance: MakespanInstance, state: ListState, queues: ReadyHeaps, devices: Devices, d: int, choice: int
) -> tuple[int, float]:
    """Return an op that device `d` may start, and when: the first of its heaps, the favourite child, the urgent op."""
    base, free, child = d * len(state.device), devices.free[d], devices.awake_for[d]
    if choice == 0 and queues.num_now[d] > 0:
        return queues.op_at[queues.now_place[base]], free
    if choice == 0 and queues.num_later[d] > 0:
        return queues.op_at[queues.arrival_place[base]], queues.arrival[base]
    if choice == 1 and child >= 0 and state.missing[child] == 0:
        return child, max(free, ready_s(instance, state, child, d))
    if choice == 2 and child >= 0 and queues.num_later[len(instance.kind)] > 0:
        op = queues.op_at[queues.everywhere_place[0]]
        if _may_take(instance, state, devices, op, d):
            return op, max(free, queues.everywhere[0])
    return -1, np.inf


@njit(inline=True, allocates=False)
def _may_take(instance: MakespanInstance, state: ListState, devices: Devices, op: int, d: int) -> bool:
    """Return True if `op` has no device yet and may run on `d`."""
    c = instance.class_of_op[op]
    if state.device[op] >= 0 or not instance.allowed[op, d]:
        return False
    on, needed = state.class_device[c], state.used[d] + state.class_bytes[c]
    return bool(on == d) or bool(on < 0 and needed <= devices.limit[d])

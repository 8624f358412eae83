"""Compiled parts of decoding: one pass over the ops, and passes in which each chooses once more.

Arrays: `MakespanInstance` of the problem; `time` ``[V, D]`` and `transfer` ``[T, D]`` relative times; `penalty`
``[V, D]`` what the policy's word costs, infinity where an op may not go.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.kernels import BY_PRIORITY, dispatch
from placekit.objectives.makespan.orders import placed_rank


@njit
def place_by_load(instance, time, transfer, penalty, class_bytes, balances):  # type: ignore[no-untyped-def]
    """Place ops in topological order, each where its own time, the transfers that it causes and `penalty` are least.

    Parameters
    ----------
    instance, time, transfer, penalty
        See the module docstring.
    class_bytes : float64[C]
        Bytes of every class of ops that share a device; the first of them chooses.
    balances : bool
        True if what the device is loaded with already counts as well.

    Returns
    -------
    int64[V]
        Devices. Where no device has room, the room is ignored.

    Notes
    -----
    O((V + E) D).
    """
    num_ops, num_devices = time.shape
    device = np.full(num_ops, -1, dtype=np.int64)
    of_class = np.full(len(class_bytes), -1, dtype=np.int64)
    room = instance.limit_bytes.copy()
    load = np.zeros(num_devices)
    is_there = np.zeros(transfer.shape, dtype=np.bool_)
    has_left = np.zeros(len(transfer), dtype=np.bool_)
    added = np.empty(num_devices)
    for position in range(num_ops):
        op = instance.order[position]
        first, last = instance.in_offsets[op], instance.in_offsets[op + 1]
        group = instance.class_of_op[op]
        chosen = of_class[group]
        if chosen < 0:
            added[:] = time[op]
            for at in range(first, last):
                tensor = instance.in_tensors[at]
                home = device[instance.producer[tensor]]
                for d in range(num_devices):
                    if not is_there[tensor, d]:
                        added[d] += transfer[tensor, d] + (0.0 if has_left[tensor] else transfer[tensor, home])
            least, least_without_room = np.inf, np.inf
            fallback = 0
            for d in range(num_devices):
                price = added[d] + penalty[op, d] + (load[d] if balances else 0.0)
                if price < least_without_room:
                    fallback, least_without_room = d, price
                if price < least and room[d] >= class_bytes[group]:
                    chosen, least = d, price
            if chosen < 0:
                chosen = fallback
            of_class[group] = chosen
            room[chosen] -= class_bytes[group]
        device[op] = chosen
        load[chosen] += time[op, chosen]
        for at in range(first, last):
            tensor = instance.in_tensors[at]
            if not is_there[tensor, chosen]:
                home = device[instance.producer[tensor]]
                if not has_left[tensor]:
                    load[home] += transfer[tensor, home]
                    has_left[tensor] = True
                load[chosen] += transfer[tensor, chosen]
                is_there[tensor, chosen] = True
        for out in range(instance.out_offsets[op], instance.out_offsets[op + 1]):
            is_there[instance.out_tensors[out], chosen] = True
    return device


@njit(inner=True)
def _add_moved(
    load: NDArray[np.float64],
    transfer: NDArray[np.float64],
    readers: NDArray[np.int64],
    tensor: int,
    home: int,
    sign: float,
) -> None:
    """Add the transfers of a tensor at `home`, by its number of readers on every device, to the loads."""
    leaves = False
    for d in range(len(load)):
        if d != home and readers[tensor, d] > 0:
            load[d] += sign * transfer[tensor, d]
            leaves = True
    if leaves:
        load[home] += sign * transfer[tensor, home]


@njit(inner=True)
def _norm(load: NDArray[np.float64], power: int) -> float:
    """Return the p-norm of the loads; their sum for power 1."""
    largest = max(load.max(), 1e-30)
    total = 0.0
    for each in load:
        total += (max(each, 0.0) / largest) ** power
    return float(largest * total ** (1.0 / power))


@njit
def refine_loads(instance, time, transfer, penalty, power, passes, device):  # type: ignore[no-untyped-def]
    """Let every op choose its device once more, given all others, until nothing moves; changes `device`.

    An op takes the device of least p-norm of the loads plus `penalty`, among those with room.

    Parameters
    ----------
    instance, time, transfer, penalty
        See the module docstring; ops are classes of ops that share a device.
    power : int
        1 for the sum of the loads.
    passes : int
        Most passes.
    device : int64[V]
        Devices.

    Notes
    -----
    O(passes (V + E) D^2).
    """
    num_ops, num_devices = time.shape
    readers = np.zeros(transfer.shape, dtype=np.int64)
    load, trial = np.zeros(num_devices), np.empty(num_devices)
    room = instance.limit_bytes.copy()
    for op in range(num_ops):
        load[device[op]] += time[op, device[op]]
        room[device[op]] -= instance.memory_bytes[op]
        for at in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
            readers[instance.in_tensors[at], device[op]] += 1
    for tensor in range(len(transfer)):
        _add_moved(load, transfer, readers, tensor, device[instance.producer[tensor]], 1.0)
    for _ in range(passes):
        has_moved = False
        for position in range(num_ops):
            op = instance.order[position]
            home = device[op]
            outs = instance.out_tensors[instance.out_offsets[op] : instance.out_offsets[op + 1]]
            ins = instance.in_tensors[instance.in_offsets[op] : instance.in_offsets[op + 1]]
            load[home] -= time[op, home]
            for tensor in outs:
                _add_moved(load, transfer, readers, tensor, home, -1.0)
            for tensor in ins:
                source = device[instance.producer[tensor]]
                _add_moved(load, transfer, readers, tensor, source, -1.0)
                readers[tensor, home] -= 1
                _add_moved(load, transfer, readers, tensor, source, 1.0)
            chosen, least = -1, np.inf
            for d in range(num_devices):
                if not penalty[op, d] < np.inf or (d != home and room[d] < instance.memory_bytes[op]):
                    continue
                trial[:] = load
                trial[d] += time[op, d]
                for tensor in outs:
                    _add_moved(trial, transfer, readers, tensor, d, 1.0)
                for tensor in ins:
                    source = device[instance.producer[tensor]]
                    if d != source and readers[tensor, d] == 0:
                        trial[d] += transfer[tensor, d]
                        if readers[tensor].sum() == readers[tensor, source]:  # it stayed at home so far
                            trial[source] += transfer[tensor, source]
                price = _norm(trial, power) + penalty[op, d]
                if price < least or (d == home and price <= least):
                    chosen, least = d, price
            if chosen < 0:
                chosen = home
            if chosen != home:
                has_moved = True
                device[op] = chosen
                room[home] += instance.memory_bytes[op]
                room[chosen] -= instance.memory_bytes[op]
            load[chosen] += time[op, chosen]
            for tensor in outs:
                _add_moved(load, transfer, readers, tensor, chosen, 1.0)
            for tensor in ins:
                source = device[instance.producer[tensor]]
                _add_moved(load, transfer, readers, tensor, source, -1.0)
                readers[tensor, chosen] += 1
                _add_moved(load, transfer, readers, tensor, source, 1.0)
        if not has_moved:
            break


@njit
def refine_makespan(instance, penalty, is_single, has_contention, evaluations, device):  # type: ignore[no-untyped-def]
    """Let the ops of a critical path choose once more, by the policy's word; changes `device`.

    Ops run by the longest path that remains (:func:`placekit.objectives.makespan.orders.placed_rank`). From the last
    end back to the start, every op of a critical path tries the devices with room in the order of `penalty`, and takes
    the first with which the makespan falls. Then there is another path; it ends where no op of a path moves.

    Parameters
    ----------
    instance, penalty
        See the module docstring.
    is_single : bool[V]
        False for ops that others must follow: they stay where they are.
    has_contention : bool
        True if every device sends one transfer at a time.
    evaluations : int
        Most makespans computed.
    device : int64[V]
        Devices.

    Returns
    -------
    float
        The makespan, seconds.

    Notes
    -----
    O(evaluations (V + E) log V).
    """
    num_ops = len(penalty)
    rank, start, finish = np.empty(num_ops), np.empty(num_ops), np.empty(num_ops)
    step, path = np.empty(num_ops, dtype=np.int64), np.empty(num_ops, dtype=np.int64)
    room = instance.limit_bytes.copy()
    for op in range(num_ops):
        room[device[op]] -= instance.memory_bytes[op]
    placed_rank(instance, device, rank)
    best = dispatch(instance, device, -rank, BY_PRIORITY, has_contention, start, finish, step)
    count = 1
    while count < evaluations:
        length = _critical_path(instance, device, finish, step, path)
        has_moved = False
        for at in range(length):
            op = path[at]
            if not is_single[op]:
                continue
            home = device[op]
            for d in np.argsort(penalty[op]):
                if d == home or not penalty[op, d] < np.inf or room[d] < instance.memory_bytes[op]:
                    continue
                if count >= evaluations:
                    break
                device[op] = d
                placed_rank(instance, device, rank)
                count += 1
                makespan = dispatch(instance, device, -rank, BY_PRIORITY, has_contention, start, finish, step)
                if makespan < best * (1 - 1e-12):
                    best, has_moved = makespan, True
                    room[home] += instance.memory_bytes[op]
                    room[d] -= instance.memory_bytes[op]
                    break
                device[op] = home
        if not has_moved:
            break
        placed_rank(instance, device, rank)
        dispatch(instance, device, -rank, BY_PRIORITY, has_contention, start, finish, step)
    return best


@njit(inner=True)
def _critical_path(
    instance: MakespanInstance,
    device: NDArray[np.int64],
    finish: NDArray[np.float64],
    step: NDArray[np.int64],
    path: NDArray[np.int64],
) -> int:
    """Write ops of a critical path, the last one first, and return their number: what each had to wait for."""
    num_ops = len(device)
    by_step = np.empty(num_ops, dtype=np.int64)
    for op in range(num_ops):
        by_step[step[op]] = op
    previous = np.full(num_ops, -1, dtype=np.int64)  # on the same device
    latest = np.full(len(instance.kind), -1, dtype=np.int64)
    for at in range(num_ops):
        started = by_step[at]
        previous[started] = latest[device[started]]
        latest[device[started]] = started
    length = 0
    current = int(np.argmax(finish))
    while current >= 0:
        path[length] = current
        length += 1
        wait = int(previous[current])
        reached = -1.0 if wait < 0 else finish[wait]
        for at in range(instance.in_offsets[current], instance.in_offsets[current + 1]):
            tensor = instance.in_tensors[at]
            producer = instance.producer[tensor]
            arrival = finish[producer]
            if device[producer] != device[current]:
                arrival += instance.transfer_s[tensor, instance.kind[device[producer]]]
                arrival += instance.transfer_s[tensor, instance.kind[device[current]]]
            if arrival > reached:
                wait, reached = int(producer), arrival
        current = wait
    return length

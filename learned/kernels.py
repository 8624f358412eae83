"""Compiled judge of whole batches: how far placements are from feasible, and what would make a pipeline of them.

It takes a :class:`~placekit.objectives.makespan.arrays.MakespanInstance`, whose flat arrays fit every objective, and
placements ``[batch, num_ops]``. It runs on one thread: a batch takes less time than a team of threads needs to wake up
on a machine that does other work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.model.memory import StageMemory


class SharedMemory(NamedTuple):
    """Arrays of a `StageMemory`, for kernels; the kinds of blocks are `placekit.model.memory.BlockKind`."""

    own_bytes: NDArray[np.float64]  # ``[V]`` bytes that each op holds alone
    position: NDArray[np.int64]  # ``[V]`` when each op runs
    # kind, num_bytes: ``[blocks]``; offsets, ops: CSR lists of the ops of each block
    kind: NDArray[np.int64]
    num_bytes: NDArray[np.float64]
    offsets: NDArray[np.int64]
    ops: NDArray[np.int64]

    @classmethod
    def of(cls, memory: StageMemory, own_bytes: NDArray[np.float64]) -> SharedMemory:
        """Return writable copies: kernels are compiled for such arrays."""
        ints = (memory.position, memory.kind, memory.offsets, memory.ops)
        position, kind, offsets, ops = (np.array(each, dtype=np.int64) for each in ints)
        return cls(np.array(own_bytes), position, kind, np.array(memory.num_bytes), offsets, ops)


@njit(inner=True)
def _has_cycle(between: NDArray[np.int64]) -> bool:
    """Return whether the graph of the nonzero entries ``[D, D]`` has a cycle: take away devices nobody waits for."""
    num_devices = len(between)
    left = np.ones(num_devices, dtype=np.bool_)
    for _ in range(num_devices):
        for d in range(num_devices):
            waits = False
            for other in range(num_devices):
                waits |= left[other] and between[other, d] > 0
            if left[d] and not waits:
                left[d] = False
    return bool(left.any())


@njit(inner=True)
def _escaping_ops(senders: NDArray[np.int64], receivers: NDArray[np.int64], device: NDArray[np.int64], d: int) -> int:
    """Count the ops outside device `d` on a path that leaves it and returns; edges in topological order."""
    inside = device == d
    behind, before = inside.copy(), inside.copy()
    for e in range(len(senders)):
        behind[receivers[e]] |= behind[senders[e]]
    for e in range(len(senders) - 1, -1, -1):
        before[senders[e]] |= before[receivers[e]]
    return int((~inside & behind & before).sum())


@njit
def batch_infeasibility(instance, leader, senders, receivers, rule, devices, degree):  # type: ignore[no-untyped-def]
    """Say how far placements are from feasible: 0 exactly where the judge's general constraints hold.

    The degree adds up shares: of the ops that stand where they may not (support, pins) or away from their class, of
    the bytes that exceed a limit, and for contiguity, of the order edges that would have to turn round (for every
    pair of devices the smaller of the two directions, and one more if a longer cycle remains), or of the ops on paths
    that leave their device and return.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    leader : int64[V]
        First op of every op's class.
    senders, receivers : int64[O]
        Edges of the order graph, along a topological order of it.
    rule : int
        0: any placement, 1: convex, 2: acyclic.
    devices : int64[B, V]
        Device of every op.
    degree : float64[B]
        Receives the degrees.

    Notes
    -----
    O(B (V + O)); convex O(B D (V + O)).
    """
    num_ops, num_devices = devices.shape[1], len(instance.kind)
    total_bytes = instance.memory_bytes.sum()
    for row in range(devices.shape[0]):
        device = devices[row]
        misplaced = 0
        used = np.zeros(num_devices)
        for op in range(num_ops):
            d = device[op]
            misplaced += (not instance.allowed[op, d]) + (d != device[leader[op]])
            used[d] += instance.memory_bytes[op]
        amount = misplaced / num_ops
        for d in range(num_devices):
            if used[d] > instance.limit_bytes[d]:
                amount += (used[d] - instance.limit_bytes[d]) / total_bytes
        if rule == 2:
            between = np.zeros((num_devices, num_devices), dtype=np.int64)
            for e in range(len(senders)):
                source, target = device[senders[e]], device[receivers[e]]
                between[source, target] += source != target
            against = 0
            for d in range(num_devices):
                for other in range(d):
                    against += min(between[d, other], between[other, d])
            if against > 0 or _has_cycle(between):
                amount += (against + 1) / len(senders)
        elif rule == 1:
            for d in range(num_devices):
                amount += _escaping_ops(senders, receivers, device, d) / num_ops
        degree[row] = amount


@njit
def batch_shared_excess(memory, limit_bytes, devices, excess):  # type: ignore[no-untyped-def]  # compiled
    """Sum up the bytes that exceed the limits when ops share memory, as :mod:`placekit.model.memory` defines it.

    Parameters
    ----------
    memory : SharedMemory
        The blocks of the problem.
    limit_bytes : float64[D]
        Limits, infinity for none.
    devices : int64[B, V]
        Device of every op.
    excess : float64[B]
        Receives the bytes; 0 exactly where every limit holds.

    Notes
    -----
    O(B (uses + D V)).
    """
    num_ops, num_devices = devices.shape[1], len(limit_bytes)
    first, last = np.empty(num_devices, dtype=np.int64), np.empty(num_devices, dtype=np.int64)
    seen_by = np.full(num_devices, -1)
    for row in range(devices.shape[0]):
        device = devices[row]
        own, weights, queues = np.zeros(num_devices), np.zeros(num_devices), np.zeros(num_devices)
        change = np.zeros((num_devices, num_ops + 1))
        for op in range(num_ops):
            own[device[op]] += memory.own_bytes[op]
        seen_by[:] = -1
        for b in range(len(memory.num_bytes)):
            num_bytes, count = memory.num_bytes[b], 0
            for use in range(memory.offsets[b], memory.offsets[b + 1]):
                op = memory.ops[use]
                d, when = device[op], memory.position[op]
                if seen_by[d] != b:
                    seen_by[d], first[d], last[d] = b, when, when
                    count += 1
                first[d], last[d] = min(first[d], when), max(last[d], when)
            for d in range(num_devices):
                if seen_by[d] != b:
                    continue
                if memory.kind[b] == 1:
                    weights[d] += num_bytes
                elif memory.kind[b] == 0:
                    change[d, first[d]] += num_bytes
                    change[d, last[d] + 1] -= num_bytes
                elif count > 1:
                    queues[d] += num_bytes
        over = 0.0
        for d in range(num_devices):
            level = peak = 0.0
            for when in range(num_ops):
                level += change[d, when]
                peak = max(peak, level)
            over += max(0.0, own[d] + weights[d] + peak + queues[d] - limit_bytes[d])
        excess[row] = over


@njit
def line_up(order, in_offsets, in_classes, class_of_op, allowed, devices):  # type: ignore[no-untyped-def]  # compiled
    """Bring the devices of every placement into a chain, and move classes along it until no edge goes back.

    1. The devices of a placement are ordered by the mean place of their classes in topological order.
    2. Every class, in topological order, goes to the first device of the chain that may hold it and is not before any
       of its predecessors; its own if possible. A class without such a device stays where it is.

    Edges then never go back along the chain: devices wait for each other in one direction, and the placement is
    acyclic, unless a class had to stay.

    Parameters
    ----------
    order : int64[C]
        Classes of ops that share a device, in topological order.
    in_offsets, in_classes : int64[C + 1], int64[O]
        Predecessors of every class.
    class_of_op : int64[V]
        Class of every op.
    allowed : bool[C, D]
        Where every class may go.
    devices : int64[B, V]
        Device of every op; changed.

    Notes
    -----
    O(B (V + O + C D)).
    """
    num_classes, num_devices = allowed.shape
    at = np.empty(num_classes, dtype=np.int64)
    position = np.empty(num_devices, dtype=np.int64)
    for row in range(devices.shape[0]):
        for op in range(len(class_of_op)):
            at[class_of_op[op]] = devices[row, op]
        place, count = np.zeros(num_devices), np.zeros(num_devices)
        for i in range(num_classes):
            place[at[order[i]]] += i
            count[at[order[i]]] += 1
        chain = np.argsort(place / np.maximum(count, 1.0))
        for i in range(num_devices):
            position[chain[i]] = i
        for c in order:
            least = 0
            for i in range(in_offsets[c], in_offsets[c + 1]):
                least = max(least, position[at[in_classes[i]]])
            wanted = max(position[at[c]], least)
            for p in range(wanted, num_devices):
                if allowed[c, chain[p]]:
                    at[c] = chain[p]
                    break
            else:
                for p in range(wanted - 1, least - 1, -1):
                    if allowed[c, chain[p]]:
                        at[c] = chain[p]
                        break
        for op in range(len(class_of_op)):
            devices[row, op] = at[class_of_op[op]]

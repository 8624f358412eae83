"""Compiled judges of whole batches: what placements cost, and how far they are from feasible.

All of them take a :class:`~placekit.makespan.instance.MakespanInstance`, whose flat arrays fit every objective, and
placements ``[batch, num_ops]``. They run on one thread: a batch takes less time than a team of threads needs to wake up
on a machine that does other work.
"""

from __future__ import annotations

import numpy as np

from placekit.compiled import njit

__all__ = ["batch_infeasibility", "batch_loads", "batch_subgraphs"]


@njit(cache=True, nogil=True)
def batch_loads(instance, pass_of_op, devices, work, moved):  # type: ignore[no-untyped-def]  # compiled
    """Sum the op times and the transfer times of every device, once per device and tensor.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    pass_of_op : int64[V]
        Which of the ``P`` passes an op, and the tensors that it produces, belong to.
    devices : int64[B, V]
        Device of every op, each supported there.
    work, moved : float64[B, P, D]
        Zeros; receive the seconds of ops and of transfers.

    Notes
    -----
    O(B (V + E)).
    """
    num_ops, num_devices = devices.shape[1], len(instance.kind)
    for row in range(devices.shape[0]):
        device = devices[row]
        stamp = np.full(num_devices, -1, dtype=np.int64)
        for op in range(num_ops):
            work[row, pass_of_op[op], device[op]] += instance.op_time_s[op, instance.kind[device[op]]]
        for tensor in range(len(instance.producer)):
            producer = instance.producer[tensor]
            source, one_pass = device[producer], pass_of_op[producer]
            leaves = False
            for i in range(instance.reader_offsets[tensor], instance.reader_offsets[tensor + 1]):
                target = device[instance.readers[i]]
                if target != source and stamp[target] != tensor:
                    stamp[target] = tensor
                    moved[row, one_pass, target] += instance.transfer_s[tensor, instance.kind[target]]
                    leaves = True
            if leaves:
                moved[row, one_pass, source] += instance.transfer_s[tensor, instance.kind[source]]


@njit(cache=True, nogil=True)
def batch_subgraphs(instance, devices, count):  # type: ignore[no-untyped-def]  # compiled
    """Count the distinct (level, device) pairs, the subgraphs of :mod:`placekit.objectives.serial_latency`.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    devices : int64[B, V]
        Device of every op.
    count : int64[B]
        Receives the number of subgraphs.

    Notes
    -----
    O(B (V + E + levels * D)): a level is below V.
    """
    num_ops, num_devices = devices.shape[1], len(instance.kind)
    for row in range(devices.shape[0]):
        device = devices[row]
        level = np.zeros(num_ops, dtype=np.int64)
        highest = 0
        for op in instance.order:
            highest = max(highest, level[op])
            for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
                reader = instance.edge_readers[j]
                level[reader] = max(level[reader], level[op] + (device[reader] != device[op]))
        seen = np.zeros((highest + 1, num_devices), dtype=np.bool_)
        total = 0
        for op in range(num_ops):
            if not seen[level[op], device[op]]:
                seen[level[op], device[op]] = True
                total += 1
        count[row] = total


@njit(cache=True, nogil=True)
def _has_cycle(between):  # type: ignore[no-untyped-def]  # compiled
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
    return left.any()


@njit(cache=True, nogil=True)
def _escaping_ops(senders, receivers, device, d):  # type: ignore[no-untyped-def]  # compiled
    """Count the ops outside device `d` on a path that leaves it and returns; edges in topological order."""
    inside = device == d
    behind, before = inside.copy(), inside.copy()
    for e in range(len(senders)):
        behind[receivers[e]] |= behind[senders[e]]
    for e in range(len(senders) - 1, -1, -1):
        before[senders[e]] |= before[receivers[e]]
    return (~inside & behind & before).sum()


@njit(cache=True, nogil=True)
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

"""Compiled sums over whole batches of placements: loads and subgraphs.

All of them take a :class:`~placekit.objectives.makespan.arrays.MakespanInstance`, whose flat arrays fit every
objective, and placements ``[batch, num_ops]``. They run on one thread: a batch takes less time than a team of threads
needs to wake up on a machine that does other work.
"""

from __future__ import annotations

import numpy as np

from placekit.kernels import njit


@njit
def batch_loads(instance, pass_of_op, devices, sender_pays, work, moved):  # type: ignore[no-untyped-def]  # compiled
    """Sum the op times and the transfer times of every device, once per device and tensor.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    pass_of_op : int64[V]
        Which of the ``P`` passes an op, and the tensors that it produces, belong to.
    devices : int64[B, V]
        Device of every op, each supported there.
    sender_pays : bool
        True if the sender, too, pays for what goes over a direct link.
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
                    link = instance.link[instance.group[source], instance.group[target]]
                    if link >= 0:
                        time_s = instance.direct_s[tensor, link]
                        moved[row, one_pass, target] += time_s
                        if sender_pays:
                            moved[row, one_pass, source] += time_s
                        continue
                    moved[row, one_pass, target] += instance.transfer_s[tensor, instance.kind[target]]
                    leaves = True
            if leaves:
                moved[row, one_pass, source] += instance.transfer_s[tensor, instance.kind[source]]


@njit
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

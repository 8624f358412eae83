"""A makespan problem as the proofs see it: ops in topological order, edges with the delay of every pair of devices.

Devices of a group (same kind, same limit, open for the same classes) are equal. A bound that looks at two ops at a
time can tell three devices of a group apart at most: the device of the first op, that of the second, and one more. So
:func:`representatives` keeps three of each group, and the sizes below do not grow with the platform.

Shapes
------
``V`` ops in topological order, ``E`` distinct edges, ``D`` devices, ``K`` kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first
from placekit.model.problem import Problem
from placekit.objectives.makespan.instance import instance_of


@dataclass(frozen=True, eq=False)
class Tasks:
    """The arrays of one problem."""

    op: NDArray[np.int64]  # ``[V]`` index in the graph of each op; the order is topological
    time_s: NDArray[np.float64]  # ``[V, D]`` seconds of each op on each device; infinity where its class may not go
    class_of_op: NDArray[np.int64]  # ``[V]`` class of each op: those of `Problem.op_class`, or larger ones
    # memory_bytes, limit_bytes: ``[V]`` bytes of each op; ``[D]`` limit with the judge's tolerance, infinity for none
    memory_bytes: NDArray[np.float64]
    limit_bytes: NDArray[np.float64]
    # senders, receivers: ``[E]`` ends of each distinct edge, sorted by sender, then receiver
    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]
    # ``[E, K, K]`` seconds from the end of the sender to the arrival of its last tensor for the receiver, by the kinds
    # of their devices if these are different devices; on one device the delay is 0
    delay_s: NDArray[np.float64]
    # kind, group: ``[D]`` kind of each device, with direct links its kind on its node; and its group of equal devices
    kind: NDArray[np.int64]
    group: NDArray[np.int64]
    # ``[groups]`` devices of each group; more than are listed, after :func:`representatives`
    group_size: NDArray[np.int64]

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.class_of_op.max()) + 1

    @property
    def num_devices(self) -> int:
        """Number of devices that are listed."""
        return len(self.kind)

    def pair_delay_s(self) -> NDArray[np.float64]:
        """``[E, D, D]`` seconds of each edge by the devices of its ends; 0 on the diagonal."""
        delay = self.delay_s[:, self.kind[:, None], self.kind[None, :]].copy()
        delay[:, np.arange(self.num_devices), np.arange(self.num_devices)] = 0.0
        return delay


def make_tasks(problem: Problem) -> Tasks:
    """Return the arrays of `problem`; its contiguity and the variant of its objective do not matter.

    O(ops * devices + edges * (log edges + kinds**2)).
    """
    instance = instance_of(problem)
    num_ops, order, rank = instance.num_ops, instance.order, instance.rank
    class_of_op = number_by_first(instance.class_of_op[order])
    num_classes = int(class_of_op.max()) + 1
    memory = instance.memory_bytes[order]
    class_bytes = np.bincount(class_of_op, weights=memory, minlength=num_classes)
    allowed = instance.allowed[order] & (class_bytes[class_of_op, None] <= instance.limit_bytes)
    time_s = np.where(allowed, instance.op_time_s[order][:, instance.kind], np.inf)
    tensor = instance.tensor_of_reader
    keys = rank[instance.producer[tensor]] * num_ops + rank[instance.readers]
    edges, edge_of = np.unique(keys, return_inverse=True)
    kind = instance.group if problem.has_direct_links else instance.kind
    link_s = instance.transfer_s[tensor][:, instance.kind[np.unique(kind, return_index=True)[1]]]
    way_s = link_s[:, :, None] + link_s[:, None, :]
    if problem.has_direct_links:
        is_direct = instance.link >= 0
        way_s[:, is_direct] = instance.direct_s[tensor][:, instance.link[is_direct]]
    delay_s = np.zeros((len(edges), *way_s.shape[1:]))
    np.maximum.at(delay_s, edge_of, way_s)
    senders, receivers = np.divmod(edges, num_ops)
    columns: dict[tuple[int, float, bytes], int] = {}
    group = np.array(
        [
            columns.setdefault((int(k), float(instance.limit_bytes[d]), allowed[:, d].tobytes()), len(columns))
            for d, k in enumerate(kind.tolist())
        ],
        dtype=np.int64,
    )
    return Tasks(
        op=np.array(order),
        time_s=time_s,
        class_of_op=class_of_op,
        memory_bytes=memory,
        limit_bytes=np.array(instance.limit_bytes),
        senders=senders,
        receivers=receivers,
        delay_s=delay_s,
        kind=np.array(kind),
        group=group,
        group_size=np.bincount(group),
    )


def representatives(tasks: Tasks) -> Tasks:
    """Return the tasks with the first three devices of each group; `Tasks.group_size` stays what it was."""
    seen = np.zeros(len(tasks.group_size), dtype=np.int64)
    kept = []
    for d, group in enumerate(tasks.group.tolist()):
        seen[group] += 1
        if seen[group] <= 3:
            kept.append(d)
    return replace(
        tasks,
        time_s=np.ascontiguousarray(tasks.time_s[:, kept]),
        limit_bytes=tasks.limit_bytes[kept],
        kind=tasks.kind[kept],
        group=tasks.group[kept],
    )

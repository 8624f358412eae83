r"""Ranks of ops: how much of the run is still to come after an op, or lies before it, at mean costs.

With :math:`w_v` the mean time of op v over the kinds that support it, and :math:`c_t` the mean transfer time of tensor
t over all ordered pairs of distinct devices,

.. math:: up(v) = w_v + \max_{t \in out(v)} (c_t + \max_{u \in readers(t)} up(u)), \qquad
          down(v) = \max_{t \in in(v)} (down(p_t) + w_{p_t} + c_t)

(both maxima are 0 where there is nothing to take them over), :math:`p_t` being the producer of t.

References
----------
Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE
TPDS 13(3), 2002, doi:10.1109/71.993206, equations 6 to 9.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import FEW_OPS, interpreted, njit
from placekit.objectives.makespan.arrays import MakespanInstance


def mean_time_s(instance: MakespanInstance) -> NDArray[np.float64]:
    """``[V]`` mean seconds of each op over the kinds that support it; 0 for an op that none supports."""
    count = instance.is_supported.sum(axis=1)
    total = np.zeros(instance.num_ops)
    for kind in range(instance.op_time_s.shape[1]):
        total += instance.op_time_s[:, kind]  # 0 where not supported
    mean: NDArray[np.float64] = total / np.maximum(count, 1)
    return mean


def mean_transfer_s(instance: MakespanInstance) -> NDArray[np.float64]:
    """``[T]`` mean seconds of each tensor over the ordered pairs of distinct devices; 0 on a single device.

    Through host memory a pair costs the sum of its two links, and every device is first in as many pairs as it is
    second: without direct links the mean is twice the mean of the devices' own links.
    """
    total = np.zeros(len(instance.producer))
    if instance.num_devices == 1:
        return total
    if instance.direct_s.shape[1]:
        _, first, counts = np.unique(instance.group, return_index=True, return_counts=True)
        for a, b in product(range(len(first)), repeat=2):
            link, kinds = instance.link[a, b], instance.kind[first[[a, b]]]
            way_s = instance.transfer_s[:, kinds].sum(axis=1) if link < 0 else instance.direct_s[:, link]
            total += (counts[a] * (counts[b] - (a == b))) * way_s
        return total / (instance.num_devices * (instance.num_devices - 1))
    for kind in instance.kind:
        total += instance.transfer_s[:, kind]
    return 2 * total / instance.num_devices


def upward_rank(
    instance: MakespanInstance,
    # time_s, transfer_s: ``[V]`` seconds of each op and ``[T]`` of each tensor; the means, for the rank of HEFT
    time_s: NDArray[np.float64],
    transfer_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """``[V]`` seconds from the start of each op to the end of the longest path that begins in it.

    Notes
    -----
    O(V + E).
    """
    rank = np.zeros(instance.num_ops)
    with interpreted(instance.num_ops <= FEW_OPS):
        _upward(instance.order, *_edges(instance), time_s, transfer_s, rank)
    return rank


def mean_upward_rank(instance: MakespanInstance) -> NDArray[np.float64]:
    """``[V]`` the rank of HEFT: `upward_rank` at mean costs."""
    return upward_rank(instance, mean_time_s(instance), mean_transfer_s(instance))


def downward_rank(
    instance: MakespanInstance, time_s: NDArray[np.float64], transfer_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``[V]`` seconds of the longest path that ends at the start of each op; arguments and cost as `upward_rank`."""
    rank = np.zeros(instance.num_ops)
    _downward(instance.order, *_edges(instance), time_s, transfer_s, rank)
    return rank


def _edges(instance: MakespanInstance) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return instance.edge_offsets, instance.edge_readers, instance.edge_tensors


@njit
def _upward(order, edge_offsets, edge_readers, edge_tensors, time_s, transfer_s, rank):  # type: ignore[no-untyped-def]
    for i in range(len(rank) - 1, -1, -1):
        op = order[i]
        longest = 0.0
        for j in range(edge_offsets[op], edge_offsets[op + 1]):
            longest = max(longest, transfer_s[edge_tensors[j]] + rank[edge_readers[j]])
        rank[op] = time_s[op] + longest


@njit
def _downward(order, edge_offsets, edge_readers, edge_tensors, time_s, transfer_s, rank):  # type: ignore[no-untyped-def]
    for op in order:
        for j in range(edge_offsets[op], edge_offsets[op + 1]):
            reader = edge_readers[j]
            rank[reader] = max(rank[reader], rank[op] + time_s[op] + transfer_s[edge_tensors[j]])

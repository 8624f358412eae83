"""Optimistic cost table of PEFT, and a critical path for CPOP."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.instance import MakespanInstance

__all__ = ["critical_path", "optimistic_cost"]


def optimistic_cost(instance: MakespanInstance, transfer_s: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the least seconds ``[V, K]`` from the end of each op on each kind to the end of the graph.

    With :math:`O(v, k)` the table, :math:`c_t` the mean transfer of the tensor t that u reads from v,

    .. math:: O(v, k) = \max_{u} \min_{k'} \left( O(u, k') + w_{u, k'} + [k' \ne k]\, c_t \right)

    (Arabnejad and Barbosa 2014, equation 3; a child may always stay on the very device, so kinds are enough). Kinds
    that do not support u are left out of the minimum. O(E K).

    Parameters
    ----------
    instance
        The problem.
    transfer_s
        ``[T]`` mean seconds of each tensor between devices.
    """
    cost = np.zeros(instance.op_time_s.shape)
    _fill_table(instance, transfer_s, cost)
    return cost


@njit
def _fill_table(instance, transfer_s, cost):  # type: ignore[no-untyped-def]  # compiled
    num_kinds = cost.shape[1]
    for i in range(len(instance.order) - 1, -1, -1):
        op = instance.order[i]
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            child, moved = instance.edge_readers[j], transfer_s[instance.edge_tensors[j]]
            elsewhere = np.inf
            for kind in range(num_kinds):
                if instance.is_supported[child, kind]:
                    elsewhere = min(elsewhere, cost[child, kind] + instance.op_time_s[child, kind] + moved)
            for kind in range(num_kinds):
                behind = elsewhere
                if instance.is_supported[child, kind]:
                    behind = min(behind, cost[child, kind] + instance.op_time_s[child, kind])
                cost[op, kind] = max(cost[op, kind], behind)


def critical_path(instance: MakespanInstance, length_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the ops of one longest path, in topological order.

    Parameters
    ----------
    instance
        The problem.
    length_s
        ``[V]`` seconds of the longest path through each op; ties in topological order.
    """
    entries = np.flatnonzero(np.diff(instance.in_offsets) == 0)
    path = []
    candidates = entries
    while len(candidates):
        op = candidates[np.lexsort((instance.rank[candidates], -length_s[candidates]))[0]]
        path.append(op)
        candidates = instance.edge_readers[instance.edge_offsets[op] : instance.edge_offsets[op + 1]]
    return np.array(path, dtype=np.int64)

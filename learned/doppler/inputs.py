r"""Inputs of the policies, per op: costs, and the place of the op on the longest paths.

With the mean seconds :math:`w_v` of an op and :math:`c_t` of a tensor (:mod:`placekit.objectives.makespan.ranks`), all
in units of the mean op or of the longest path through the graph, so that times may be scaled:

* log(1 + .) of mean and least seconds of the op, of the seconds of its inputs, and of its outputs;
* t-level and b-level, the longest paths that end before the op and begin with it, their sum, and both without tensors;
* log(1 + .) of the numbers of inputs and readers, and the share of the ops' memory.

The longest path itself is followed as well: `exit_next` is the reader on the way to the exit, `entry_next` the producer
on the way from the entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.model.graph import sum_by
from placekit.objectives.makespan.instance import MakespanInstance
from placekit.objectives.makespan.ranks import downward_rank, mean_time_s, mean_transfer_s, upward_rank

__all__ = ["OpInputs", "op_inputs"]


@dataclass(frozen=True, eq=False)
class OpInputs:
    """Ops as tensors.

    Parameters
    ----------
    features
        ``[V, F]`` float32; see the module docstring.
    senders, receivers
        ``[E]`` ends of every pair of tensor and reader.
    edge_cost
        ``[E]`` log(1 + mean seconds of the tensor), in units of the mean op.
    exit_next, entry_next
        ``[V]`` the next op on the longest path to the exit, and to the entry; V where it ends.
    longest_path
        Ops on the longest of these paths.
    unit_s
        Seconds of the mean op.
    urgency
        ``[V]`` b-levels in seconds: the order of the teacher.
    """

    features: Tensor
    senders: Tensor
    receivers: Tensor
    edge_cost: Tensor
    exit_next: Tensor
    entry_next: Tensor
    longest_path: int
    unit_s: float
    urgency: NDArray[np.float64]


def op_inputs(instance: MakespanInstance) -> OpInputs:
    """Return what the policies see of the ops. O(V K + E log E)."""
    num_ops = instance.num_ops
    mean_s, moves_s = mean_time_s(instance), mean_transfer_s(instance)
    least_s = np.where(instance.is_supported, instance.op_time_s, np.inf).min(axis=1)
    least_s = np.where(np.isfinite(least_s), least_s, 0.0)
    unit_s = float(mean_s.mean()) or 1.0
    senders = np.repeat(np.arange(num_ops), np.diff(instance.edge_offsets))
    receivers, edge_s = instance.edge_readers, moves_s[instance.edge_tensors]
    b_level, t_level = upward_rank(instance, mean_s, moves_s), downward_rank(instance, mean_s, moves_s)
    still = np.zeros_like(moves_s)
    b_bare, t_bare = upward_rank(instance, mean_s, still), downward_rank(instance, mean_s, still)
    longest_s, bare_s = (float((b + t).max()) or 1.0 for b, t in ((b_level, t_level), (b_bare, t_bare)))
    memory = instance.memory_bytes / (float(instance.memory_bytes.sum()) or 1.0)
    seconds = np.stack([mean_s, least_s, sum_by(receivers, edge_s, num_ops), sum_by(senders, edge_s, num_ops)], axis=1)
    degrees = np.stack([np.bincount(ends, minlength=num_ops) for ends in (receivers, senders)], axis=1)
    levels = np.stack([t_level, b_level, t_level + b_level], axis=1) / longest_s
    bare = np.stack([t_bare, b_bare], axis=1) / bare_s
    columns = [np.log1p(seconds / unit_s), levels, bare, np.log1p(degrees), memory[:, None]]
    exit_next, towards = _next(senders, receivers, edge_s + b_level[receivers], instance)
    entry_next, back = _next(receivers, senders, (t_level + mean_s)[senders] + edge_s, instance)
    return OpInputs(
        features=torch.from_numpy(np.concatenate(columns, axis=1)).float(),
        senders=torch.from_numpy(senders),
        receivers=torch.from_numpy(receivers.copy()),
        edge_cost=torch.from_numpy(np.log1p(edge_s / unit_s)).float(),
        exit_next=torch.from_numpy(exit_next),
        entry_next=torch.from_numpy(entry_next),
        longest_path=max(towards, back),
        unit_s=unit_s,
        urgency=b_level,
    )


def _next(
    ends: NDArray[np.int64], others: NDArray[np.int64], path_s: NDArray[np.float64], instance: MakespanInstance
) -> tuple[NDArray[np.int64], int]:
    """``[V]`` other end of the edge of longest path of every op, V for none; ops on the longest chain of them."""
    num_ops = instance.num_ops
    found = np.full(num_ops, num_ops)
    along = np.lexsort((-instance.rank[others], path_s, ends))
    found[ends[along]] = others[along]  # the last one stays: the longest, ties by topological position
    length = np.ones(num_ops + 1, dtype=np.int64)
    length[num_ops] = 0
    is_forward = bool((instance.rank[others] > instance.rank[ends]).all()) if len(ends) else True
    for op in instance.order[::-1] if is_forward else instance.order:
        length[op] = 1 + length[found[op]]
    return found, int(length.max())

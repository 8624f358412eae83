"""Anchor op of a fused group, and the times of ops that follow from a measurement of groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.kind_profile import KindProfile
from placekit.model.graph import OpGraph

__all__ = ["anchors_of", "on_anchors"]


def on_anchors(
    graph: OpGraph, profile: KindProfile, op_group: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return time, spread and support ``[num_ops]`` of a profile whose groups are joined to `op_group`.

    The spread of a joined group is the mean of its parts', weighted by time: the most that it can be.
    """
    num_groups = int(op_group.max()) + 1
    anchors = anchors_of(graph, op_group, num_groups)
    joined = np.empty(profile.num_groups, dtype=np.int64)
    joined[profile.op_group] = op_group  # every op of a measured group is in the same joined group
    group_time_s = np.bincount(joined, weights=profile.group_time_s, minlength=num_groups)
    is_measured = ~np.isnan(profile.group_spread)
    spread_s = np.where(is_measured, profile.group_spread * profile.group_time_s, 0.0)
    group_spread_s = np.bincount(joined, weights=spread_s, minlength=num_groups)
    op_time_s, op_spread = np.zeros(graph.num_ops), np.full(graph.num_ops, np.nan)
    op_time_s[anchors] = group_time_s
    has_spread = group_time_s > 0
    op_spread[anchors[has_spread]] = group_spread_s[has_spread] / group_time_s[has_spread]
    lost = np.bincount(joined, weights=~profile.group_supported, minlength=num_groups) > 0
    return op_time_s, op_spread, ~lost[op_group]


def anchors_of(graph: OpGraph, op_group: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """``[num_groups]`` member of every group with the most FLOPs; the first in topological order among equals."""
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[graph.order] = np.arange(graph.num_ops)
    by_preference = np.lexsort((rank, -graph.op_flops, op_group))
    starts = np.searchsorted(op_group[by_preference], np.arange(num_groups))
    return by_preference[starts]

"""The nodes that Placeto visits: groups of ops, few enough to visit each, and how they lie to each other."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.environment import Environment
from placekit.learned.group_graph import GroupGraph, group_graph

__all__ = ["few_groups", "relations_of"]


def few_groups(environment: Environment, max_groups: int) -> Environment:
    """Return an environment with about `max_groups` groups at most, each a run of groups in topological order.

    A run ends when it has its share of the groups, or when no device would be left that may hold it.
    """
    if environment.num_groups <= max_groups:
        return environment
    length = -(-environment.num_groups // max_groups)
    run_of_group = np.empty(environment.num_groups, dtype=np.int64)
    run, size = -1, length
    allowed = np.ones(environment.num_devices, dtype=bool)
    for group in group_graph(environment).order.tolist():
        may = allowed & environment.mask[group]
        if size >= length or not may.any():
            run, size, may = run + 1, 0, environment.mask[group]
        run_of_group[group], size, allowed = run, size + 1, may
    return environment.coarsened(run_of_group[environment.group_of_op])


def relations_of(graph: GroupGraph) -> Tensor:
    """``[3, N, N]`` row-normalised: which nodes are ancestors, descendants of a node, or neither of both.

    Merged nodes may form cycles; then "ancestor" means a sender that comes before in `GroupGraph.order`, or one of its
    ancestors.

    Notes
    -----
    O(edges * N) time, O(N^2) memory.
    """
    num_nodes = graph.num_groups
    place = np.empty(num_nodes, dtype=np.int64)
    place[graph.order.numpy()] = np.arange(num_nodes)
    senders, receivers = graph.senders.numpy(), graph.receivers.numpy()
    is_forward = place[senders] < place[receivers]
    senders, receivers = senders[is_forward], receivers[is_forward]
    is_ancestor: NDArray[np.bool_] = np.zeros((num_nodes, num_nodes), dtype=bool)
    for edge in np.argsort(place[senders], kind="stable").tolist():
        u, v = senders[edge], receivers[edge]
        is_ancestor[v] |= is_ancestor[u]
        is_ancestor[v, u] = True
    neither = ~(is_ancestor | is_ancestor.T | np.eye(num_nodes, dtype=bool))
    weights = np.stack([is_ancestor, is_ancestor.T, neither]).astype(np.float32)
    return torch.from_numpy(weights / np.maximum(weights.sum(axis=2, keepdims=True), 1))

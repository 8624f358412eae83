"""Parsing: every node keeps its best-scoring edge, and the kept edges split the graph into groups.

Song et al., "Graph parsing networks", ICLR 2024; HSDAG, equations 9 to 11. One pass is one level; the groups of a level
are the nodes of the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from placekit.model.graph import distinct, number_by_first

__all__ = ["Level", "largest", "parse", "sums"]


class Level(NamedTuple):
    """One level of groups.

    Parameters
    ----------
    group_of_node
        ``[num_nodes]`` group ``0 .. num_groups - 1`` of every node.
    is_inside
        ``[num_edges]`` True for the edges within a group.
    mask
        ``[num_groups, num_devices]`` where all nodes of each group may go.
    edges
        ``[2, num_group_edges]`` distinct undirected edges between groups, smaller end first.
    edge_of_edge
        ``[num_edges]`` index into `edges` of every edge between groups; meaningless for those inside.
    """

    group_of_node: NDArray[np.int64]
    is_inside: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    edges: NDArray[np.int64]
    edge_of_edge: NDArray[np.int64]

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.mask)


def parse(edges: NDArray[np.int64], scores: NDArray[np.float32], mask: NDArray[np.bool_]) -> Level:
    """Group nodes by their dominant edges.

    1. The dominant edge of a node is its incident edge of highest score, ties to the smaller neighbour.
    2. Groups are the connected components of the dominant edges; a node without edges is a group of its own.
    3. A component whose nodes have no device in common falls apart into its nodes.

    Parameters
    ----------
    edges
        ``[2, num_edges]`` distinct undirected edges.
    scores
        ``[num_edges]`` one score per edge, the same in both directions (else the result would depend on the direction).
    mask
        ``[num_nodes, num_devices]`` where each node may go.

    Notes
    -----
    O(edges log edges + nodes * devices).
    """
    num_nodes = len(mask)
    ends, others, score = np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]), np.tile(scores, 2)
    best_first = np.lexsort((others, -score, ends))
    owners, first = np.unique(ends[best_first], return_index=True)
    dominant = others[best_first[first]]
    adjacency = coo_array((np.ones(len(owners)), (owners, dominant)), shape=(num_nodes, num_nodes))
    group = connected_components(adjacency, directed=False)[1].astype(np.int64)
    together = _masks(group, mask)
    has_none = np.logical_not(together.any(axis=1))
    if has_none.any():
        group = np.where(has_none[group], len(together) + np.arange(num_nodes), group)
    group = number_by_first(group)
    together = _masks(group, mask)
    ends = group[edges]
    between = ends[0] != ends[1]
    pairs = np.minimum(*ends) * len(together) + np.maximum(*ends)
    keys = distinct(pairs[between])
    coarser = np.stack(np.divmod(keys, len(together)))
    return Level(group, ~between, together, coarser, np.searchsorted(keys, pairs))


def _masks(group: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    together = np.ones((int(group.max()) + 1, mask.shape[1]), dtype=bool)
    np.logical_and.at(together, group, mask)
    return together


def largest(values: NDArray[np.float32], group: NDArray[np.int64], num_groups: int) -> NDArray[np.float32]:
    """``[num_groups]`` largest value of each group; minus infinity for one without values."""
    most = np.full(num_groups, -np.inf, dtype=np.float32)
    np.maximum.at(most, group, values)
    return most


def sums(values: NDArray[np.float64], group: NDArray[np.int64], num_groups: int) -> NDArray[np.float64]:
    """``[num_groups, ...]`` sum of the values of each group."""
    total = np.zeros((num_groups, *values.shape[1:]))
    np.add.at(total, group, values)
    return total

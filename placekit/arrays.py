"""Functions on flat arrays: sums by label, lists in CSR form, components, and topological order."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 20_000
"""Nodes and edges that are joined in Python, sooner than scipy.sparse is imported, which takes a fifth of a second."""


def sum_by(label: NDArray[np.int64], values: NDArray[np.float64], num_labels: int) -> NDArray[np.float64]:
    """``[num_labels]`` sums of the `values` that share a label."""
    return np.bincount(label, weights=values, minlength=num_labels).astype(np.float64, copy=False)


def all_by(label: NDArray[np.int64], rows: NDArray[np.bool_], num_labels: int) -> NDArray[np.bool_]:
    """``[num_labels, columns]`` True where all the `rows` ``[num, columns]`` that share a label are."""
    found = np.ones((num_labels, rows.shape[1]), dtype=bool)
    np.logical_and.at(found, label, rows)
    return found


def components(
    num_nodes: int, senders: NDArray[np.int64], receivers: NDArray[np.int64], *, is_strong: bool = False
) -> NDArray[np.int64]:
    """``[num_nodes]`` label of the connected component of every node; of the strongly connected one if `is_strong`."""
    if not is_strong and num_nodes + len(senders) <= FEW:
        return _joined(num_nodes, senders, receivers)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(senders)), (senders, receivers)), shape=(num_nodes, num_nodes))
    labels = connected_components(edges, directed=is_strong, connection="strong")[1]
    return np.asarray(labels, dtype=np.int64)


def _joined(num_nodes: int, senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> NDArray[np.int64]:
    parent = list(range(num_nodes))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for sender, receiver in zip(senders.tolist(), receivers.tolist(), strict=True):
        parent[root(sender)] = root(receiver)
    return number_by_first(np.array([root(node) for node in range(num_nodes)], dtype=np.int64))


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different values in rising order, like ``numpy.unique``, which hashes first and is 20 times slower."""
    ordered = np.sort(values)
    found: NDArray[np.int64] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def csr_lists(
    keys: NDArray[np.int64], values: NDArray[np.int64], num_keys: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return CSR lists of the `values` of every key: ``[num_keys + 1]`` offsets, and the values by key."""
    by_key = np.argsort(keys, kind="stable")
    return np.searchsorted(keys[by_key], np.arange(num_keys + 1)).astype(np.int64), values[by_key]


def number_by_first(labels: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Renumber labels ``0, 1, ...`` in the order in which they first appear."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def topological_order(
    num_nodes: int, senders: NDArray[np.int64], receivers: NDArray[np.int64], *, depth_first: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order the nodes so that every edge goes forward (Kahn's algorithm). O(nodes + edges).

    The node that was ready first is taken; with `depth_first` the one that was ready last, so that each branch is
    followed to its end before the next. Ties by lowest index. Also returned are the nodes that could not be ordered
    because they lie on or behind a cycle: none in a DAG.
    """
    offsets, targets = (each.tolist() for each in csr_lists(senders, receivers, num_nodes))
    waiting = np.bincount(receivers, minlength=num_nodes).tolist()
    ready = deque(node for node in range(num_nodes) if waiting[node] == 0)
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        found = []
        for target in targets[offsets[node] : offsets[node + 1]]:
            waiting[target] -= 1
            if waiting[target] == 0:
                found.append(target)
        if depth_first:
            ready.extendleft(reversed(found))
        else:
            ready.extend(found)
    stuck = [node for node in range(num_nodes) if waiting[node] > 0]
    return np.array(order, dtype=np.int64), np.array(stuck, dtype=np.int64)

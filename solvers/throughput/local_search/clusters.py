"""Coarser problems: classes joined into clusters that move as one.

Where transfers are dear, a good placement differs from the current one by whole subgraphs, and every single move on
the way there makes things worse. Joining classes along heavy nets makes subgraphs single moves. This is the multilevel
scheme of hypergraph partitioners (Karypis and Kumar 1998; Schlag et al. 2016), with the loads of this problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.graph import sum_by
from placekit.solvers.assignment.flat import FlatProblem, invert, with_order

__all__ = ["coarsen", "find_clusters"]

MAX_PINS = 64
"""Larger nets say little about which classes belong together, and cost their square."""


@njit(cache=True, nogil=True)
def find_clusters(
    flat: FlatProblem, device: NDArray[np.int64], most_s: float, seed: int
) -> tuple[NDArray[np.int64], int]:
    """Join every class, in random order, with the neighbour that it shares the most transfer time with.

    Parameters
    ----------
    flat
        The problem.
    device
        ``[C]`` labels: only classes with equal labels are joined.
    most_s
        Largest work of a cluster, in seconds on its fastest kind.
    seed
        Seed of the order and of the noise on the ratings.

    Returns
    -------
    tuple[NDArray[np.int64], int]
        ``[C]`` cluster of every class, and the number of clusters. Clusters have a device that allows all their
        classes.

    Notes
    -----
    O(sum over nets of the square of the pins, at most `MAX_PINS` each).
    """
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_classes, num_devices = flat.allowed.shape
    work = np.empty(num_classes)
    for c in range(num_classes):
        work[c] = flat.time_s[c].sum(axis=1).min()
    weight = np.empty(len(flat.net_offsets) - 1)
    for n in range(len(weight)):
        size = flat.net_offsets[n + 1] - flat.net_offsets[n]
        weight[n] = flat.net_time_s[n].sum(axis=1).max() / (size - 1)
    order = np.random.permutation(num_classes)  # noqa: NPY002
    leader = np.full(num_classes, -1, dtype=np.int64)
    rating = np.zeros(num_classes)
    touched = np.empty(num_classes, dtype=np.int64)
    allowed = flat.allowed.copy()
    for c in order:
        if leader[c] >= 0:
            continue
        num_touched = 0
        for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
            n = flat.class_nets[i]
            if flat.net_offsets[n + 1] - flat.net_offsets[n] > MAX_PINS:
                continue
            for j in range(flat.net_offsets[n], flat.net_offsets[n + 1]):
                e = flat.net_pins[j]
                root = leader[e] if leader[e] >= 0 else e
                if root == c or device[root] != device[c]:
                    continue
                if rating[root] == 0.0:
                    touched[num_touched] = root
                    num_touched += 1
                rating[root] += weight[n] + 1e-300
        best, chosen = 0.0, -1
        for i in range(num_touched):
            root = touched[i]
            value = rating[root] * (0.5 + np.random.random())  # noqa: NPY002
            rating[root] = 0.0
            if value <= best or work[root] + work[c] > most_s:
                continue
            together = False
            for d in range(num_devices):
                if allowed[root, d] and allowed[c, d]:
                    together = True
                    break
            if together:
                best, chosen = value, root
        if chosen < 0:
            leader[c] = c
            continue
        leader[chosen] = chosen
        leader[c] = chosen
        work[chosen] += work[c]
        for d in range(num_devices):
            allowed[chosen, d] = allowed[chosen, d] and allowed[c, d]
    label = np.full(num_classes, -1, dtype=np.int64)
    num_clusters = 0
    for c in range(num_classes):
        if label[leader[c]] < 0:
            label[leader[c]] = num_clusters
            num_clusters += 1
    return label[leader], num_clusters


@njit(cache=True, nogil=True)
def _coarse_nets(
    flat: FlatProblem, cluster: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Relabel the pins; nets inside one cluster go, nets with the same pins become one."""
    num_nets = len(flat.net_offsets) - 1
    offsets = np.zeros(num_nets + 1, dtype=np.int64)
    pins = np.empty(len(flat.net_pins), dtype=np.int64)
    key = np.empty(num_nets, dtype=np.uint64)
    origin = np.empty(num_nets, dtype=np.int64)
    kept = 0
    for n in range(num_nets):
        distinct = np.unique(cluster[flat.net_pins[flat.net_offsets[n] : flat.net_offsets[n + 1]]])
        if len(distinct) < 2:
            continue
        mixed = np.uint64(1469598103934665603)
        for i in range(len(distinct)):
            pins[offsets[kept] + i] = distinct[i]
            mixed = (mixed ^ np.uint64(distinct[i])) * np.uint64(1099511628211)
        offsets[kept + 1] = offsets[kept] + len(distinct)
        key[kept], origin[kept] = mixed, n
        kept += 1
    by_key = np.argsort(key[:kept], kind="mergesort")
    new_offsets = np.zeros(kept + 1, dtype=np.int64)
    new_pins = np.empty(offsets[kept], dtype=np.int64)
    new_time = np.zeros((kept, flat.net_time_s.shape[1], flat.net_time_s.shape[2]))
    num_new = 0
    for i in range(kept):
        m = by_key[i]
        size = offsets[m + 1] - offsets[m]
        same = False
        if num_new > 0 and key[by_key[i - 1]] == key[m]:
            start = new_offsets[num_new - 1]
            same = new_offsets[num_new] - start == size  # equal hashes may still be of different nets
            for j in range(size):
                same = same and new_pins[start + j] == pins[offsets[m] + j]
        if not same:
            new_pins[new_offsets[num_new] : new_offsets[num_new] + size] = pins[offsets[m] : offsets[m] + size]
            new_offsets[num_new + 1] = new_offsets[num_new] + size
            num_new += 1
        new_time[num_new - 1] += flat.net_time_s[origin[m]]
    return new_offsets[: num_new + 1], new_pins[: new_offsets[num_new]], new_time[:num_new].copy()


def coarsen(flat: FlatProblem, cluster: NDArray[np.int64], num_clusters: int) -> FlatProblem:
    """Return the problem whose classes are the clusters; its placements cost what their expansions cost.

    Parameters
    ----------
    flat
        The problem.
    cluster
        ``[C]`` cluster of every class, ``0 .. num_clusters - 1``.
    num_clusters
        How many there are.

    Notes
    -----
    O(pins log pins).
    """
    time_s = np.zeros((num_clusters, *flat.time_s.shape[1:]))
    np.add.at(time_s, cluster, flat.time_s)
    allowed = np.ones((num_clusters, flat.allowed.shape[1]), dtype=np.bool_)
    np.logical_and.at(allowed, cluster, flat.allowed)
    net_offsets, net_pins, net_time_s = _coarse_nets(flat, cluster)
    class_offsets, class_nets = invert(net_offsets, net_pins, num_clusters)
    senders = np.repeat(cluster, np.diff(flat.next_offsets))
    receivers = cluster[flat.next_classes]
    apart = senders != receivers
    coarse = flat._replace(
        time_s=time_s,
        memory_bytes=sum_by(cluster, flat.memory_bytes, num_clusters),
        allowed=allowed,
        net_offsets=net_offsets,
        net_pins=net_pins,
        net_time_s=net_time_s,
        class_offsets=class_offsets,
        class_nets=class_nets,
    )
    return with_order(coarse, senders[apart], receivers[apart])

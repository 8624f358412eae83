"""Coarser problems: classes joined into clusters that move as one.

Where transfers are dear, a good placement differs from the current one by whole subgraphs, and every single move on
the way there makes things worse. Joining classes along heavy nets makes subgraphs single moves. This is the multilevel
scheme of hypergraph partitioners (Karypis and Kumar 1998; Schlag et al. 2016), with the loads of this problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, sum_by
from placekit.kernels import njit
from placekit.solvers.assignment.flat import FlatProblem, invert, with_order
from placekit.solvers.generic.draws import shuffled
from placekit.solvers.throughput.local_search.sorting import sort

MAX_PINS = 64
"""Larger nets say little about which classes belong together, and cost their square."""


def find_clusters(
    flat: FlatProblem,
    device: NDArray[np.int64],  # ``[C]`` labels: only classes with equal labels are joined
    most_s: float,  # largest work of a cluster, in seconds on its fastest kind
    seed: int,  # seed of the order and of the noise on the ratings
) -> tuple[NDArray[np.int64], int]:
    """Join every class, in random order, with the neighbour that it shares the most transfer time with.

    Returns
    -------
    tuple[NDArray[np.int64], int]
        ``[C]`` cluster of every class, and the number of clusters. Clusters have a device that allows all their
        classes.

    Notes
    -----
    O(sum over nets of the square of the pins, at most `MAX_PINS` each).
    """
    work = flat.time_s.sum(axis=2).min(axis=1)
    weight = flat.net_time_s.sum(axis=2).max(axis=1) / (np.diff(flat.net_offsets) - 1)
    leader = np.full(len(work), -1, dtype=np.int64)
    _find_leaders(flat, work, weight, flat.allowed.copy(), device, most_s, seed, leader)
    cluster: NDArray[np.int64]
    leaders, cluster = np.unique(leader, return_inverse=True)
    return cluster, len(leaders)


@njit
def _find_leaders(
    flat: FlatProblem,
    work: NDArray[np.float64],
    weight: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    device: NDArray[np.int64],
    most_s: float,
    seed: int,
    leader: NDArray[np.int64],
) -> None:
    """Write the class that each class joins into `leader`, all -1 before; `work` and `allowed` become the clusters'."""
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_classes, num_devices = allowed.shape
    net_offsets, net_pins = flat.net_offsets, flat.net_pins
    class_offsets, class_nets = flat.class_offsets, flat.class_nets
    rating = np.zeros(num_classes)
    touched = np.empty(num_classes, dtype=np.int64)
    for c in shuffled(num_classes):
        if leader[c] >= 0:
            continue
        num_touched = 0
        for i in range(class_offsets[c], class_offsets[c + 1]):
            n = class_nets[i]
            if net_offsets[n + 1] - net_offsets[n] > MAX_PINS:
                continue
            for j in range(net_offsets[n], net_offsets[n + 1]):
                e = net_pins[j]
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


def _coarse_nets(
    flat: FlatProblem, cluster: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Relabel the pins; nets inside one cluster go, nets with the same pins become one."""
    num_nets = len(flat.net_offsets) - 1
    offsets = np.zeros(num_nets + 1, dtype=np.int64)
    pins, key = np.empty(len(flat.net_pins), dtype=np.int64), np.empty(num_nets, dtype=np.int64)
    _relabel(flat.net_offsets, flat.net_pins, cluster, np.full(int(cluster.max()) + 1, -1), offsets, pins, key)
    sizes = np.diff(offsets)
    by_key = np.flatnonzero(sizes)[np.argsort(key[sizes > 0], kind="stable")]
    new = np.empty(len(by_key), dtype=np.int64)
    num_new = _number(offsets, pins, key, by_key, new)
    first = by_key[np.unique(new, return_index=True)[1]]
    new_offsets = np.concatenate([[0], np.cumsum(sizes[first])])
    new_time = np.zeros((num_new, *flat.net_time_s.shape[1:]))
    np.add.at(new_time, new, flat.net_time_s[by_key])
    within = np.arange(new_offsets[-1]) - np.repeat(new_offsets[:-1], sizes[first])
    return new_offsets, pins[np.repeat(offsets[first], sizes[first]) + within], new_time


@njit
def _relabel(
    net_offsets: NDArray[np.int64],
    net_pins: NDArray[np.int64],
    cluster: NDArray[np.int64],
    stamp: NDArray[np.int64],
    offsets: NDArray[np.int64],
    pins: NDArray[np.int64],
    key: NDArray[np.int64],
) -> None:
    """Write the distinct clusters of each net, ascending, and a hash of them; none for a net inside one cluster."""
    for n in range(len(net_offsets) - 1):
        begin = end = offsets[n]
        for i in range(net_offsets[n], net_offsets[n + 1]):
            c = cluster[net_pins[i]]
            if stamp[c] != n:
                stamp[c] = n
                pins[end] = c
                end += 1
        if end - begin < 2:
            end = begin
        sort(pins, begin, end)
        mixed = 1469598103934665603
        for i in range(begin, end):
            mixed = (mixed ^ pins[i]) * 1099511628211
        offsets[n + 1], key[n] = end, mixed


@njit
def _number(
    offsets: NDArray[np.int64],
    pins: NDArray[np.int64],
    key: NDArray[np.int64],
    by_key: NDArray[np.int64],
    new: NDArray[np.int64],
) -> int:
    """Give nets with the same pins the same number, in the order of their hashes; return how many there are."""
    number, first = -1, -1
    for i in range(len(by_key)):
        n = by_key[i]
        size = offsets[n + 1] - offsets[n]
        # equal hashes may still be of different nets
        same = first >= 0 and key[first] == key[n] and offsets[first + 1] - offsets[first] == size
        for j in range(size):
            same = same and pins[offsets[first] + j] == pins[offsets[n] + j]
        if not same:
            number, first = number + 1, n
        new[i] = number
    return number + 1


def coarsen(
    flat: FlatProblem,
    cluster: NDArray[np.int64],  # ``[C]`` cluster of every class, ``0 .. num_clusters - 1``.
    num_clusters: int,  # how many there are
) -> FlatProblem:
    """Return the problem whose classes are the clusters; its placements cost what their expansions cost.

    O(pins log pins).
    """
    time_s = np.zeros((num_clusters, *flat.time_s.shape[1:]))
    np.add.at(time_s, cluster, flat.time_s)
    net_offsets, net_pins, net_time_s = _coarse_nets(flat, cluster)
    class_offsets, class_nets = invert(net_offsets, net_pins, num_clusters)
    senders = np.repeat(cluster, np.diff(flat.next_offsets))
    receivers = cluster[flat.next_classes]
    apart = senders != receivers
    coarse = flat._replace(
        time_s=time_s,
        memory_bytes=sum_by(cluster, flat.memory_bytes, num_clusters),
        allowed=all_by(cluster, flat.allowed, num_clusters),
        net_offsets=net_offsets,
        net_pins=net_pins,
        net_time_s=net_time_s,
        class_offsets=class_offsets,
        class_nets=class_nets,
    )
    return with_order(coarse, senders[apart], receivers[apart])

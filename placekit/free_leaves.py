"""Lossless merging of classes that cost nothing into the one class that they hang on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.contiguity import Contiguity

if TYPE_CHECKING:
    from placekit.coarsen import Contraction

__all__ = ["merge_free_leaves"]


def merge_free_leaves(contraction: Contraction) -> NDArray[np.int64]:
    r"""``[num_classes]`` the class that each class follows: itself, or the one that it may join without loss.

    A class :math:`v` may follow :math:`u` if

    1. it is free: no time on any kind, and no memory unless no device has a limit;
    2. it can go wherever :math:`u` can;
    3. every net that touches :math:`v` touches :math:`u`;
    4. under a contiguity, :math:`u` is its only neighbour in the order graph.

    Take a feasible placement and move :math:`v` to the device of :math:`u`. Compute and memory stay as they are (1),
    the placement remains supported (2), the set of devices that a net touches can only shrink (3), and so can the
    loads. The quotient of the order graph loses the edges of :math:`v` and gains none, and a leaf of the order graph
    lies inside no path, so acyclic stays acyclic and convex stays convex (4). Hence the largest load does not rise:
    the optimum of `throughput` is unchanged. Without this step every such leaf doubles the number of ideals
    (Tarnawski et al. 2020 merge them, too; conditions 1 and 2 are ours).

    Notes
    -----
    Leaves are taken off one after the other, so that trees of free classes collapse. O(pins of the free classes' nets),
    as each class is looked at again only after classes have joined it.
    """
    problem = contraction.problem
    is_ordered = problem.contiguity is not Contiguity.NONE
    is_limited = any(device.memory_bytes is not None for device in problem.platform.devices)
    is_free: NDArray[np.bool_] = np.equal(contraction.time_s.max(axis=(1, 2)), 0)
    if is_limited:
        is_free &= contraction.memory_bytes == 0
    follows = np.arange(contraction.num_classes)
    if not is_free.any():
        return follows
    nets_of, pins_of, neighbours = _incidence(contraction, is_free)
    queue = deque(np.flatnonzero(is_free).tolist())
    waiting = set(queue)
    while queue:
        v = queue.popleft()
        waiting.discard(v)
        nets = [pins_of[net] for net in nets_of[v]]
        if is_ordered:
            candidates = neighbours[v] if len(neighbours[v]) == 1 else set()
            if not neighbours[v] and nets:
                candidates = min(nets, key=len) - {v}
        else:
            candidates = min(nets, key=len) - {v} if nets else set()
        hosts = [u for u in candidates if all(u in pins for pins in nets) and _goes_along(contraction, u, v)]
        if not hosts:
            continue
        u = min(hosts)
        follows[v] = u
        for net in nets_of[v]:
            pins_of[net].discard(v)
            if len(pins_of[net]) == 1:
                nets_of[u].discard(net)
        neighbours[u].discard(v)
        if is_free[u] and u not in waiting:
            waiting.add(u)
            queue.append(u)
    return _roots(follows)


def _goes_along(contraction: Contraction, u: int, v: int) -> bool:
    return bool((contraction.allowed[v] | ~contraction.allowed[u]).all())


def _incidence(
    contraction: Contraction, is_free: NDArray[np.bool_]
) -> tuple[list[set[int]], dict[int, set[int]], list[set[int]]]:
    """Return the nets of each free class, the pins of these nets, and the order neighbours of each free class."""
    num_classes = contraction.num_classes
    nets_of: list[set[int]] = [set() for _ in range(num_classes)]
    neighbours: list[set[int]] = [set() for _ in range(num_classes)]
    owner = np.repeat(np.arange(contraction.num_nets), np.diff(contraction.net_offsets))
    at = np.flatnonzero(is_free[contraction.net_pins])
    for pin, net in zip(contraction.net_pins[at].tolist(), owner[at].tolist(), strict=True):
        nets_of[pin].add(net)
    pins_of = {net: set(contraction.pins_of(net).tolist()) for net in np.unique(owner[at]).tolist()}
    touching = is_free[contraction.senders] | is_free[contraction.receivers]
    ends = (contraction.senders[touching].tolist(), contraction.receivers[touching].tolist())
    for a, b in zip(*ends, strict=True):
        neighbours[a].add(b)
        neighbours[b].add(a)
    return nets_of, pins_of, neighbours


def _roots(follows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each chain of followers ends, by pointer doubling."""
    while True:
        further = follows[follows]
        if np.array_equal(further, follows):
            return follows
        follows = further

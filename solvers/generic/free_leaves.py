"""Merging of classes that cost nothing, or little, into the one class that they hang on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.model.graph import topological_order

if TYPE_CHECKING:
    from placekit.solvers.generic.coarsen import Contraction

__all__ = ["merge_free_leaves", "merge_leaves"]

MAX_VISITED = 2_000
"""Classes that are visited to tell whether one neighbour leads to all others; beyond it a leaf stays on its own."""


def merge_free_leaves(contraction: Contraction) -> NDArray[np.int64]:
    r"""``[num_classes]`` the class that each class follows: itself, or the one that it may join without loss.

    A class :math:`v` may follow :math:`u` if

    1. it is free: no time on any kind, and no memory unless no device has a limit;
    2. it can go wherever :math:`u` can;
    3. every net that touches :math:`v` touches :math:`u`;
    4. under a contiguity, it is a leaf of the order graph: nothing is before it, and :math:`u` is behind it and before
       all else that is directly behind it; or the same with the order reversed.

    Take a feasible placement and move :math:`v` to the device of :math:`u`. Compute and memory stay as they are (1),
    the placement remains supported (2), the set of devices that a net touches can only shrink (3), and so can the
    loads. The quotient of the order graph loses the edges of :math:`v`, and those it gains run beside paths from
    :math:`u` that were there before; a leaf lies inside no path: so acyclic stays acyclic and convex stays convex (4).
    Hence the largest load does not rise: the optimum of `throughput` is unchanged. Without this step every such leaf
    doubles the number of ideals (Tarnawski et al. 2020 merge those with one neighbour, too; conditions 1 and 2 are
    ours, as are constants that many ops of a chain read).

    Notes
    -----
    Leaves are taken off one after the other, so that trees of free classes collapse. O(pins of the free classes' nets),
    as each class is looked at again only after classes have joined it, and a walk of at most `MAX_VISITED` classes for
    a class with several neighbours.
    """
    is_limited = any(device.memory_bytes is not None for device in contraction.problem.platform.devices)
    is_free: NDArray[np.bool_] = np.equal(contraction.time_s.max(axis=(1, 2)), 0)
    if is_limited:
        is_free &= contraction.memory_bytes == 0
    return merge_leaves(contraction, is_free)


def merge_leaves(contraction: Contraction, may_follow: NDArray[np.bool_]) -> NDArray[np.int64]:
    """``[num_classes]`` the class that each class follows, by conditions 2 to 4 of `merge_free_leaves` alone.

    Parameters
    ----------
    contraction
        The contracted problem.
    may_follow
        ``[num_classes]`` the classes that may join another one.
    """
    follows = np.arange(contraction.num_classes)
    if not may_follow.any():
        return follows
    is_ordered = contraction.problem.contiguity is not Contiguity.NONE
    nets_of, pins_of = _incidence(contraction, may_follow)
    order = _Order(contraction, may_follow)
    queue = deque(np.flatnonzero(may_follow).tolist())
    waiting = set(queue)
    while queue:
        v = queue.popleft()
        waiting.discard(v)
        nets = [pins_of[net] for net in nets_of[v]]
        if is_ordered and order.is_joined(v):
            candidates = order.first_neighbour(v)
        else:
            candidates = min(nets, key=len) - {v} if nets else set()
        hosts = [u for u in candidates if all(u in pins for pins in nets) and _goes_along(contraction, u, v)]
        if not hosts or (is_ordered and not order.leads_to_others(min(hosts), v)):
            continue
        u = min(hosts)
        follows[v] = u
        for net in nets_of[v]:
            pins_of[net].discard(v)
            if len(pins_of[net]) == 1:
                nets_of[u].discard(net)
        # what hung on v besides u can be a leaf now
        for w in order.remove(v) | {u}:
            if may_follow[w] and w not in waiting:
                waiting.add(w)
                queue.append(w)
    return _roots(follows)


def _goes_along(contraction: Contraction, u: int, v: int) -> bool:
    if contraction.problem.objective.team_rule == "off":
        return bool((contraction.allowed[v] | ~contraction.allowed[u]).all())
    # a team that can run u can run v, too, and has the devices that v is pinned to
    can_run = contraction.supported[v] | ~contraction.supported[u]
    return bool(can_run.all() and (contraction.pins[u] | ~contraction.pins[v]).all())


class _Order:
    """The neighbours in the order graph of the classes that may follow, as classes are taken off."""

    def __init__(self, contraction: Contraction, may_follow: NDArray[np.bool_]) -> None:
        num_classes = contraction.num_classes
        ends = contraction.senders, contraction.receivers
        rank, stuck = np.full(num_classes, -1), topological_order(num_classes, *ends)
        rank[stuck[0]] = np.arange(len(stuck[0]))
        self.rank = rank.tolist()
        # behind and before, each as lists by class; a class that was taken off was at an end of every path
        self.ways = (_lists(num_classes, *ends), _lists(num_classes, *ends[::-1]))
        self.behind: list[set[int]] = [set() for _ in range(num_classes)]
        self.before: list[set[int]] = [set() for _ in range(num_classes)]
        for v in np.flatnonzero(may_follow).tolist():
            self.behind[v], self.before[v] = set(self.ways[0][v]), set(self.ways[1][v])

    def is_joined(self, v: int) -> bool:
        """Tell whether `v` has any neighbour left."""
        return bool(self.behind[v] or self.before[v])

    def first_neighbour(self, v: int) -> set[int]:
        """Return the one neighbour of a leaf that can lead to all its others; empty if `v` is no leaf."""
        if self.behind[v] and self.before[v]:
            return set()
        others, sign = (self.behind[v], 1) if self.behind[v] else (self.before[v], -1)
        if len(others) > 1 and any(self.rank[w] < 0 for w in others):
            return set()  # on or behind a cycle: no first one
        return {min(others, key=lambda w: sign * self.rank[w])}

    def leads_to_others(self, u: int, v: int) -> bool:
        """Tell whether all neighbours of the leaf `v` are behind `u` (or all before it); False if it takes too long."""
        others, ways, sign = (self.behind[v], self.ways[0], 1) if self.behind[v] else (self.before[v], self.ways[1], -1)
        missing, seen, stack = others - {u}, {u}, [u]
        last = max((sign * self.rank[w] for w in missing), default=0)
        while stack and missing and len(seen) <= MAX_VISITED:
            for w in ways[stack.pop()]:
                if w not in seen and sign * self.rank[w] <= last:
                    seen.add(w)
                    missing.discard(w)
                    stack.append(w)
        return not missing

    def remove(self, v: int) -> set[int]:
        """Take `v` off; return the neighbours that it had."""
        neighbours = self.behind[v] | self.before[v]
        for w in neighbours:
            self.behind[w].discard(v)
            self.before[w].discard(v)
        return neighbours


def _lists(num_classes: int, senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(num_classes)]
    for a, b in zip(senders.tolist(), receivers.tolist(), strict=True):
        lists[a].append(b)
    return lists


def _incidence(contraction: Contraction, may_follow: NDArray[np.bool_]) -> tuple[list[set[int]], dict[int, set[int]]]:
    """Return the nets of each class that may follow, and the pins of these nets."""
    nets_of: list[set[int]] = [set() for _ in range(contraction.num_classes)]
    owner = np.repeat(np.arange(contraction.num_nets), np.diff(contraction.net_offsets))
    at = np.flatnonzero(may_follow[contraction.net_pins])
    for pin, net in zip(contraction.net_pins[at].tolist(), owner[at].tolist(), strict=True):
        nets_of[pin].add(net)
    return nets_of, {net: set(contraction.pins_of(net).tolist()) for net in np.unique(owner[at]).tolist()}


def _roots(follows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each chain of followers ends, by pointer doubling."""
    while True:
        further = follows[follows]
        if np.array_equal(further, follows):
            return follows
        follows = further

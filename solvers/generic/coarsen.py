"""Contraction: one node per set of ops that must share a device, or may without loss; exactly reversible.

Methods work on the contracted problem (flat arrays without names), and expand their answer at the end. A contracted
placement costs the same as the expanded one, op for op and tensor for tensor. The judge scores the expanded one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, components, distinct, number_by_first, sum_by, topological_order
from placekit.model.contiguity import Contiguity
from placekit.model.pins import pins_of_classes
from placekit.model.problem import O_co, Problem

MAX_VISITED = 2_000
"""Classes that are visited to tell whether one neighbour leads to all others; beyond it a leaf stays on its own."""


@dataclass(frozen=True, eq=False)
class Contraction(Generic[O_co]):
    """A problem with one node per class of ops that share a device."""

    problem: Problem[O_co]  # the original problem
    class_of_op: NDArray[np.int64]  # ``[num_ops]`` class of every op
    # ``[num_classes]`` an op of each class; the whole class may be on its device without loss
    leader: NDArray[np.int64]
    time_s: NDArray[np.float64]  # ``[num_classes, num_kinds, 2]`` seconds of the class's forward and backward ops
    memory_bytes: NDArray[np.float64]  # ``[num_classes]`` bytes
    # ``[num_classes, num_devices]`` True where every op of the class is supported and no pin forbids it
    allowed: NDArray[np.bool_]
    # net_offsets, net_pins: CSR lists of the classes that each net touches, the producer's first. Tensors inside one
    # class are no nets, and tensors with the same producer and the same set of classes are one net.
    net_offsets: NDArray[np.int64]
    net_pins: NDArray[np.int64]
    # ``[num_nets, num_kinds, 2]`` seconds of a device for the net's forward and backward tensors if the net also
    # touches another device
    net_time_s: NDArray[np.float64]
    # ``[num_tensors]`` net of each tensor; -1 for one inside a class, and for one that costs no kind any time
    net_of_tensor: NDArray[np.int64]
    # senders, receivers: distinct edges of the order graph between different classes
    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.memory_bytes)

    @property
    def num_nets(self) -> int:
        """Number of nets."""
        return len(self.net_time_s)

    def pins_of(self, net: int) -> NDArray[np.int64]:
        """Return the classes that `net` touches, the producer's first."""
        return self.net_pins[self.net_offsets[net] : self.net_offsets[net + 1]]

    @cached_property
    def interchangeable(self) -> tuple[tuple[int, ...], ...]:
        """Devices in groups of equals: same kind, and node with direct links, and the same classes allowed."""
        groups: dict[tuple[int, bytes], list[int]] = {}
        for device, kind in enumerate(self.problem.platform.group_of_device.tolist()):
            groups.setdefault((kind, self.allowed[:, device].tobytes()), []).append(device)
        return tuple(tuple(group) for group in groups.values())

    @cached_property
    def supported(self) -> NDArray[np.bool_]:
        """``[num_classes, num_devices]`` True where every op of the class is supported, whatever the pins say."""
        able = all_by(self.class_of_op, self.problem.costs.supported, self.num_classes)
        return able[:, self.problem.platform.kind_of_device]

    @cached_property
    def pins(self) -> NDArray[np.bool_]:
        """``[num_classes, num_devices]`` True where an op of the class is pinned to the device."""
        return pins_of_classes(
            self.class_of_op, self.problem.pinned, self.num_classes, self.problem.platform.num_devices
        )

    def expand(self, device_of_class: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[num_ops]`` devices from ``[num_classes]`` devices."""
        return device_of_class[self.class_of_op]

    def restrict(self, device_of_op: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[num_classes]`` devices of the leaders from ``[num_ops]`` devices.

        Expanded again, a feasible placement stays feasible and does not get worse.
        """
        return device_of_op[self.leader]


def contract(problem: Problem[O_co]) -> Contraction[O_co]:
    """Contract the ops of `problem` that must share a device, or may without loss.

    Ops that must share a device are the classes of `Problem.op_class`, and under `Contiguity.ACYCLIC` the strongly
    connected components of the order graph between classes, which no acyclic placement can separate. Ops that may share
    a device without loss are free leaves (`merge_free_leaves`), if the objective allows that. O(ops + edges log edges).
    """
    class_of_op = problem.op_class
    if problem.contiguity is Contiguity.ACYCLIC:
        class_of_op = _fuse_cycles(problem, class_of_op)
    contraction = _contract(problem, class_of_op, np.unique(class_of_op, return_index=True)[1])
    if not problem.objective.merges_free_leaves or problem.has_tight_blocks or problem.has_direct_links:
        return contraction  # a leaf that moves may lengthen the lives of tensors, or the way of one over slower links
    return join_classes(contraction, merge_free_leaves(contraction))


def join_classes(contraction: Contraction, follows: NDArray[np.int64]) -> Contraction:
    """Contract further: join each class to the class that it follows, a root of `follows`."""
    if np.array_equal(follows, np.arange(contraction.num_classes)):
        return contraction
    class_of_op = number_by_first(follows[contraction.class_of_op])
    leader = np.empty(int(class_of_op.max()) + 1, dtype=np.int64)
    roots = np.unique(follows)
    leader[class_of_op[contraction.leader[roots]]] = contraction.leader[roots]
    return _contract(contraction.problem, class_of_op, leader)


def _contract(problem: Problem[O_co], class_of_op: NDArray[np.int64], leader: NDArray[np.int64]) -> Contraction[O_co]:
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    num_classes, num_kinds = len(leader), len(platform.kinds)

    time_s = np.zeros((num_classes, num_kinds, 2))
    for one_pass, of_pass in enumerate((~graph.is_backward, graph.is_backward)):
        np.add.at(time_s[:, :, one_pass], class_of_op[of_pass], costs.op_time_s[of_pass])
    allowed = all_by(class_of_op, costs.supported, num_classes)[:, platform.kind_of_device]
    for op in np.flatnonzero(problem.pinned >= 0):
        allowed[class_of_op[op], np.arange(platform.num_devices) != problem.pinned[op]] = False

    offsets, pins, net_time_s, net_of_tensor = _nets(problem, class_of_op)
    senders, receivers = class_of_op[problem.order_edges[0]], class_of_op[problem.order_edges[1]]
    keys = distinct(senders[senders != receivers] * num_classes + receivers[senders != receivers])
    senders, receivers = np.divmod(keys, num_classes)
    return Contraction(
        problem=problem,
        class_of_op=class_of_op,
        leader=leader,
        time_s=time_s,
        memory_bytes=sum_by(class_of_op, costs.op_memory_bytes, num_classes),
        allowed=allowed,
        net_offsets=offsets,
        net_pins=pins,
        net_time_s=net_time_s,
        net_of_tensor=net_of_tensor,
        senders=senders,
        receivers=receivers,
    )


def _fuse_cycles(problem: Problem, class_of_op: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join classes on a common cycle of the order graph (Tarjan's algorithm, linear)."""
    senders, receivers = (class_of_op[ends] for ends in problem.order_edges)
    num_classes = int(class_of_op.max()) + 1
    if not topological_order(num_classes, senders, receivers)[1].size:
        return class_of_op

    return number_by_first(components(num_classes, senders, receivers, is_strong=True)[class_of_op])


def _nets(
    problem: Problem, class_of_op: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return offsets, pins and times of the nets, and the net of every tensor."""
    graph, num_kinds = problem.graph, len(problem.platform.kinds)
    weights = problem.costs.transfer_time_s
    backward = graph.is_backward[graph.tensor_producer].astype(np.int64)
    num_classes = int(class_of_op.max()) + 1
    source = class_of_op[graph.tensor_producer]
    tensor, reader = graph.consumed_tensor, class_of_op[graph.consumers]
    crossing = (reader != source[tensor]) & (weights.max(axis=1) > 0)[tensor]
    keys = np.sort(tensor[crossing] * num_classes + reader[crossing])  # several times faster than np.unique
    tensor, reader = np.divmod(keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]], num_classes)
    moved, starts = np.unique(tensor, return_index=True)
    pins = np.insert(reader, starts, source[moved])
    ends = np.append(starts[1:], len(reader)) + np.arange(1, len(moved) + 1)
    # tensors with the same pins are one net; the bytes of a list are a quick exact key
    held, width = pins.tobytes(), pins.itemsize
    index: dict[bytes, int] = {}
    net = np.zeros(len(moved), dtype=np.int64)
    start = 0
    for at, end in enumerate((ends * width).tolist()):
        net[at] = index.setdefault(held[start:end], len(index))
        start = end
    total = np.zeros((len(index), num_kinds, 2))
    np.add.at(total.transpose(0, 2, 1), (net, backward[moved]), weights[moved])
    net_of_tensor = np.full(graph.num_tensors, -1)
    net_of_tensor[moved] = net
    sizes = [len(key) // width for key in index]
    return (
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array(np.frombuffer(b"".join(index), dtype=np.int64)),  # a copy: the buffer is read-only
        total,
        net_of_tensor,
    )


def merge_free_leaves(contraction: Contraction) -> NDArray[np.int64]:
    r"""Return the class that each class follows ``[num_classes]``: itself, or a class that it may join without loss.

    A class :math:`v` may follow :math:`u` if

    1. it is free: no time on any kind, and no memory unless no device has a limit;
    2. it is allowed on every device on which :math:`u` is;
    3. every net that touches :math:`v` touches :math:`u`;
    4. under a contiguity, it is a leaf of the order graph: it has no predecessors, and :math:`u` is a successor that
       precedes all its other direct successors; or the same with the order reversed.

    Claim: the optimum of `throughput` is unchanged. Take a feasible placement and move :math:`v` to the device of
    :math:`u`.

    - Compute and memory stay the same (1), and the placement remains supported (2).
    - The set of devices that a net touches can only shrink (3), and so can the loads.
    - The quotient of the order graph loses the edges of :math:`v`. The edges that it gains follow paths from :math:`u`
      that were there before, and a leaf lies inside no path. So acyclic stays acyclic and convex stays convex (4).

    Without this step every such leaf doubles the number of ideals. Tarnawski et al. 2020 also merge leaves with one
    neighbour; conditions 1 and 2 are ours, as are constants that many ops of a chain read.

    Notes
    -----
    Leaves are removed one after another, so that trees of free classes collapse. O(pins of the free classes' nets),
    since a class is visited again only after classes have joined it, and a walk of at most `MAX_VISITED` classes for a
    class with several neighbours.
    """
    is_limited = any(device.memory_bytes is not None for device in contraction.problem.platform.devices)
    is_free: NDArray[np.bool_] = np.equal(contraction.time_s.max(axis=(1, 2)), 0)
    if is_limited:
        is_free &= contraction.memory_bytes == 0
    return merge_leaves(contraction, is_free)


def merge_leaves(
    contraction: Contraction,
    may_follow: NDArray[np.bool_],  # ``[num_classes]`` the classes that may join another one
) -> NDArray[np.int64]:
    """Return the class that each class follows ``[num_classes]``, by conditions 2 to 4 of `merge_free_leaves`."""
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
        # other neighbours of v may be leaves now
        for w in order.remove(v) | {u}:
            if may_follow[w] and w not in waiting:
                waiting.add(w)
                queue.append(w)
    return _roots(follows)


def _goes_along(contraction: Contraction, u: int, v: int) -> bool:
    if contraction.problem.objective.team_rule == "off":
        return bool((contraction.allowed[v] | ~contraction.allowed[u]).all())
    # every team that can run u can also run v, and has the devices that v is pinned to
    can_run = contraction.supported[v] | ~contraction.supported[u]
    return bool(can_run.all() and (contraction.pins[u] | ~contraction.pins[v]).all())


class _Order:
    """Neighbours in the order graph of the classes that may follow, while classes are removed."""

    def __init__(self, contraction: Contraction, may_follow: NDArray[np.bool_]) -> None:
        num_classes = contraction.num_classes
        ends = contraction.senders, contraction.receivers
        rank, stuck = np.full(num_classes, -1), topological_order(num_classes, *ends)
        rank[stuck[0]] = np.arange(len(stuck[0]))
        self.rank = rank.tolist()
        # successors and predecessors by class; a removed class was at an end of every path
        self.ways = (_lists(num_classes, *ends), _lists(num_classes, *ends[::-1]))
        self.behind: list[set[int]] = [set() for _ in range(num_classes)]
        self.before: list[set[int]] = [set() for _ in range(num_classes)]
        for v in np.flatnonzero(may_follow).tolist():
            self.behind[v], self.before[v] = set(self.ways[0][v]), set(self.ways[1][v])

    def is_joined(self, v: int) -> bool:
        """Return True if `v` has a neighbour left."""
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
        """Return True if all neighbours of the leaf `v` succeed `u`, or all precede `u`; False after a long search."""
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
        """Remove `v`; return the neighbours that it had."""
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
    """Return the end of each chain of followers, by pointer doubling."""
    while True:
        further = follows[follows]
        if np.array_equal(further, follows):
            return follows
        follows = further

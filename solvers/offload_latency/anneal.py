"""Simulated annealing of an offload placement, on flat arrays.

Shapes
------
``O`` ops, ``N`` nodes, ``T`` tensors, ``P`` places: first the *slots*, one for every call that may be made, device by
device in the order of their steps, then the hosts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.generic.excess import FREE, num_breaks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Places(NamedTuple):
    """Problem as arrays for the kernels."""

    # num_slots, calls_per_device: number of slots, ``calls_per_device`` for each accelerator
    num_slots: int
    calls_per_device: int
    node_of_op: Ints  # ``[O]``
    # node_offsets, node_ops: CSR lists of the ops of each node
    node_offsets: Ints
    node_ops: Ints
    time_s: Floats  # ``[O, P]`` seconds; any number where not allowed
    allowed: NDArray[np.bool_]  # ``[N, P]``
    num_bytes: Floats  # ``[N]`` bytes of each node
    limit_bytes: Floats  # ``[P]`` limit of the device of the slot or host; slots of one device share it
    device: Ints  # ``[P]`` device index
    # tensor_offsets, tensor_ops: CSR lists of the ops of each tensor, the producer first
    tensor_offsets: Ints
    tensor_ops: Ints
    move_s: Floats  # ``[T, P]`` seconds to move the tensor in or out; 0 on hosts
    # out_offsets, out_tensors: CSR lists of the tensors that each op produces
    out_offsets: Ints
    out_tensors: Ints
    # near_offsets, near_nodes: CSR lists of the nodes next to each node
    near_offsets: Ints
    near_nodes: Ints
    # behind_offsets, behind_nodes, before_offsets, before_nodes: CSR lists of the successors and predecessors of each
    # node
    behind_offsets: Ints
    behind_nodes: Ints
    before_offsets: Ints
    before_nodes: Ints
    host_place: Ints  # ``[N]`` place of the fastest host of each node, -1 for none
    contiguity: int  # contiguity of each device, a number of `placekit.solvers.generic.excess.CONTIGUITIES`
    # order_senders, order_receivers: edges between ops that matter to the contiguity, in topological order
    order_senders: Ints
    order_receivers: Ints


@njit(inner=True)
def latency(p: Places, place: Ints) -> tuple[float, int]:
    """Return the latency in seconds, and the number of calls and host ops that wait for each other in a circle.

    If there are any, the latency is that of the others. O(ops + edges + slots): a longest path over calls and host ops
    in an order in which they can start.
    """
    num_ops, num_slots = len(p.node_of_op), p.num_slots
    unit = np.empty(num_ops, dtype=np.int64)
    for op in range(num_ops):
        at = place[p.node_of_op[op]]
        unit[op] = at if at < num_slots else num_slots + op
    num_units = num_slots + num_ops
    lasts, start = np.zeros(num_units), np.zeros(num_units)
    waits = np.zeros(num_units, dtype=np.int64)
    members = np.zeros(num_slots + 1, dtype=np.int64)
    for op in range(num_ops):
        lasts[unit[op]] += p.time_s[op, place[p.node_of_op[op]]]
        if unit[op] < num_slots:
            members[unit[op] + 1] += 1
    for s in range(num_slots):
        members[s + 1] += members[s]
    ops_of_slot = np.empty(max(members[num_slots], 1), dtype=np.int64)
    fill = members.copy()
    for op in range(num_ops):
        if unit[op] < num_slots:
            ops_of_slot[fill[unit[op]]] = op
            fill[unit[op]] += 1
    seen = np.full(num_slots, -1, dtype=np.int64)
    for t in range(len(p.tensor_offsets) - 1):
        first, last = p.tensor_offsets[t], p.tensor_offsets[t + 1]
        source = unit[p.tensor_ops[first]]
        leaves = False
        for e in range(first + 1, last):
            target = unit[p.tensor_ops[e]]
            if target != source:
                leaves = True
                waits[target] += 1
                if target < num_slots and seen[target] != t:
                    seen[target] = t
                    lasts[target] += p.move_s[t, target]
        if leaves and source < num_slots:
            lasts[source] += p.move_s[t, source]
    for s in range(num_slots):
        if s % p.calls_per_device:
            waits[s] += 1
    queue = np.empty(num_units, dtype=np.int64)
    tail, number = 0, num_slots
    for op in range(num_ops):
        if unit[op] >= num_slots:
            number += 1
            if waits[unit[op]] == 0:
                queue[tail] = unit[op]
                tail += 1
    for s in range(num_slots):
        if waits[s] == 0:
            queue[tail] = s
            tail += 1
    longest = 0.0
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        end = start[u] + lasts[u]
        longest = max(longest, end)
        low, high = (members[u], members[u + 1]) if u < num_slots else (0, 1)
        for m in range(low, high):
            op = ops_of_slot[m] if u < num_slots else u - num_slots
            for o in range(p.out_offsets[op], p.out_offsets[op + 1]):
                t = p.out_tensors[o]
                for e in range(p.tensor_offsets[t] + 1, p.tensor_offsets[t + 1]):
                    v = unit[p.tensor_ops[e]]
                    if v != u:
                        start[v] = max(start[v], end)
                        waits[v] -= 1
                        if waits[v] == 0:
                            queue[tail] = v
                            tail += 1
        if u < num_slots and (u + 1) % p.calls_per_device:
            v = u + 1
            start[v] = max(start[v], end)
            waits[v] -= 1
            if waits[v] == 0:
                queue[tail] = v
                tail += 1
    return longest, number - head


@njit(inner=True)
def excess(p: Places, place: Ints) -> float:
    """Return the bytes above all limits, plus the bytes of all nodes for each break of the contiguity.

    O(nodes + places), and under a contiguity the devices times ops and edges.
    """
    num_devices = 0
    for at in range(len(p.device)):
        num_devices = max(num_devices, p.device[at] + 1)
    used = np.zeros(num_devices)
    for v in range(len(place)):
        used[p.device[place[v]]] += p.num_bytes[v]
    limit = np.full(len(used), np.inf)
    for at in range(len(p.device)):
        limit[p.device[at]] = p.limit_bytes[at]
    over = 0.0
    for d in range(len(used)):
        over += max(0.0, used[d] - limit[d])
    if p.contiguity != FREE:
        args = p.node_of_op, p.device[place], p.order_senders, p.order_receivers, num_devices
        over += num_breaks(p.contiguity, *args) * (1.0 + p.num_bytes.sum())
    return over


@njit
def burden(p: Places, place: Ints, most: float) -> tuple[float, float]:
    """Return the excess over the constraints (circular waits included), and the latency in seconds.

    A smaller excess is always better. If it exceeds `most`, the latency is not computed.
    """
    over = excess(p, place)
    if over > most:
        return over, np.inf
    seconds, waiting = latency(p, place)
    return over + waiting * (1.0 + p.num_bytes.sum()), seconds


@njit(inner=True)
def _put(p: Places, place: Ints, v: int, target: int, changed: Ints, old: Ints, count: int) -> int:
    """Move node v to `target` and log its place; return the new length of the log, -1 if not allowed."""
    if count < 0 or not p.allowed[v, target]:
        return -1
    changed[count], old[count] = v, place[v]
    place[v] = target
    return count + 1


@njit(inner=True)
def _spread(p: Places, place: Ints, v: int, target: int, forward: bool, most: int, changed: Ints, old: Ints) -> int:
    """Move v and up to `most` connected nodes of its place, forward or backward, to `target`."""
    home = place[v]
    count: int = _put(p, place, v, target, changed, old, 0)
    at = 0
    while 0 <= at < count < most:
        u = changed[at]
        at += 1
        offsets, nodes = (p.behind_offsets, p.behind_nodes) if forward else (p.before_offsets, p.before_nodes)
        for e in range(offsets[u], offsets[u + 1]):
            w = nodes[e]
            if place[w] == home and count < most:
                after = _put(p, place, w, target, changed, old, count)
                if after > 0:
                    count = after
    return count


@njit(inner=True)
def _below(count: int, rng: np.random.Generator) -> int:
    """Return a random index below `count`; Numba takes longer to compile `integers`."""
    return min(int(rng.random() * count), count - 1)


@njit(inner=True)
def _propose(p: Places, place: Ints, changed: Ints, old: Ints, rng: np.random.Generator) -> int:
    """Change `place` at random; return the number of changed nodes, -1 if the proposal is to be undone."""
    num_nodes, num_places = len(place), len(p.device)
    v = _below(num_nodes, rng)
    target = _below(num_places, rng)
    near = p.near_offsets[v + 1] - p.near_offsets[v]
    draw = rng.random()
    if near and draw < 0.8:
        w = p.near_nodes[p.near_offsets[v] + _below(near, rng)]
        target = place[w]
    if target == place[v]:
        if p.host_place[v] < 0 or target == p.host_place[v]:
            return 0
        target = p.host_place[v]
    kind = rng.random()
    moved: int
    if kind < 0.5:
        moved = _put(p, place, v, target, changed, old, 0)
        return moved
    if kind < 0.9:
        size = 2 << _below(8, rng)
        moved = _spread(p, place, v, target, rng.random() < 0.5, min(size, num_nodes), changed, old)
        return moved
    # move a whole call to another place, or exchange two calls
    home, count = place[v], 0
    swap = rng.random() < 0.3 and target < p.num_slots and home < p.num_slots
    for u in range(num_nodes):
        if place[u] == home and home < p.num_slots:
            after = _put(p, place, u, target, changed, old, count)
            count = after if after > 0 else count
        elif swap and place[u] == target:
            after = _put(p, place, u, home, changed, old, count)
            count = after if after > 0 else count
    return count


@njit
def anneal(
    p: Places,
    place: Ints,  # ``[N]`` start. It is changed.
    steps: int,  # number of proposals
    # hot, cold: first and last temperature, as a share of the latency of the start
    hot: float,
    cold: float,
    rng: np.random.Generator,  # source of the random draws
) -> tuple[Ints, float, float]:
    """Anneal from `place`; return the best places, and their `burden`.

    O(steps * (ops + edges)), and as `excess` under a contiguity.
    """
    num_nodes = len(place)
    changed, old = np.empty(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    over, value = burden(p, place, np.inf)
    best, best_over, best_value = place.copy(), over, value
    new_over, new_value = over, value
    scale = value
    for step in range(steps):
        temperature = scale * hot * (cold / hot) ** (step / steps)
        count = _propose(p, place, changed, old, rng)
        if count != 0:
            keep = False
            if count > 0:
                new_over, new_value = burden(p, place, over)
                if new_over < over:
                    keep = True
                elif new_over == over:
                    worse = new_value - value
                    keep = worse <= 0 or rng.random() < math.exp(-worse / max(temperature, 1e-300))
            if keep:
                over, value = new_over, new_value
                if over < best_over or (over == best_over and value < best_value):
                    best_over, best_value = over, value
                    for v in range(num_nodes):
                        best[v] = place[v]
            else:
                for i in range(abs(count) if count > 0 else 0):
                    place[changed[i]] = old[i]
    return best, best_over, best_value

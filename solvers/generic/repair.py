"""Repairs of a partition that ignores device support, memory and contiguity, with as few moves as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.generic.class_order import class_order, total_time_s
from placekit.solvers.generic.coarsen import Contraction


def move_to_allowed(contraction: Contraction, device: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move every class from a forbidden device to the least loaded device that is allowed.

    A class without any device stays where it is: the problem is infeasible.
    """
    device = device.copy()
    time = total_time_s(contraction)[:, contraction.problem.platform.kind_of_device]
    classes = np.arange(len(device))
    load = np.bincount(device, weights=time[classes, device], minlength=time.shape[1])
    for c in np.flatnonzero(~contraction.allowed[classes, device]).tolist():
        can = np.flatnonzero(contraction.allowed[c])
        if can.size:
            load[device[c]] -= time[c, device[c]]
            device[c] = can[np.argmin(load[can] + time[c, can])]
            load[device[c]] += time[c, device[c]]
    return device


def relieve_memory(contraction: Contraction, device: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move classes off overfull devices, largest first, to the least loaded device with room.

    Only moves that fit are made. Other classes stay, and the judge names the broken limit.
    """
    device = device.copy()
    platform, size = contraction.problem.platform, contraction.memory_bytes
    time = total_time_s(contraction)[:, platform.kind_of_device]
    limit = platform.memory_limits_bytes
    used = np.bincount(device, weights=size, minlength=len(limit))
    load = np.bincount(device, weights=time[np.arange(len(device)), device], minlength=len(limit))
    for d in np.flatnonzero(used > limit).tolist():
        inside = np.flatnonzero((device == d) & (size > 0))
        for c in inside[np.argsort(-size[inside], kind="stable")].tolist():
            if used[d] <= limit[d]:
                break
            can = np.flatnonzero(contraction.allowed[c] & (used + size[c] <= limit))
            can = can[can != d]
            if can.size:
                to = int(can[np.argmin(load[can] + time[c, can])])
                used[d] -= size[c]
                used[to] += size[c]
                load[d] -= time[c, d]
                load[to] += time[c, to]
                device[c] = to
    return device


def make_acyclic(contraction: Contraction, device: NDArray[np.int64], *, forward: bool = True) -> NDArray[np.int64]:
    """Bring the devices into a chain, and move every class along it until no edge of the order graph goes back.

    The devices are ordered by the mean place of their classes in a topological order. Then every class, in that order,
    goes to the first device of the chain at or behind all its predecessors that may hold it (its own if possible);
    backwards it is the last device at or before all its successors. Edges then never go back, so the quotient has no
    cycle; a class that no device behind may hold stays where it was, and the judge names the cycle if there is one.
    """
    order = class_order(contraction)
    place = np.argsort(order)
    num_devices = contraction.problem.platform.num_devices
    count = np.maximum(np.bincount(device, minlength=num_devices), 1)
    chain = np.argsort(np.bincount(device, weights=place, minlength=num_devices) / count, kind="stable")
    if not forward:
        chain, order = chain[::-1], order[::-1]
    position = np.argsort(chain)
    neighbours: list[list[int]] = [[] for _ in range(len(order))]
    for u, v in zip(contraction.senders.tolist(), contraction.receivers.tolist(), strict=True):
        (neighbours[v] if forward else neighbours[u]).append(u if forward else v)
    at = position[device]
    for c in order.tolist():
        least = max((int(at[n]) for n in neighbours[c]), default=0)
        wanted = max(int(at[c]), least)
        can = [p for p in range(wanted, num_devices) if contraction.allowed[c, chain[p]]]
        can += [p for p in range(wanted - 1, least - 1, -1) if contraction.allowed[c, chain[p]]]
        at[c] = can[0] if can else at[c]
    moved: NDArray[np.int64] = chain[at]
    return moved

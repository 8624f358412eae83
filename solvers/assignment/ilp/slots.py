"""Chain of slots that contains every order of the devices of an acyclic placement.

In an acyclic placement the devices form a chain, but the order of their kinds is itself a choice. Instead of a
permutation, the ordered formulation uses a fixed chain of *slots*, each of one group of interchangeable devices, that
contains every order as a subsequence; slots may stay empty, and no more slots of a group are used than it has devices.
For n accelerators and one CPU that is ``C A C A ... A C``: 2 n + 1 slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order


def slot_chain(counts: Sequence[int]) -> list[int]:
    """Return a sequence of group indices that contains every order of the multiset with these `counts`.

    The shorter of two chains: the largest group, with the chain of the others in every gap; or one slot of every group
    in each of ``sum(counts)`` rounds.

    Examples
    --------
    >>> slot_chain([3, 1])
    [1, 0, 1, 0, 1, 0, 1]
    >>> slot_chain([2])
    [0, 0]
    """

    def recurse(groups: tuple[int, ...]) -> list[int]:
        if not groups:
            return []
        separator, *rest = groups
        if not rest:
            return [separator] * counts[separator]
        gap = recurse(tuple(rest))
        chain = list(gap)
        for _ in range(counts[separator]):
            chain += [separator, *gap]
        rounds = [*groups] * sum(counts[group] for group in groups)
        return min(chain, rounds, key=len)

    return recurse(tuple(sorted((g for g, n in enumerate(counts) if n), key=lambda g: -counts[g])))


def left_before(inside: NDArray[np.bool_], senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> list[bool]:
    """Tell for every op whether a path of order edges left a slot on its way to the op.

    `inside` ``[num_ops]`` says which ops are in the slot; the edges are sorted along a topological order.
    """
    is_in = inside.tolist()
    gone = [False] * len(is_in)
    for u, v in zip(senders.tolist(), receivers.tolist(), strict=True):
        gone[v] = gone[v] or gone[u] or (is_in[u] and not is_in[v])
    return gone


def embed(sequence: Sequence[int], chain: Sequence[int]) -> list[int]:
    """Return the slots, from the left, at which `sequence` is a subsequence of `chain`.

    Raises
    ------
    ValueError
        `sequence` is no subsequence.

    Examples
    --------
    >>> embed([0, 1], [1, 0, 1, 0, 1])
    [1, 2]
    """
    slots: list[int] = []
    at = 0
    for group in sequence:
        at = chain.index(group, at)
        slots.append(at)
        at += 1
    return slots


def in_opening_order(
    device: NDArray[np.int64], groups: Sequence[Sequence[int]], by_size: Sequence[int]
) -> NDArray[np.int64]:
    """``[C]`` devices, renamed within each group of equals to the order in which the classes `by_size` open them."""
    renamed = device.copy()
    for group in groups:
        members = [int(device[c]) for c in by_size if device[c] in group]
        for new, old in zip(group, dict.fromkeys(members), strict=False):
            renamed[device == old] = new
    return renamed


def slots_of_devices(
    device: NDArray[np.int64],
    groups: Sequence[Sequence[int]],
    chain: Sequence[int],
    senders: NDArray[np.int64],
    receivers: NDArray[np.int64],
) -> tuple[NDArray[np.int64], list[int]] | None:
    """``[C]`` slots of `chain` as far left as they fit, and those in use; None if an edge closes a cycle of devices."""
    source, target = device[senders], device[receivers]
    crossing = source != target
    order, stuck = topological_order(sum(map(len, groups)), source[crossing], target[crossing])
    if stuck.size:
        return None
    group_of_device = {d: g for g, group in enumerate(groups) for d in group}
    devices = [d for d in order.tolist() if (device == d).any()]
    slots = embed([group_of_device[d] for d in devices], chain)
    slot = np.zeros(len(device), dtype=np.int64)
    for d, s in zip(devices, slots, strict=True):
        slot[device == d] = s
    return slot, slots


def devices_of_slots(
    slot: NDArray[np.int64], groups: Sequence[Sequence[int]], chain: Sequence[int]
) -> NDArray[np.int64]:
    """``[C]`` devices: non-empty slots of a group take its devices in order."""
    free = [list(group) for group in groups]
    device = np.zeros(len(slot), dtype=np.int64)
    for s in np.unique(slot).tolist():
        device[slot == s] = free[chain[s]].pop(0)
    return device

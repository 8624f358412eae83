"""Chain of slots that contains every order of the devices of an acyclic placement.

In an acyclic placement the devices form a chain, but the order of their kinds is itself a choice. Instead of a
permutation, the ordered formulation uses a fixed chain of *slots*, each of one group of interchangeable devices, that
contains every order as a subsequence; slots may stay empty, and no more slots of a group are used than it has devices.
For n accelerators and one CPU that is ``C A C A ... A C``: 2 n + 1 slots.
"""

from __future__ import annotations

from collections.abc import Sequence


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

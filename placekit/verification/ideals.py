r"""Throughput of acyclic pipelines, by a plain dynamic program over ideals: the proof of method ``dp``, done again.

Devices whose graph is acyclic can be put in a row, so that the first :math:`i` of them hold a set of groups that is
closed under predecessors: an *ideal*. So there is a placement with every load below a value iff the full set can be
reached from the empty one by adding differences of ideals that a device can bear, no device twice. This is for small
problems, with few ideals, and for one load per device (not GPipe with backward ops).
"""

from __future__ import annotations

from fractions import Fraction

from placekit.objectives import Throughput
from placekit.verification.exact import ExactProblem, fits

__all__ = ["MAX_IDEALS", "MAX_LOADS", "reaches_below"]

MAX_IDEALS = 3000
"""Ideals at most."""
MAX_LOADS = 200_000
"""Loads of differences that are worked out, at most: some seconds."""


def reaches_below(exact: ExactProblem, below: Fraction) -> bool | None:
    """Return whether some placement has every load below `below` seconds; None if this is not the way to know.

    Parameters
    ----------
    exact
        A problem.
    below
        Seconds.
    """
    variant = exact.problem.objective
    if not isinstance(variant, Throughput) or exact.problem.contiguity != "acyclic":
        return None
    if variant.schedule == "gpipe" and any(exact.is_backward):
        return None
    if any(not devices for devices in exact.allowed):
        return False
    needs = [0] * len(exact.groups)  # predecessors, as bits
    for u, v in exact.order_edges:
        if exact.group_of[u] != exact.group_of[v]:
            needs[exact.group_of[v]] |= 1 << exact.group_of[u]
    ideals = _ideals(needs)
    if ideals is None:
        return None
    loads = _Loads(exact, below / exact.tick)
    rows: dict[int, list[int]] = {}
    for d, row in enumerate(exact.alike):
        rows.setdefault(row, []).append(d)
    counts = tuple(len(devices) for devices in rows.values())
    first = [devices[0] for devices in rows.values()]
    # numbers of devices used, per set of devices alike, with which each ideal can be reached
    reached: dict[int, set[tuple[int, ...]]] = {0: {(0,) * len(counts)}}
    full = (1 << len(needs)) - 1
    for at, ideal in enumerate(ideals):
        ways = _least(reached.pop(ideal, set()))
        if not ways:
            continue
        if ideal == full:
            return True
        for larger in ideals[at + 1 :]:
            if ideal & ~larger:
                continue
            for row, d in enumerate(first):
                if all(way[row] >= counts[row] for way in ways):
                    continue
                if loads.num_left <= 0:
                    return None
                if loads.bears(larger & ~ideal, d):
                    more = {(*way[:row], way[row] + 1, *way[row + 1 :]) for way in ways if way[row] < counts[row]}
                    reached.setdefault(larger, set()).update(more)
    return False


def _least(ways: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the ways that no other is as good as in everything."""
    return [
        way
        for way in ways
        if not any(other != way and all(a <= b for a, b in zip(other, way, strict=True)) for other in ways)
    ]


def _ideals(needs: list[int]) -> list[int] | None:
    """Return all ideals by rising size, as bits; None if they are too many."""
    found, layer = [0], {0}
    for _ in needs:
        layer = {
            ideal | 1 << group
            for ideal in layer
            for group, before in enumerate(needs)
            if not ideal >> group & 1 and not before & ~ideal
        }
        found += layer
        if len(found) > MAX_IDEALS:
            return None
    return found


class _Loads:
    """Which sets of groups a device can bear: within its memory, with a load below the value."""

    def __init__(self, exact: ExactProblem, most: Fraction) -> None:
        self.exact, self.most, self.num_left = exact, most, MAX_LOADS
        self.known: dict[tuple[int, int], bool] = {}
        self.memory = [sum(exact.memory[op] for op in ops) for ops in exact.groups]
        self.able = [
            sum(1 << g for g, devices in enumerate(exact.allowed) if d in devices) for d in range(len(exact.kind))
        ]
        self.nets = []
        for t, producer in enumerate(exact.producer):
            self.nets.append(sum({1 << exact.group_of[op] for op in (producer, *exact.readers[t])}))
        self.nets_of: list[list[int]] = [[] for _ in exact.groups]
        for t, pins in enumerate(self.nets):
            for g in _bits(pins):
                self.nets_of[g].append(t)

    def bears(self, groups: int, d: int) -> bool:
        """Return whether device `d` can hold exactly `groups`."""
        key = (groups, self.exact.alike[d])
        if key not in self.known:
            self.num_left -= 1
            self.known[key] = self._bears(groups, d)
        return self.known[key]

    def _bears(self, groups: int, d: int) -> bool:
        exact = self.exact
        if groups & ~self.able[d]:
            return False
        held = list(_bits(groups))
        if not fits(sum(self.memory[g] for g in held), exact.limit[d]):
            return False
        work = sum(exact.ticks(op, d) for g in held for op in exact.groups[g])
        if work >= self.most:
            return False
        split = {t for g in held for t in self.nets_of[g] if self.nets[t] & ~groups}
        moved = sum(exact.transfer[t][exact.kind[d]] for t in split)
        variant = exact.problem.objective
        assert isinstance(variant, Throughput)  # `reaches_below` looks first
        return (max(work, moved) if variant.overlap else work + moved) < self.most


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found

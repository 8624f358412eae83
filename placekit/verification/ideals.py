r"""Throughput of acyclic pipelines, by a plain dynamic program over ideals: the proof of method ``dp``, done again.

Devices whose graph is acyclic can be put in a row, so that the first :math:`i` of them hold a set of groups that is
closed under predecessors: an *ideal*. So there is a placement with every load below a value iff the full set can be
reached from the empty one by adding differences of ideals that a device can bear, no device twice. This is for one load
per device (not GPipe with backward ops), and for as many ideals as `IdealProgram` bears.

**Leaves.** A group that nothing precedes, or nothing follows, lies inside no path. Without it every placement of the
others stays acyclic, and no load and no memory grows. So if no placement without some leaves is below the value, none
at all is. Leaves that take no time are left out first: constants, which double the ideals each. If there are still too
many ideals, those that take little time are, too.

**Whole numbers.** Every time is divided by a unit and rounded, so small that the value is some 2**50 units and no sum
leaves 64 bits. Rounded down, loads are no larger than they are, so what cannot be reached then cannot be reached.
Rounded up, what can be reached can be. The same for bytes.

**Loads of a difference** of ideals I in J are differences of sums over J and over I. The nets that a difference splits
are those that cross the border of I or of J, without those that cross both and have no group between them; and those
that cross both are paid once. Only the few nets that cross the border of I have to be looked at for every J.

**Windows.** What is not in an ideal has to go to the devices that are left. On a device of row r, work below the value
is at most :math:`\rho_r` times the value if every group were on its fastest device, with :math:`\rho_r` the largest
ratio of the two times of a group. If more is left than that, the ideal is a dead end.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from placekit.objectives import Throughput
from placekit.verification.exact import ExactProblem

LIGHT = Fraction(1, 100)
"""Share of the value that the time of a light leaf has at most."""
MAX_IDEALS = 60_000
"""Ideals at most."""
MAX_PAIRS = 600_000_000
"""Pairs of ideals, times the 64-bit words of one, that are compared at most: some seconds."""
MAX_ENTRIES = 60_000_000
"""Entries of the largest array, ideals times groups or nets."""
MAX_STATES = 1_000
"""Ways to use the devices of all rows but the largest."""
NEVER = np.iinfo(np.int32).max
"""More devices than there are."""


def reaches_below(exact: ExactProblem, below: Fraction) -> bool | None:
    """Return whether some placement has every load below `below` seconds; None if this is not the way to know."""
    variant = exact.problem.objective
    if not isinstance(variant, Throughput) or exact.problem.contiguity != "acyclic":
        return None
    if (variant.schedule == "gpipe" and any(exact.is_backward)) or exact.team_rule != "off":
        return None
    if below <= 0 or any(not devices for devices in exact.allowed):
        return False
    before: list[set[int]] = [set() for _ in exact.groups]
    for u, v in exact.order_edges:
        if exact.group_of[u] != exact.group_of[v]:
            before[exact.group_of[v]].add(exact.group_of[u])
    most = below / exact.tick
    for longest in (Fraction(0), LIGHT * most):
        kept = _without_leaves(exact, before, longest)
        reaches = IdealProgram(exact, before, kept, most, rounds_up=False).reaches()
        if reaches is False:
            return False
        if reaches is not None:
            break
    if exact.problem.costs.blocks is not None or exact.pools:
        return None  # what shares memory, and what shares it, were left out: a relaxation, in which more fits
    # what fits after rounding down need not fit: only what fits after rounding up is sure to
    everything = list(range(len(exact.groups)))
    return True if IdealProgram(exact, before, everything, most, rounds_up=True).reaches() else None


def _without_leaves(exact: ExactProblem, before: list[set[int]], longest: Fraction) -> list[int]:
    """Return the groups that are left if leaves of at most `longest` ticks are taken off, one after the other."""
    most = [
        max(sum(exact.ticks(op, d) for op in ops) for d in devices)
        for ops, devices in zip(exact.groups, exact.allowed, strict=True)
    ]
    behind: list[set[int]] = [set() for _ in before]
    for v, sources in enumerate(before):
        for u in sources:
            behind[u].add(v)
    before = [set(sources) for sources in before]
    kept = set(range(len(before)))
    queue = sorted(kept)
    for v in queue:
        if v not in kept or most[v] > longest or (before[v] and behind[v]) or len(kept) == 1:
            continue
        kept.remove(v)
        for u in before[v]:
            behind[u].discard(v)
            queue.append(u)
        for w in behind[v]:
            before[w].discard(v)
            queue.append(w)
    return sorted(kept)


class IdealProgram:
    """Search for a chain of ideals to the full set with every load below a value, `most` ticks.

    The problem `exact` is one of throughput with one load per device. Groups in `before` precede each group directly.
    Groups in `kept` are placed; the others are left out, with their ends of nets. Loads and bytes are rounded up if
    `rounds_up`, else down.
    """

    def __init__(
        self, exact: ExactProblem, before: list[set[int]], kept: list[int], most: Fraction, *, rounds_up: bool
    ) -> None:
        self.exact, self.kept, self.rounds_up = exact, kept, rounds_up
        place = {g: i for i, g in enumerate(kept)}
        self.needs = [sum(1 << place[u] for u in before[g] if u in place) for g in kept]
        rows: dict[tuple[int, int | None], list[int]] = {}
        for d, alike in enumerate(exact.alike):
            rows.setdefault((alike, exact.limit[d]), []).append(d)
        self.devices = sorted(rows.values(), key=len, reverse=True)
        nets: dict[tuple[int, ...], list[int]] = {}
        for t, producer in enumerate(exact.producer):
            pins = sorted({place[g] for op in (producer, *exact.readers[t]) if (g := exact.group_of[op]) in place})
            if len(pins) > 1:
                nets.setdefault(tuple(pins), []).append(t)
        self.pins = list(nets)
        terms = len(kept) + 2 * len(nets) + 1
        self.limit = 1 << (62 - terms.bit_length())
        first = [devices[0] for devices in self.devices]
        self.work = [[self._units(self._ticks(g, d), most) for g in kept] for d in first]
        self.cost = [
            [self._units(sum(exact.transfer[t][exact.kind[d]] for t in tensors), most) for tensors in nets.values()]
            for d in first
        ]
        self._set_memory()

    def _ticks(self, group: int, d: int) -> int | None:
        """Return the ticks of a group on a device; None if it may not be there."""
        if d not in self.exact.allowed[group]:
            return None
        return sum(self.exact.ticks(op, d) for op in self.exact.groups[group])

    def _units(self, ticks: int | None, most: Fraction) -> int:
        """Return ticks in units, rounded; the value, which no load may reach, for more than that and for None."""
        if ticks is None:
            return self.limit
        top, bottom = ticks * self.limit * most.denominator, most.numerator
        return min(-(-top // bottom) if self.rounds_up else top // bottom, self.limit)

    def _set_memory(self) -> None:
        """Set bytes, and the limit of each row, in units of which all bytes together have some 2**50."""
        exact = self.exact
        size = [sum(exact.memory[op] for op in exact.groups[g]) for g in self.kept]
        shift = max(sum(size).bit_length() - 50, 0)
        self.memory = [-(-each >> shift) if self.rounds_up else each >> shift for each in size]
        most = sum(self.memory)
        self.memory_limit = []
        for devices in self.devices:
            limit = exact.limit[devices[0]]
            units = most if limit is None else (limit * (10**12 + 1) // 10**12) >> shift
            self.memory_limit.append(min(units, most))

    def reaches(self) -> bool | None:
        """Return whether there is such a chain; None if there are too many ideals."""
        num_groups = len(self.kept)
        bits = self._ideals()
        if bits is None or len(bits) * max(num_groups, len(self.pins)) > MAX_ENTRIES:
            return None
        holds = _unpacked(bits, num_groups)
        least = np.array(self.work, dtype=np.int64).min(axis=0)
        size, done = holds.sum(axis=1), holds @ least
        order = np.lexsort((size, done))
        self.bits, holds, self.done = bits[order], holds[order], done[order]
        sums = np.array([*self.work, self.memory], dtype=np.int64)
        *self.work_of, self.memory_of = (holds @ row for row in sums)
        incidence = np.zeros((num_groups, len(self.pins)), dtype=np.float32)
        for n, pins in enumerate(self.pins):
            incidence[list(pins), n] = 1
        self.held = (holds.astype(np.float32) @ incidence).astype(np.int32)  # pins of every net in every ideal
        self.num_pins = np.array([len(pins) for pins in self.pins], dtype=np.int32)
        crosses = (self.held > 0) & (self.held < self.num_pins)
        self.costs = np.array(self.cost, dtype=np.int64).reshape(len(self.devices), len(self.pins))
        self.cut_of = [crosses @ row for row in self.costs]
        return self._search(crosses, least)

    def _ideals(self) -> NDArray[np.uint64] | None:
        """Return all ideals as rows of words of bits; None if they are too many.

        The ideals whose last group in a topological order is g are those of the groups before g that hold all that g
        needs, each with g.
        """
        num_words = -(-len(self.kept) // 64)
        found = np.zeros((1, num_words), dtype=np.uint64)
        for g in _topological(self.needs):
            need, own = (_words(mask, num_words) for mask in (self.needs[g], 1 << g))
            found = np.concatenate([found, found[((found & need) == need).all(axis=1)] | own])
            if len(found) > MAX_IDEALS:
                return None
        return found

    def _search(self, crosses: NDArray[np.bool_], least: NDArray[np.int64]) -> bool | None:
        """Go through the ideals by rising work; for each use of the smaller rows keep the fewest of the largest."""
        counts = [len(devices) for devices in self.devices]
        steps = np.cumprod([1, *(count + 1 for count in counts[1:])]).tolist()
        if steps[-1] > MAX_STATES:
            return None
        # devices of each smaller row that a state has used
        used = [np.arange(steps[-1]) // step % (n + 1) for step, n in zip(steps, counts[1:], strict=False)]
        ratio = [self._ratio(row, least) for row in range(len(counts))]
        spare = np.zeros(steps[-1])
        for row, count in enumerate(counts[1:], start=1):
            spare += (count - used[row - 1]) * ratio[row]
        fewest = np.full((len(self.bits), steps[-1]), NEVER, dtype=np.int32)
        fewest[0, 0] = 0
        pairs = 0
        for at in range(len(self.bits) - 1):
            capacity = (counts[0] - fewest[at].astype(np.float64)) * ratio[0] + spare
            is_open = (fewest[at] < NEVER) & (capacity * self.limit * (1 + 1e-9) > self.done[-1] - self.done[at])
            if not is_open.any():
                continue
            until = int(np.searchsorted(self.done, self.done[at] + self.limit))
            pairs += (until - at) * self.bits.shape[1]
            if pairs > MAX_PAIRS:
                return None
            larger = at + 1 + np.flatnonzero(((self.bits[at + 1 : until] & self.bits[at]) == self.bits[at]).all(axis=1))
            crossing = np.flatnonzero(crosses[at])
            for row, count in enumerate(counts):
                way = is_open & (fewest[at] < count if row == 0 else used[row - 1] < count)
                if not way.any():
                    continue
                borne = larger[self._bears(at, larger, crossing, row)]
                if row == 0:
                    fewest[borne] = np.minimum(fewest[borne], np.where(way, fewest[at] + 1, NEVER))
                    continue
                for state in np.flatnonzero(way).tolist():
                    after = state + steps[row - 1]
                    fewest[borne, after] = np.minimum(fewest[borne, after], fewest[at, state])
        return bool((fewest[-1] < NEVER).any())

    def _ratio(self, row: int, least: NDArray[np.int64]) -> float:
        work = np.array(self.work[row], dtype=np.float64)
        able = (work > 0) & (work < self.limit)
        return float((least[able] / work[able]).max(initial=1e-12))

    def _bears(self, at: int, larger: NDArray[np.int64], crossing: NDArray[np.int64], row: int) -> NDArray[np.bool_]:
        """``[larger]`` whether a device of the row bears what each has more than the ideal `at`."""
        work = self.work_of[row][larger] - self.work_of[row][at]
        bears: NDArray[np.bool_] = (work < self.limit) & (
            self.memory_of[larger] - self.memory_of[at] <= self.memory_limit[row]
        )
        which = np.flatnonzero(bears)
        held = self.held[larger[which][:, None], crossing]
        both = held < self.num_pins[crossing]
        nothing_between = held == self.held[at, crossing]
        moved = self.cut_of[row][larger[which]] + self.cut_of[row][at]
        moved -= (both.astype(np.int64) + nothing_between) @ self.costs[row][crossing]
        variant = self.exact.problem.objective
        assert isinstance(variant, Throughput)  # the caller looks first
        load = np.maximum(work[which], moved) if variant.overlap else work[which] + moved
        bears[which] = load < self.limit
        return bears


def _topological(needs: list[int]) -> list[int]:
    """Return the groups so that each comes after those that it needs."""
    order: list[int] = []
    done, left = 0, list(range(len(needs)))
    while left:
        ready = [g for g in left if not needs[g] & ~done]
        order += ready
        done |= sum(1 << g for g in ready)
        left = [g for g in left if not done >> g & 1]
    return order


def _words(mask: int, num_words: int) -> NDArray[np.uint64]:
    return np.array([mask >> 64 * word & (1 << 64) - 1 for word in range(num_words)], dtype=np.uint64)


def _unpacked(bits: NDArray[np.uint64], num_groups: int) -> NDArray[np.bool_]:
    """``[ideals, groups]`` whether each ideal holds each group."""
    as_bytes = bits.astype("<u8").view(np.uint8).reshape(len(bits), -1)
    return np.unpackbits(as_bytes, axis=1, bitorder="little", count=num_groups).astype(bool)

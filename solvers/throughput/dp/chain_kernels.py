r"""Kernel of the dynamic program over ideals: the step to one more block, and the tests on a pair of ideals.

It is apart from :mod:`placekit.solvers.chain`, whose prefixes are a row: of ideals of any graph there are too many for
a table of all pairs, so that each pair is looked at once, within a limit, and its cut is counted by its nets.

The load of the block between the ideals J and I on one device is

    time(I) - time(J) + cut(I)
    - sum of w over nets cut by both with as many pins inside I as inside J   (they do not meet the block)
    + sum of w over nets cut by J and inside I                                (they meet J and the block)

The sums take O(cut(J)) once the nets that I cuts are marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.model.memory import BlockKind

ACTIVATION, WEIGHT = int(BlockKind.ACTIVATION), int(BlockKind.WEIGHT)


class Ends(NamedTuple):
    """Pairs of ideals that a block may lie between."""

    # upper, lower: indices of ideals by rising work
    upper: NDArray[np.int64]
    lower: NDArray[np.int64]
    most_work: float  # largest work of a block


class IdealRows(NamedTuple):
    """Ideals as the kernel reads them."""

    # work, memory, closed: ``[num_ideals]`` work, bytes, and number of classes that may not run on the crew
    work: NDArray[np.float64]
    memory: NDArray[np.float64]
    closed: NDArray[np.float64]
    bits: NDArray[np.uint64]  # ``[num_ideals, num_words]`` members
    shared: tuple[NDArray[np.float64], ...]  # `Instance.shared_memory`, see `shared_bytes`
    # cut_offsets, cut_nets, cut_counts: cut nets of each ideal, see :class:`.ideals.IdealSet`
    cut_offsets: NDArray[np.int64]
    cut_nets: NDArray[np.int32]
    cut_counts: NDArray[np.int32]


class CrewRows(NamedTuple):
    """Crew that runs a block: devices of one kind with a row per pass, or several kinds with a row per kind."""

    # times, cut_times: ``[num_rows, num_ideals]`` seconds of each ideal's classes, and of the nets that it cuts
    times: NDArray[np.float64]
    cut_times: NDArray[np.float64]
    net_times: NDArray[np.float64]  # ``[num_rows, num_nets]`` seconds of each net
    sizes: NDArray[np.float64]  # ``[num_kinds]`` devices of each kind
    overlap: bool  # True for the maximum of time and transfers instead of their sum


class Limits(NamedTuple):
    """Limits of a block."""

    memory_bytes: float  # most bytes
    first_s: float  # most seconds of the first of two passes (GPipe); the second is minimised
    # most_s, floor_s: only values below `most_s` are kept. No value at or below `floor_s` is improved.
    most_s: float
    floor_s: float


@njit
def extend_chains(ends, ideals, crew, limits, lower_value, value, parent):  # type: ignore[no-untyped-def]  # compiled
    """Append one block to the chains that end in the lower ideals, and keep the best chain to each upper one.

    The devices of a crew share the samples of a block: of one kind they divide its load, of several kinds their rates
    add up. The transfers are no less than the difference of the two cuts, which takes one look.

    Blocks of half the largest work come first: they are often good enough, and larger or smaller ones need not be
    looked at.

    Parameters
    ----------
    ends : Ends
        Pairs of ideals.
    ideals : IdealRows
        The ideals.
    crew : CrewRows
        Devices of the block.
    limits : Limits
        Limits of the block.
    lower_value : float64[num_ideals]
        Best value of a chain to each ideal with the devices of the crew less; infinity if none.
    value, parent : float64[num_ideals], int64[num_ideals]
        Best value so far, and the ideal before the last block; updated in place.

    Returns
    -------
    int
        Number of pairs that were looked at.
    """
    pins_inside = np.zeros(crew.net_times.shape[1], dtype=np.int32)  # of the nets that the upper ideal cuts
    return int(
        _extend(
            by_reference(ends), by_reference(ideals), by_reference(crew), by_reference(limits), pins_inside,
            lower_value, value, parent,
        )
    )  # fmt: skip


@njit(inner=True, allocates=False)
def _extend(
    ends: Any, ideals: Any, crew: Any, limits: Any, pins_inside: Any, lower_value: Any, value: Any, parent: Any
) -> Any:
    upper, lower, work, last = ends.upper, ends.lower, ideals.work, len(crew.times) - 1
    size = np.inf if len(crew.sizes) > 1 else crew.sizes[0]
    is_limited = len(ideals.shared[3]) > 0 and limits.memory_bytes < np.inf
    looked, start, middle, stop = 0, 0, 0, 0
    for a in range(len(upper)):
        i = upper[a]
        while start < len(lower) and work[lower[start]] < work[i] - ends.most_work:
            start += 1
        while middle < len(lower) and work[lower[middle]] < work[i] - ends.most_work / 2:
            middle += 1
        while stop < len(lower) and work[lower[stop]] <= work[i]:
            stop += 1
        best = min(limits.most_s, value[i])
        most = best * size
        found = -1
        mark_cut(ideals, i, pins_inside, True)
        for b in range(start, stop):
            if best <= limits.floor_s:
                break
            # from the middle to the end, then from there to the start
            j = lower[b + middle - start] if b + middle - start < stop else lower[start + stop - 1 - b]
            looked += 1
            least = crew.times[last, i] - crew.times[last, j]
            if not crew.overlap:
                least += abs(crew.cut_times[last, i] - crew.cut_times[last, j])
            if lower_value[j] >= best or least >= most or not is_block(ideals, j, i, limits.memory_bytes):
                continue
            candidate = max(_load_between(ideals, crew, limits, j, i, pins_inside), lower_value[j])
            if candidate < best and is_limited:
                need = ideals.memory[i] - ideals.memory[j] + shared_bytes(ideals.bits, i, j, ideals.shared)
                if need > limits.memory_bytes:
                    continue
            if candidate < best:
                best = candidate
                most = best * size
                found = j
        mark_cut(ideals, i, pins_inside, False)
        if found >= 0:
            value[i] = best
            parent[i] = found
    return looked


@njit(inline=True, allocates=False)
def _load_between(
    ideals: IdealRows, crew: CrewRows, limits: Limits, j: int, i: int, pins_inside: NDArray[np.int32]
) -> float:
    """Return the load of the block between two ideals in the last pass; infinity if the first takes too long."""
    num_rows, is_mixed = len(crew.times), len(crew.sizes) > 1
    load, rate = 0.0, 0.0
    for p in range(num_rows):
        moved = crew.cut_times[p, i] + rest_of_cut(ideals, j, pins_inside, crew.net_times, p)
        busy = crew.times[p, i] - crew.times[p, j]
        load = max(busy, moved) if crew.overlap else busy + moved
        if is_mixed:  # a difference of sums may come out a hair below what it is
            rate += crew.sizes[p] / load if load > 0 else np.inf
            load = 1 / rate
            continue
        load /= crew.sizes[0]
        if p < num_rows - 1 and load > limits.first_s:
            return np.inf
    return load


@njit(inline=True, allocates=False)
def is_block(ideals: IdealRows, j: int, i: int, memory_limit: float) -> bool:
    """Return whether what ideal `i` has beyond `j` is a block: not empty, within memory, with no closed class."""
    bits, memory = ideals.bits, ideals.memory
    if ideals.closed[i] != ideals.closed[j] or memory[i] - memory[j] > memory_limit or i == j:
        return False
    for w in range(bits.shape[1]):  # noqa: SIM110  # compiled
        if bits[j, w] & ~bits[i, w]:
            return False
    return True


@njit(inline=True, allocates=False)
def mark_cut(ideals: IdealRows, i: int, pins_inside: NDArray[np.int32], is_cut: bool) -> None:
    """Note for `rest_of_cut` how many pins of each net that ideal `i` cuts lie inside, or forget it."""
    for e in range(ideals.cut_offsets[i], ideals.cut_offsets[i + 1]):
        pins_inside[ideals.cut_nets[e]] = ideals.cut_counts[e] if is_cut else 0


@njit(inline=True, allocates=False)
def rest_of_cut(
    ideals: IdealRows, j: int, pins_inside: NDArray[np.int32], net_times: NDArray[np.float64], row: int
) -> float:
    """Return the seconds of a block's nets, less those of the cut of the upper ideal.

    Nets that the lower ideal `j` cuts and the upper one does not meet the block; those that both cut with as many pins
    inside do not.
    """
    seconds = 0.0
    for e in range(ideals.cut_offsets[j], ideals.cut_offsets[j + 1]):
        net = ideals.cut_nets[e]
        if pins_inside[net] == 0:
            seconds += net_times[row, net]
        elif pins_inside[net] == ideals.cut_counts[e]:
            seconds -= net_times[row, net]
    return seconds


@njit(inner=True, allocates=False)
def shared_bytes(bits: Any, i: Any, j: Any, shared: Any) -> Any:
    """Return what the classes between the ideals j and i need beside their own memory.

    The formula of :mod:`placekit.model.memory`. O(uses + positions).

    Parameters
    ----------
    bits : uint64[num_ideals, num_words]
        The ideals.
    i, j : int
        Indices of the upper and the lower one.
    shared : tuple
        `Instance.shared_memory`: offsets, classes, positions, bytes and kinds of the blocks, and a scratch array of
        the positions.
    """
    offsets, classes, positions, num_bytes, kinds, level = shared
    level[:] = 0.0
    total = 0.0
    for block in range(len(num_bytes)):
        first, last, inside = len(level), -1, 0
        for e in range(offsets[block], offsets[block + 1]):
            word, bit = classes[e] >> 6, np.uint64(classes[e] & 63)
            if ((bits[i, word] & ~bits[j, word]) >> bit) & np.uint64(1):
                inside += 1
                first = min(first, positions[e])
                last = max(last, positions[e])
        if inside == 0:
            continue
        if kinds[block] == ACTIVATION:
            level[first] += num_bytes[block]
            level[last + 1] -= num_bytes[block]
        elif kinds[block] == WEIGHT or inside < offsets[block + 1] - offsets[block]:
            total += num_bytes[block]
    now, peak = 0.0, 0.0
    for at in range(len(level)):
        now += level[at]
        peak = max(peak, now)
    return total + peak

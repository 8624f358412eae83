"""The numba kernel of the dynamic program over ideals: the step to one device, or to several of one kind."""

from __future__ import annotations

import numpy as np

from placekit.kernels import njit
from placekit.solvers.throughput.dp.pairs import is_block, mark_cut, rest_of_cut
from placekit.solvers.throughput.dp.shared_memory import shared_bytes

__all__ = ["extend_chains"]


@njit
def extend_chains(  # type: ignore[no-untyped-def]  # compiled
    upper,
    lower,
    work,
    most_work,
    bits,
    times,
    memory,
    shared,
    closed,
    cut_offsets,
    cut_nets,
    cut_counts,
    net_times,
    cut_times,
    memory_limit,
    first_limit,
    limit,
    floor,
    overlap,
    size,
    lower_value,
    value,
    parent,
):
    r"""Append one block to the chains that end in `lower`, and keep the best chain to each of `upper`.

    The load of the block between the ideals J and I is

        time(I) - time(J) + cut(I)
        - sum of w over nets cut by both with as many pins inside I as inside J   (they do not meet the block)
        + sum of w over nets cut by J and inside I                                (they meet J and the block)

    which takes O(cut(J)) once the nets that I cuts are marked; `size` devices share it. The transfers are no less than
    the difference of the two cuts, which takes one look. With two passes (GPipe) the load of the first must stay within
    `first_limit`, and the second is minimised.

    Blocks of half the largest work come first: they are often good enough, and larger or smaller ones need not be
    looked at.

    Parameters
    ----------
    upper, lower : int64[...]
        Indices of ideals by rising work.
    work : float64[num_ideals]
        Work of each ideal.
    most_work : float
        No block has more.
    bits : uint64[num_ideals, num_words]
        The ideals.
    times : float64[num_passes, num_ideals]
        Seconds of each ideal's classes on this device, per pass.
    memory, closed : float64[num_ideals]
        Bytes, and number of classes that may not run on this device.
    shared : tuple
        What classes need of memory together, see `shared_bytes`; it is looked at last.
    cut_offsets, cut_nets, cut_counts
        Cut nets of each ideal, see `describe_ideals`.
    net_times : float64[num_passes, num_nets]
        Seconds of each net on this device, per pass.
    cut_times : float64[num_passes, num_ideals]
        Sum of `net_times` over each ideal's cut.
    memory_limit, first_limit, limit, floor : float
        Most bytes of a block; most seconds of the first of two passes; only values below `limit` are kept; no value at
        or below `floor` is improved.
    overlap : bool
        True for the maximum of time and transfers instead of their sum.
    size : float
        How many devices run the block.
    lower_value : float64[num_ideals]
        Best value of a chain to each ideal with one device less; infinity if none.
    value, parent : float64[num_ideals], int64[num_ideals]
        Best value so far, and the ideal before the last block; updated in place.

    Returns
    -------
    int
        Number of pairs that were looked at.
    """
    num_passes = len(times)
    is_limited = len(shared[3]) > 0 and memory_limit < np.inf
    last = num_passes - 1
    cuts = cut_offsets, cut_nets, cut_counts
    pins_inside = np.zeros(net_times.shape[1], dtype=np.int32)  # of the nets that the upper ideal cuts
    looked, start, middle, stop = 0, 0, 0, 0
    for a in range(len(upper)):
        i = upper[a]
        while start < len(lower) and work[lower[start]] < work[i] - most_work:
            start += 1
        while middle < len(lower) and work[lower[middle]] < work[i] - most_work / 2:
            middle += 1
        while stop < len(lower) and work[lower[stop]] <= work[i]:
            stop += 1
        best = min(limit, value[i])
        most = best * size
        found = -1
        mark_cut(*cuts, i, pins_inside, True)
        for b in range(start, stop):
            if best <= floor:
                break
            # from the middle to the end, then from there to the start
            j = lower[b + middle - start] if b + middle - start < stop else lower[start + stop - 1 - b]
            looked += 1
            least = times[last, i] - times[last, j]
            if not overlap:
                least += abs(cut_times[last, i] - cut_times[last, j])
            if lower_value[j] >= best or least >= most:
                continue
            if not is_block(j, i, bits, closed, memory, memory_limit):
                continue
            fits = True
            load = 0.0
            for p in range(num_passes):
                moved = cut_times[p, i] + rest_of_cut(*cuts, j, pins_inside, net_times, p)
                busy = times[p, i] - times[p, j]
                load = (max(busy, moved) if overlap else busy + moved) / size
                if p < last and load > first_limit:
                    fits = False
                    break
            if not fits:
                continue
            candidate = max(load, lower_value[j])
            if candidate < best and is_limited:
                need = memory[i] - memory[j] + shared_bytes(bits, i, j, shared)
                if need > memory_limit:
                    continue
            if candidate < best:
                best = candidate
                most = best * size
                found = j
        mark_cut(*cuts, i, pins_inside, False)
        if found >= 0:
            value[i] = best
            parent[i] = found
    return looked

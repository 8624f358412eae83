"""The numba kernel of the dynamic program over ideals: the step to a crew of several kinds."""

from __future__ import annotations

import numpy as np

from placekit.kernels import njit
from placekit.solvers.throughput.dp.pairs import is_block, mark_cut, rest_of_cut
from placekit.solvers.throughput.dp.shared_memory import shared_bytes

__all__ = ["extend_mixed_chains"]


@njit
def extend_mixed_chains(  # type: ignore[no-untyped-def]  # compiled
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
    limit,
    overlap,
    sizes,
    lower_value,
    value,
    parent,
):
    """Append one block on a crew of several kinds, as `extend_chains` does for one kind and one pass.

    That kernel stands in :mod:`placekit.solvers.throughput.dp.chain_kernels`.

    Parameters
    ----------
    times, net_times, cut_times : float64[num_kinds, ...]
        As there, for every kind of the crew.
    sizes : float64[num_kinds]
        How many devices of each kind are in the crew.
    upper, lower, work, most_work, bits, memory, shared, closed, cut_offsets, cut_nets, cut_counts
        As there.
    memory_limit, limit, overlap
        As there.
    lower_value, value, parent
        As there.

    Returns
    -------
    int
        Number of pairs that were looked at.
    """
    num_kinds = len(times)
    is_limited = len(shared[3]) > 0 and memory_limit < np.inf
    cuts = cut_offsets, cut_nets, cut_counts
    pins_inside = np.zeros(net_times.shape[1], dtype=np.int32)  # of the nets that the upper ideal cuts
    looked, start = 0, 0
    for a in range(len(upper)):
        i = upper[a]
        while start < len(lower) and work[lower[start]] < work[i] - most_work:
            start += 1
        best = min(limit, value[i])
        found = -1
        mark_cut(*cuts, i, pins_inside, True)
        for b in range(start, len(lower)):
            j = lower[b]
            if work[j] > work[i]:
                break
            looked += 1
            if lower_value[j] >= best or not is_block(j, i, bits, closed, memory, memory_limit):
                continue
            rate = 0.0
            for k in range(num_kinds):
                moved = cut_times[k, i] + rest_of_cut(*cuts, j, pins_inside, net_times, k)
                busy = times[k, i] - times[k, j]
                load = max(busy, moved) if overlap else busy + moved
                # a difference of sums may come out a hair below what it is
                rate += sizes[k] / load if load > 0 else np.inf
            candidate = max(1 / rate, lower_value[j])
            if candidate < best and is_limited:
                need = memory[i] - memory[j] + shared_bytes(bits, i, j, shared)
                if need > memory_limit:
                    continue
            if candidate < best:
                best = candidate
                found = j
        mark_cut(*cuts, i, pins_inside, False)
        if found >= 0:
            value[i] = best
            parent[i] = found
    return looked

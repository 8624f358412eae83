"""Numba kernels of the dynamic programs, on flat arrays.

An ideal (down-set of the contracted order graph) is a row of 64-bit words; bit `c` of the row is set iff class `c` is
inside. Classes are numbered in a topological order. Every kernel has a plain-Python twin in the tests.

The kernels are compiled on the first call on a machine and cached on disk after that.
"""

from __future__ import annotations

import numpy as np

from placekit.compiled import njit

__all__ = ["cut_of_prefixes", "describe_ideals", "enumerate_ideals", "extend_chains", "extend_mixed_chains"]


@njit(cache=True)
def enumerate_ideals(  # type: ignore[no-untyped-def]  # compiled: the argument types are in the docstring
    successor_offsets, successors, work, window_low, window_high, at, left_before, choice, taken, open_work, row,
    bits, max_nodes,
):  # fmt: skip
    """Write the ideals whose work lies in one of the windows into `bits`, and come back now and then.

    A search tree over the classes in topological order: each is taken (if all its predecessors were) or left. Every
    leaf is a different ideal, and without windows every inner node leads to one. A node is cut off when no window meets
    the interval from the work taken to the work that can still be taken.

    Parameters
    ----------
    successor_offsets, successors : int64[num_classes + 1], int64[num_edges]
        Edges, CSR by predecessor; every edge goes from a lower to a higher number.
    work : float64[num_classes]
        Non-negative work of each class.
    window_low, window_high : float64[num_windows]
        Windows of total work, ends included.
    at : int64[2]
        Where the search is, and how many ideals there are; all of the search's state is zero at its beginning, except
        that ``open_work[0]`` is the sum of the work. It is over when ``at[0]`` is negative.
    left_before : int64[num_classes]
        Predecessors of each class that were left out.
    choice : int8[num_classes + 1]
        0: not tried, 1: taken, 2: left.
    taken, open_work : float64[num_classes + 1]
        Work taken before each class, and work of classes neither decided nor excluded by a predecessor.
    row : uint64[num_words]
        The classes taken.
    bits : uint64[capacity, num_words]
        Receives the ideals. The search comes back when another one would not fit.
    max_nodes : int
        Number of nodes after which it comes back in any case.

    Returns
    -------
    int
        Number of visited nodes.
    """
    num_classes = len(work)
    num_windows = len(window_low)
    c, count, nodes = at[0], at[1], 0
    while c >= 0 and nodes < max_nodes:
        if c == num_classes:
            inside = False
            for w in range(num_windows):
                inside = inside or (window_low[w] <= taken[c] <= window_high[w])
            if inside:
                if count == len(bits):
                    break
                for w in range(len(row)):
                    bits[count, w] = row[w]
                count += 1
            c -= 1
            continue
        if choice[c] == 0:
            nodes += 1
            possible = False
            for w in range(num_windows):
                possible = possible or (taken[c] <= window_high[w] and taken[c] + open_work[c] >= window_low[w])
            if not possible:
                c -= 1
                continue
            if left_before[c] == 0:
                choice[c] = 1
                row[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
                taken[c + 1] = taken[c] + work[c]
                open_work[c + 1] = max(0.0, open_work[c] - work[c])
                c += 1
                choice[c] = 0
                continue
        if choice[c] == 2:
            for e in range(successor_offsets[c], successor_offsets[c + 1]):
                left_before[successors[e]] -= 1
            choice[c] = 0
            c -= 1
            continue
        # leave c out: its successors are excluded, and their work is no longer open
        if choice[c] == 1:
            row[c >> 6] &= ~(np.uint64(1) << np.uint64(c & 63))
        still_open = open_work[c] - (work[c] if left_before[c] == 0 else 0.0)
        for e in range(successor_offsets[c], successor_offsets[c + 1]):
            s = successors[e]
            if left_before[s] == 0:
                still_open -= work[s]
            left_before[s] += 1
        choice[c] = 2
        taken[c + 1] = taken[c]
        # rounding must not close a window: add what the subtractions can have lost
        open_work[c + 1] = max(0.0, still_open) + 1e-13 * open_work[0]
        c += 1
        choice[c] = 0
    at[0], at[1] = c, count
    return nodes


@njit(cache=True)
def describe_ideals(bits, class_values, net_offsets, net_pins, values, cut_offsets, cut_nets, cut_counts):  # type: ignore[no-untyped-def]  # compiled
    """Sum the values of the classes of each ideal, and list the nets that it cuts.

    Called twice: with empty `cut_nets` it only counts, and fills `cut_offsets`.

    Parameters
    ----------
    bits : uint64[num_ideals, num_words]
        The ideals.
    class_values : float64[num_classes, num_values]
        Additive values of classes (times per kind and pass, bytes, counts).
    net_offsets, net_pins : int64[num_nets + 1], int64[num_pins]
        Nets, CSR.
    values : float64[num_ideals, num_values]
        Receives the sums.
    cut_offsets : int64[num_ideals + 1]
        CSR offsets of the cut nets.
    cut_nets, cut_counts : int32[num_cut]
        Receive the cut nets of each ideal in rising order, and how many of their pins lie inside.
    """
    only_count = len(cut_nets) == 0
    num_nets = len(net_offsets) - 1
    one = np.uint64(1)
    for i in range(len(bits)):
        if only_count:
            for v in range(class_values.shape[1]):
                values[i, v] = 0.0
            for c in range(len(class_values)):
                if (bits[i, c >> 6] >> np.uint64(c & 63)) & one:
                    for v in range(class_values.shape[1]):
                        values[i, v] += class_values[c, v]
        at = cut_offsets[i]
        for n in range(num_nets):
            inside = 0
            for p in range(net_offsets[n], net_offsets[n + 1]):
                c = net_pins[p]
                if (bits[i, c >> 6] >> np.uint64(c & 63)) & one:
                    inside += 1
            if 0 < inside < net_offsets[n + 1] - net_offsets[n]:
                if not only_count:
                    cut_nets[at] = n
                    cut_counts[at] = inside
                at += 1
        if only_count:
            cut_offsets[i + 1] = at


@njit(cache=True)
def cut_of_prefixes(ends, net_offsets, net_pins, cut_offsets, cut_nets, cut_counts):  # type: ignore[no-untyped-def]  # compiled
    """List the nets that each prefix of the order cuts, as `describe_ideals` does for any ideal.

    Called twice: with empty `cut_nets` it only counts, and fills `cut_offsets`.

    Parameters
    ----------
    ends : int64[num_prefixes]
        Number of classes of each prefix, rising.
    net_offsets, net_pins : int64[num_nets + 1], int64[num_pins]
        Nets, CSR, the pins of each in rising order.
    cut_offsets, cut_nets, cut_counts
        As for `describe_ideals`.
    """
    only_count = len(cut_nets) == 0
    filled = np.zeros(len(ends), dtype=np.int64)
    prefix_of = np.empty(ends[len(ends) - 1] + 1, dtype=np.int64)  # the first prefix with more classes
    at = 0
    for c in range(len(prefix_of)):
        while at < len(ends) and ends[at] <= c:
            at += 1
        prefix_of[c] = at
    for n in range(len(net_offsets) - 1):
        p, last = net_offsets[n], net_offsets[n + 1] - 1
        for i in range(prefix_of[net_pins[p]], prefix_of[net_pins[last]]):
            if not only_count:
                while net_pins[p] < ends[i]:
                    p += 1
                cut_nets[cut_offsets[i] + filled[i]] = n
                cut_counts[cut_offsets[i] + filled[i]] = p - net_offsets[n]
            filled[i] += 1
    if only_count:
        for i in range(len(ends)):
            cut_offsets[i + 1] = cut_offsets[i] + filled[i]


@njit(cache=True)
def extend_chains(  # type: ignore[no-untyped-def]  # compiled
    upper,
    lower,
    work,
    most_work,
    bits,
    times,
    memory,
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

    which takes O(cut(J) + cut(I)) by merging two sorted lists; `size` devices share it. The transfers are no less than
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
    num_passes, num_words = len(times), bits.shape[1]
    last = num_passes - 1
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
            if closed[i] != closed[j] or memory[i] - memory[j] > memory_limit or i == j:
                continue
            inside = True
            for w in range(num_words):
                if bits[j, w] & ~bits[i, w]:
                    inside = False
                    break
            if not inside:
                continue
            fits = True
            load = 0.0
            for p in range(num_passes):
                moved = cut_times[p, i]
                at, end = cut_offsets[i], cut_offsets[i + 1]
                for e in range(cut_offsets[j], cut_offsets[j + 1]):
                    net = cut_nets[e]
                    while at < end and cut_nets[at] < net:
                        at += 1
                    if at < end and cut_nets[at] == net:
                        if cut_counts[at] == cut_counts[e]:
                            moved -= net_times[p, net]
                    else:
                        moved += net_times[p, net]
                busy = times[p, i] - times[p, j]
                load = (max(busy, moved) if overlap else busy + moved) / size
                if p < last and load > first_limit:
                    fits = False
                    break
            if not fits:
                continue
            candidate = max(load, lower_value[j])
            if candidate < best:
                best = candidate
                most = best * size
                found = j
        if found >= 0:
            value[i] = best
            parent[i] = found
    return looked


@njit(cache=True)
def extend_mixed_chains(  # type: ignore[no-untyped-def]  # compiled
    upper,
    lower,
    work,
    most_work,
    bits,
    times,
    memory,
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

    Parameters
    ----------
    times, net_times, cut_times : float64[num_kinds, ...]
        As there, for every kind of the crew.
    sizes : float64[num_kinds]
        How many devices of each kind are in the crew.
    upper, lower, work, most_work, bits, memory, closed, cut_offsets, cut_nets, cut_counts, memory_limit, limit, overlap
        As there.
    lower_value, value, parent
        As there.

    Returns
    -------
    int
        Number of pairs that were looked at.
    """
    num_kinds, num_words = len(times), bits.shape[1]
    looked, start = 0, 0
    for a in range(len(upper)):
        i = upper[a]
        while start < len(lower) and work[lower[start]] < work[i] - most_work:
            start += 1
        best = min(limit, value[i])
        found = -1
        for b in range(start, len(lower)):
            j = lower[b]
            if work[j] > work[i]:
                break
            looked += 1
            if lower_value[j] >= best or closed[i] != closed[j] or memory[i] - memory[j] > memory_limit or i == j:
                continue
            inside = True
            for w in range(num_words):
                if bits[j, w] & ~bits[i, w]:
                    inside = False
                    break
            if not inside:
                continue
            rate = 0.0
            for k in range(num_kinds):
                moved = cut_times[k, i]
                at, end = cut_offsets[i], cut_offsets[i + 1]
                for e in range(cut_offsets[j], cut_offsets[j + 1]):
                    net = cut_nets[e]
                    while at < end and cut_nets[at] < net:
                        at += 1
                    if at < end and cut_nets[at] == net:
                        if cut_counts[at] == cut_counts[e]:
                            moved -= net_times[k, net]
                    else:
                        moved += net_times[k, net]
                busy = times[k, i] - times[k, j]
                load = max(busy, moved) if overlap else busy + moved
                # a difference of sums may come out a hair below what it is
                rate += sizes[k] / load if load > 0 else np.inf
            candidate = max(1 / rate, lower_value[j])
            if candidate < best:
                best = candidate
                found = j
        if found >= 0:
            value[i] = best
            parent[i] = found
    return looked

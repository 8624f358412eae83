"""Numba kernels that make sets of ideals, on flat arrays.

An ideal (down-set of the contracted order graph) is a row of 64-bit words; bit `c` of the row is set iff class `c` is
inside. Classes are numbered in a topological order. Every kernel has a plain-Python twin in the tests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit


class IdealTree(NamedTuple):
    """Classes of which ideals are made, and windows in which the work of an ideal may lie."""

    # successor_offsets, successors: ``[C + 1]`` and ``[edges]`` edges, CSR by predecessor; from lower to higher numbers
    successor_offsets: NDArray[np.int64]
    successors: NDArray[np.int64]
    work: NDArray[np.float64]  # ``[C]`` non-negative work of each class
    # window_low, window_high: ``[windows]`` windows of total work, ends included; disjoint, by rising work
    window_low: NDArray[np.float64]
    window_high: NDArray[np.float64]


class TreeWalk(NamedTuple):
    """State of a search; zero at its beginning, except that ``open_work[0]`` is the sum of the work."""

    at: NDArray[np.int64]  # ``[2]`` where the search is, negative at its end, and how many ideals there are
    left_before: NDArray[np.int64]  # ``[C]`` predecessors of each class that were left out
    choice: NDArray[np.int8]  # ``[C + 1]`` 0: not tried, 1: taken, 2: left
    window: NDArray[np.int64]  # ``[C + 1]`` first window that does not end below the work taken before each class
    # taken, open_work: ``[C + 1]`` work taken before each class, and of classes neither decided nor excluded
    taken: NDArray[np.float64]
    open_work: NDArray[np.float64]
    row: NDArray[np.uint64]  # ``[words]`` the classes taken

    @classmethod
    def begin(cls, work: NDArray[np.float64], num_words: int) -> TreeWalk:
        """Return the beginning of a search."""
        size = len(work) + 1
        at, left_before, window = (np.zeros(n, dtype=np.int64) for n in (2, size - 1, size))
        open_work = np.zeros(size)
        open_work[0] = float(work.sum())
        choice, row = np.zeros(size, dtype=np.int8), np.zeros(num_words, dtype=np.uint64)
        return cls(at, left_before, choice, window, np.zeros(size), open_work, row)


@njit
def enumerate_ideals(tree: IdealTree, walk: TreeWalk, bits: NDArray[np.uint64], max_nodes: int) -> int:
    """Write the ideals whose work lies in one of the windows into `bits`, and come back now and then.

    A search tree over the classes in topological order: each is taken (if all its predecessors were) or left. Every
    leaf is a different ideal, and without windows every inner node leads to one. A node is cut off when no window meets
    the interval from the work taken to the work that can still be taken.

    Comes back when another ideal would not fit into `bits` ``[capacity, words]``, after `max_nodes` nodes, and at the
    end. Returns the number of visited nodes.
    """
    successor_offsets, successors, work, window_low, window_high = tree
    at, left_before, choice, window, taken, open_work, row = walk
    num_classes = len(work)
    num_windows = len(window_low)
    c, count, nodes = at[0], at[1], 0
    while c >= 0 and nodes < max_nodes:
        w = window[c]
        while w < num_windows and window_high[w] < taken[c]:
            w += 1
        window[c] = w
        if c == num_classes:
            if w < num_windows and window_low[w] <= taken[c]:
                if count == len(bits):
                    break
                for word in range(len(row)):
                    bits[count, word] = row[word]
                count += 1
            c -= 1
            continue
        if choice[c] == 0:
            nodes += 1
            if w == num_windows or taken[c] + open_work[c] < window_low[w]:
                c -= 1
                continue
            if left_before[c] == 0:
                choice[c] = 1
                row[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
                taken[c + 1] = taken[c] + work[c]
                open_work[c + 1] = max(0.0, open_work[c] - work[c])
                c += 1
                choice[c], window[c] = 0, w
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
        choice[c], window[c] = 0, w
    at[0], at[1] = c, count
    return nodes


@njit
def cut_of_prefixes(ends, net_offsets, net_pins, cut_offsets, cut_nets, cut_counts):  # type: ignore[no-untyped-def]  # compiled
    """List the nets that each prefix of the order cuts.

    Called twice: with empty `cut_nets` it only counts, and fills `cut_offsets`.

    Parameters
    ----------
    ends : int64[num_prefixes]
        Number of classes of each prefix, rising.
    net_offsets, net_pins : int64[num_nets + 1], int64[num_pins]
        Nets, CSR, the pins of each in rising order.
    cut_offsets : int64[num_prefixes + 1]
        CSR offsets of the cut nets.
    cut_nets, cut_counts : int32[num_cut]
        Receive the cut nets of each prefix in rising order, and how many of their pins lie inside.
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

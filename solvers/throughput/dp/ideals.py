"""A set of ideals, and everything the dynamic programs need to know of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from placekit.arrays import csr_lists
from placekit.solvers.throughput.dp.instance import Instance, unpack
from placekit.solvers.throughput.dp.kernels import IdealTree, TreeWalk, cut_of_prefixes, enumerate_ideals

CELLS_AT_ONCE = 1 << 20
"""Memberships of classes and nets in ideals that are unpacked at once: a few megabytes."""
NODES_PER_CALL = 10_000_000
"""Nodes of the search tree between two looks at the clock: a fraction of a second."""


class IdealSet:
    """Ideals of an instance, by rising work, with their sums and cuts; made by `all_within` or `prefixes`.

    Parameters
    ----------
    bits
        ``[num_ideals, num_words]`` ideals by rising work; the empty and the full one must be among them.
    values
        ``[num_ideals, num_values]`` sums of `_class_values` over each ideal.
    cut_offsets, cut_nets, cut_counts
        CSR lists of the nets that each ideal cuts, in rising order, and how many of their pins lie inside.
    """

    def __init__(
        self,
        instance: Instance,
        bits: NDArray[np.uint64],
        values: NDArray[np.float64],
        cut_offsets: NDArray[np.int64],
        cut_nets: NDArray[np.int32],
        cut_counts: NDArray[np.int32],
    ) -> None:
        self.instance, self.bits = instance, bits
        self.cut_offsets, self.cut_nets, self.cut_counts = cut_offsets, cut_nets, cut_counts
        num_groups, num_passes, num_rows = len(instance.groups), instance.num_passes, len(instance.closed_rows)
        self.work, self.memory = values[:, 0].copy(), values[:, 1].copy()
        self.closed = np.ascontiguousarray(values[:, 2 : 2 + num_rows].T)
        times = values[:, 2 + num_rows :].reshape(len(bits), num_groups, num_passes)
        self.times = np.ascontiguousarray(times.transpose(1, 2, 0))
        self.cut_times = self._cut_times()
        members = np.bitwise_count(bits).sum(axis=1)
        self.empty, self.full = int(np.argmin(members)), int(np.argmax(members))

    def _cut_times(self) -> NDArray[np.float64]:
        """``[num_groups, num_passes, num_ideals]`` seconds of each ideal's cut."""
        num_ideals = len(self.bits)
        owner = np.repeat(np.arange(num_ideals), np.diff(self.cut_offsets))
        net_times = self.instance.net_times
        total = np.zeros((*net_times.shape[:2], num_ideals))
        for g, p in np.ndindex(net_times.shape[:2]):
            total[g, p] = np.bincount(owner, weights=net_times[g, p][self.cut_nets], minlength=num_ideals)
        return total

    @classmethod
    def all_within(
        cls, instance: Instance, max_ideals: int, max_nodes: int, should_stop: Callable[[], bool] = lambda: False
    ) -> IdealSet | None:
        """Return every ideal inside some balance window; None if there are too many, or if told to stop."""
        contraction = instance.contraction
        senders, receivers = instance.rank[contraction.senders], instance.rank[contraction.receivers]
        successors = csr_lists(senders, receivers, instance.num_classes)
        total = float(instance.work.sum())
        ends = [(0.0, 1e-9 * total), (total * (1 - 1e-9), total * (1 + 1e-9))]  # the empty and the full ideal, always
        windows = merge_windows([*ends, *(instance.window(state) for state in instance.states())])
        num_words = max(1, -(-instance.num_classes // 64))
        tree = IdealTree(*successors, instance.work, windows[:, 0].copy(), windows[:, 1].copy())
        walk = TreeWalk.begin(instance.work, num_words)
        at = walk.at
        bits = np.zeros((min(1 << 14, max_ideals), num_words), dtype=np.uint64)
        while at[0] >= 0:
            max_nodes -= enumerate_ideals(tree, walk, bits, NODES_PER_CALL)
            if should_stop() or max_nodes < 0 or (at[0] >= 0 and at[1] == len(bits) >= max_ideals):
                return None
            if at[1] == len(bits):
                bits = np.concatenate(
                    [bits, np.zeros((min(3 * len(bits), max_ideals - len(bits)), num_words), np.uint64)]
                )
        return cls._described(instance, bits[: at[1]])

    @classmethod
    def _described(cls, instance: Instance, bits: NDArray[np.uint64]) -> IdealSet:
        """Return the ideals given in any order. O(ideals * (classes * values + pins))."""
        num_classes, sizes = instance.num_classes, np.diff(instance.net_offsets)
        # sparse, because a dense product would wake the threads of BLAS
        class_values: Any = csr_array(_class_values(instance).T)
        incidence = np.ones(len(instance.net_pins), dtype=np.int32), instance.net_pins, instance.net_offsets
        pins_of_net: Any = csr_array(incidence, (len(sizes), num_classes))
        at_once = max(1, CELLS_AT_ONCE // (num_classes + len(sizes)))
        parts = range(0, len(bits), at_once)

        def members(at: int) -> NDArray[np.int32]:
            inside = unpack(bits[at : at + at_once], num_classes)
            return np.ascontiguousarray(inside.T, dtype=np.int32)

        values = np.concatenate([(class_values @ members(at)).T for at in parts])
        by_work = np.argsort(values[:, 0], kind="stable")  # the kernels walk the ideals by rising work
        bits, values = bits[by_work], values[by_work]
        num_cut, cut_nets, cut_counts = [np.zeros(1, dtype=np.int64)], [], []
        for at in parts:
            inside = (pins_of_net @ members(at)).T
            is_cut = (inside > 0) & (inside < sizes)
            num_cut.append(is_cut.sum(axis=1))
            cut_nets.append(np.nonzero(is_cut)[1].astype(np.int32))
            cut_counts.append(inside[is_cut])
        offsets = np.cumsum(np.concatenate(num_cut))
        return cls(instance, bits, values, offsets, np.concatenate(cut_nets), np.concatenate(cut_counts))

    @classmethod
    def prefixes(cls, instance: Instance, ends: NDArray[np.int64]) -> IdealSet:
        """Return the prefixes of the instance's own order that have `ends` classes, which must rise.

        O(classes + pins log pins + prefixes * words + total length of the cuts).
        """
        words = np.arange(max(1, -(-instance.num_classes // 64)))
        inside = np.clip(ends[:, None] - 64 * words, 0, 64).astype(np.uint64)
        some = (np.uint64(1) << np.minimum(inside, 63)) - np.uint64(1)
        bits = np.where(inside == 64, ~np.uint64(0), some)
        class_values = _class_values(instance)
        values = np.concatenate([np.zeros((1, class_values.shape[1])), np.cumsum(class_values, axis=0)])[ends]
        owner = np.repeat(np.arange(len(instance.net_offsets) - 1), np.diff(instance.net_offsets))
        pins = instance.net_pins[np.lexsort((instance.net_pins, owner))]
        offsets, none = np.zeros(len(ends) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        cut_of_prefixes(ends, instance.net_offsets, pins, offsets, none, none)
        cut = np.zeros((2, int(offsets[-1])), dtype=np.int32)
        if cut.size:
            cut_of_prefixes(ends, instance.net_offsets, pins, offsets, cut[0], cut[1])
        return cls(instance, bits, values, offsets, cut[0], cut[1])

    def candidates(self, state: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the ideals that `state` can stand at, by rising work."""
        instance = self.instance
        low, high = instance.window(state)
        possible = (self.work >= low) & (self.work <= high)
        rest = tuple(m - n for n, m in zip(state, instance.counts, strict=True))
        for side, times, memory in ((state, self.times, self.memory), (rest, *self._after)):
            used = [g for g, n in enumerate(side) if n]
            memory_limit = sum(n * instance.memory_limits[g] for g, n in enumerate(side) if n)
            possible &= memory <= memory_limit * (1 + 1e-9)
            if len(used) == 1:
                seconds, moved = times[used[0]].sum(axis=0), self.cut_times[used[0]].sum(axis=0)
                total = np.maximum(seconds, moved) if instance.overlap else seconds + moved
                possible &= total <= side[used[0]] * instance.limit_s * (1 + 1e-9)
        return np.flatnonzero(possible)

    @cached_property
    def _after(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds and bytes of what is outside each ideal."""
        return self.times[:, :, self.full, None] - self.times, self.memory[self.full] - self.memory


def _class_values(instance: Instance) -> NDArray[np.float64]:
    """``[num_classes, num_values]`` what is summed over ideals: work, bytes, closed classes, seconds."""
    columns = [instance.work[None], instance.memory[None], instance.closed_rows.astype(np.float64)]
    columns.append(instance.times.reshape(len(instance.groups) * instance.num_passes, -1))
    return np.ascontiguousarray(np.concatenate(columns).T)


def merge_windows(windows: list[tuple[float, float]]) -> NDArray[np.float64]:
    """``[num_windows, 2]`` disjoint windows that cover the same values."""
    merged: list[list[float]] = []
    for low, high in sorted(window for window in windows if window[0] <= window[1]):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return np.array(merged).reshape(-1, 2)

r"""A set of ideals, everything the dynamic programs need to know of them, and the chains through them.

The state of a chain is how many devices of each group of equals it has used, and the ideal it has reached. Which
ideals a state can reach is bounded by *balance windows*. Let :math:`r_c \ge 0` be any work of the classes, and
:math:`R_g(x)` the most work that devices of group :math:`g` can do in :math:`x` seconds of their own time (a
fractional knapsack over the classes they may run). If every load is below :math:`T`, a state that has used
:math:`n_g` of the :math:`N_g` devices of each group can only stand at an ideal :math:`J` with

.. math:: r(V) - \sum_g R_g((N_g - n_g) T) \;\le\; r(J) \;\le\; \sum_g R_g(n_g T),

because the devices before the cut did all of :math:`J` and those after it do the rest. Where one side has devices of
one group only, that side also pays for every net that the cut goes through, at least once:
:math:`t_g(J) + c_g(J) \le n_g T`. Bytes are bounded likewise.

References
----------
The DP over ideals is Tarnawski et al., NeurIPS 2020, section 5.1; loads from parts and balance windows are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction
from placekit.evaluate import MEMORY_TOLERANCE
from placekit.objectives import Throughput
from placekit.solvers.dp.kernels import describe_ideals, enumerate_ideals, extend_chains

__all__ = ["Chain", "IdealSet", "Instance"]

Chain = list[tuple[NDArray[np.uint64], int]]
"""Blocks from first to last: the ideal after the block, and the group of the device that runs it."""

FRONT_STEP = 1e-9
"""Step of the forward load along the front of GPipe, relative to the best objective."""
PAIRS_PER_CALL = 200_000_000
"""Pairs of ideals between two looks at the clock: about a second."""


class Instance:
    """A contracted throughput problem, with the classes in a topological order and the devices in groups of equals.

    Parameters
    ----------
    contraction
        The contracted problem; its order graph must be acyclic (`Contiguity.ACYCLIC`).
    order
        ``[num_classes]`` topological order to number the classes by.
    limit_s
        Only chains with an objective below this are looked for; infinity for all. A class that alone takes longer on a
        device is closed there, and a net that costs more is cut down to twice the limit, so that sums and their
        differences keep their precision.
    """

    def __init__(self, contraction: Contraction, order: NDArray[np.int64], limit_s: float) -> None:
        problem = contraction.problem
        objective = problem.objective
        assert isinstance(objective, Throughput)  # `supports` lets nothing else through
        self.contraction = contraction
        self.limit_s = limit_s
        self.order = order
        self.rank = np.empty_like(order)
        self.rank[order] = np.arange(len(order))
        self.overlap = objective.overlap
        self.num_passes = 2 if objective.schedule == "gpipe" and problem.graph.is_backward.any() else 1
        self.groups = contraction.interchangeable
        self.counts = tuple(len(group) for group in self.groups)
        kinds = [int(problem.platform.kind_of_device[group[0]]) for group in self.groups]
        limits = [problem.platform.devices[group[0]].memory_bytes for group in self.groups]
        self.memory_limits = [np.inf if limit is None else limit * (1 + MEMORY_TOLERANCE) for limit in limits]
        self.memory = contraction.memory_bytes[order]
        self.closed = np.stack([~contraction.allowed[order, group[0]] for group in self.groups])
        by_pass = contraction.time_s[order][:, kinds], contraction.net_time_s[:, kinds]
        if self.num_passes == 1:
            by_pass = by_pass[0].sum(axis=2, keepdims=True), by_pass[1].sum(axis=2, keepdims=True)
        # [num_groups, num_passes, ...]
        self.times = np.ascontiguousarray(by_pass[0].transpose(1, 2, 0))
        self.net_times = np.ascontiguousarray(by_pass[1].transpose(1, 2, 0))
        self.closed |= self.times.sum(axis=1) > limit_s * (1 + 1e-9)
        self.times = np.where(self.closed[:, None], 0.0, self.times)
        self.net_times = np.minimum(self.net_times, 2 * limit_s)
        self.net_offsets = contraction.net_offsets
        self.net_pins = self.rank[contraction.net_pins]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.order)

    @property
    def rounding_s(self) -> float:
        """Seconds that a load can lose to rounding: it is a difference of sums of at most this size."""
        largest = float(self.times.sum(axis=(1, 2)).max() + self.net_times.sum(axis=(1, 2)).max(initial=0.0))
        return 1e-14 * largest

    @cached_property
    def total_times(self) -> NDArray[np.float64]:
        """``[num_groups, num_classes]`` seconds over both passes."""
        total: NDArray[np.float64] = self.times.sum(axis=1)
        return total

    @cached_property
    def work(self) -> NDArray[np.float64]:
        """``[num_classes]`` work: seconds on the group with the most devices, 0 for what it may not run."""
        reference = int(np.argmax(self.counts))
        return np.where(self.closed[reference], 0.0, self.total_times[reference])

    def most_work(self, group: int, seconds: float) -> float:
        """Return the most work that devices of `group` can do in `seconds`, by a fractional knapsack."""
        open_classes = ~self.closed[group]
        times, work = self.total_times[group][open_classes], self.work[open_classes]
        if not len(times):
            return 0.0
        with np.errstate(over="ignore"):
            best_first = np.argsort(-np.divide(work, times, out=np.full_like(work, np.inf), where=times > 0))
        spent, done = np.cumsum(times[best_first]), np.cumsum(work[best_first])
        whole = int(np.searchsorted(spent, seconds, side="right"))
        total = float(done[whole - 1]) if whole else 0.0
        if whole < len(spent):
            c = best_first[whole]
            total += float((seconds - (spent[whole - 1] if whole else 0.0)) / times[c] * work[c])
        return total

    def states(self) -> Iterator[tuple[int, ...]]:
        """Yield how many devices of each group are used, by rising total."""
        return iter(sorted(itertools.product(*(range(count + 1) for count in self.counts)), key=sum))

    def window(self, state: tuple[int, ...]) -> tuple[float, float]:
        """Return the least and the most work of an ideal that `state` can stand at."""
        total = float(self.work.sum())
        slack = 1e-9 * total  # sums are rounded; a window may be too wide, never too narrow
        before = sum(self._capacity(g, n) for g, n in enumerate(state))
        after = sum(self._capacity(g, m - n) for g, (n, m) in enumerate(zip(state, self.counts, strict=True)))
        return total - after - slack, before + slack

    @cache  # noqa: B019  # an instance lives as long as one search
    def _capacity(self, group: int, num_devices: int) -> float:
        """Return the most work of `num_devices` devices of `group` below the limit."""
        return self.most_work(group, num_devices * self.limit_s) if num_devices else 0.0

    def device_of_op(self, chain: Chain) -> NDArray[np.int64]:
        """Return ``[num_ops]`` devices: the blocks of a group take its devices in order."""
        free = [list(group) for group in self.groups]
        device = np.zeros(self.num_classes, dtype=np.int64)
        before = np.zeros(self.num_classes, dtype=bool)
        for ideal, group in chain:
            inside = unpack(ideal, self.num_classes)
            device[self.order[inside & ~before]] = free[group].pop(0)
            before = inside
        return self.contraction.expand(device)


def unpack(row: NDArray[np.uint64], num_classes: int) -> NDArray[np.bool_]:
    """``[num_classes]`` membership from the words of an ideal."""
    return np.unpackbits(row.view(np.uint8), bitorder="little")[:num_classes].astype(bool)


def pack(inside: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """``[..., num_words]`` words from ``[..., num_classes]`` membership."""
    num_words = max(1, -(-inside.shape[-1] // 64))
    padded = np.zeros((*inside.shape[:-1], num_words * 64), dtype=bool)
    padded[..., : inside.shape[-1]] = inside
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint64)


class IdealSet:
    """Ideals of an instance, by rising work, with their sums and cuts.

    Parameters
    ----------
    instance
        The instance.
    bits
        ``[num_ideals, num_words]`` ideals in any order; the empty and the full one must be among them.
    """

    def __init__(self, instance: Instance, bits: NDArray[np.uint64]) -> None:
        self.instance = instance
        num_groups, num_passes = len(instance.groups), instance.num_passes
        columns = [instance.work[None], instance.memory[None], instance.closed.astype(np.float64)]
        columns.append(instance.times.reshape(num_groups * num_passes, -1))
        class_values = np.ascontiguousarray(np.concatenate(columns).T)
        nets = instance.net_offsets, instance.net_pins
        values, offsets = np.zeros((len(bits), class_values.shape[1])), np.zeros(len(bits) + 1, dtype=np.int64)
        none = np.zeros(0, dtype=np.int32)
        # sort first: the kernels walk the ideals by rising work
        describe_ideals(bits, class_values, *nets, values, offsets, none, none)
        by_work = np.argsort(values[:, 0], kind="stable")
        self.bits = np.ascontiguousarray(bits[by_work])
        values = values[by_work]
        sizes = np.diff(offsets)[by_work]
        self.cut_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.cut_nets = np.zeros(int(self.cut_offsets[-1]), dtype=np.int32)
        self.cut_counts = np.zeros_like(self.cut_nets)
        if len(self.cut_nets):
            describe_ideals(self.bits, class_values, *nets, values, self.cut_offsets, self.cut_nets, self.cut_counts)
        self.work, self.memory = values[:, 0].copy(), values[:, 1].copy()
        self.closed = np.ascontiguousarray(values[:, 2 : 2 + num_groups].T)
        times = values[:, 2 + num_groups :].reshape(len(bits), num_groups, num_passes)
        self.times = np.ascontiguousarray(times.transpose(1, 2, 0))
        self.cut_times = self._cut_times()
        members = np.bitwise_count(self.bits).sum(axis=1)
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
    def all_within(cls, instance: Instance, max_ideals: int, max_nodes: int) -> IdealSet | None:
        """Return every ideal inside some balance window; None if there are too many."""
        contraction = instance.contraction
        senders, receivers = instance.rank[contraction.senders], instance.rank[contraction.receivers]
        by_sender = np.argsort(senders, kind="stable")
        offsets = np.searchsorted(senders[by_sender], np.arange(instance.num_classes + 1)).astype(np.int64)
        total = float(instance.work.sum())
        ends = [(0.0, 1e-9 * total), (total * (1 - 1e-9), total * (1 + 1e-9))]  # the empty and the full ideal, always
        windows = merge_windows([*ends, *(instance.window(state) for state in instance.states())])
        num_words = max(1, -(-instance.num_classes // 64))
        capacity = min(1 << 14, max_ideals)
        while True:
            bits = np.zeros((capacity, num_words), dtype=np.uint64)
            count, nodes = enumerate_ideals(
                offsets,
                receivers[by_sender],
                instance.work,
                windows[:, 0].copy(),
                windows[:, 1].copy(),
                bits,
                max_nodes,
            )
            if nodes > max_nodes or count > capacity >= max_ideals:
                return None
            if count <= capacity:
                return cls(instance, bits[:count])
            capacity = min(4 * capacity, max_ideals)

    @classmethod
    def prefixes(cls, instance: Instance, ends: NDArray[np.int64]) -> IdealSet:
        """Return the prefixes of the instance's own order that have `ends` classes."""
        return cls(instance, pack(np.arange(instance.num_classes)[None, :] < ends[:, None]))

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

    def best_chain(self, should_stop: Callable[[], bool]) -> tuple[float, Chain | None] | None:
        """Return the best objective below the limit and its chain; (limit, None) if there is none below.

        None if `should_stop` ended the search before it was complete.

        Notes
        -----
        One pass: O(states * groups * pairs of ideals inside the windows * cut). With two passes (GPipe), one such
        search per point of the front of (largest forward load, largest backward load).
        """
        best, chain = self.instance.limit_s, None
        if self.instance.num_passes == 1:
            return self._search(np.inf, best, should_stop)
        first_limit, least_second = best, 0.0
        while True:
            # every chain left has a second load of at least `least_second`
            found = self._search(min(first_limit, best - least_second), best, should_stop)
            if found is None:
                return None
            second, candidate = found
            if candidate is None:
                return best, chain
            first = self._first_load(candidate)
            if first + second < best:
                best, chain = first + second, candidate
            least_second = second
            # a smaller step could be a rounding error of the same chain; what it skips is this much better at most
            step = FRONT_STEP * best
            if first <= step:
                return best, chain
            first_limit = min(first, first_limit) - step

    def _first_load(self, chain: Chain) -> float:
        """Return the largest first-pass load of the blocks of a chain."""
        instance = self.instance
        pins = np.repeat(np.arange(len(instance.net_offsets) - 1), np.diff(instance.net_offsets))
        sizes = np.diff(instance.net_offsets)
        largest, before = 0.0, np.zeros(instance.num_classes, dtype=bool)
        for ideal, group in chain:
            inside = unpack(ideal, instance.num_classes)
            block = inside & ~before
            touched = np.bincount(pins, weights=block[instance.net_pins], minlength=len(sizes))
            moved = float(instance.net_times[group, 0][(touched > 0) & (touched < sizes)].sum())
            busy = float(instance.times[group, 0][block].sum())
            largest = max(largest, max(busy, moved) if instance.overlap else busy + moved)
            before = inside
        return largest

    def _search(
        self, first_limit: float, limit_s: float, should_stop: Callable[[], bool]
    ) -> tuple[float, Chain | None] | None:
        """Return the best value of the last pass below `limit_s` over chains, and the chain; None if stopped."""
        instance = self.instance
        num_ideals = len(self.bits)
        reached: dict[tuple[int, ...], Reached] = {}
        lower_value, value = np.full(num_ideals, np.inf), np.full(num_ideals, np.inf)
        parent = np.full(num_ideals, -1, dtype=np.int64)
        end_state, end_value = None, limit_s
        for state in instance.states():
            if not any(state):
                start = np.array([self.empty])
                reached[state] = Reached(start, np.zeros(1), start, start)
                continue
            upper = self.candidates(state)
            best_parent, best_group = np.full(len(upper), -1), np.full(len(upper), -1)
            value[upper] = np.inf
            for g, used in enumerate(state):
                lower = reached[tuple(n - (h == g) for h, n in enumerate(state))] if used else None
                if lower is None or not len(lower.ideals) or not len(upper):
                    continue
                lower_value[lower.ideals] = lower.value
                parent[upper] = -1
                if not self._extend(
                    g, upper, lower.ideals, first_limit, limit_s, lower_value, value, parent, should_stop
                ):
                    return None
                improved = parent[upper] >= 0
                best_parent[improved], best_group[improved] = parent[upper][improved], g
            there = best_parent >= 0
            reached[state] = Reached(upper[there], value[upper][there], best_parent[there], best_group[there])
            if there[upper == self.full].any() and value[self.full] < end_value:
                end_state, end_value = state, float(value[self.full])
        if end_state is None:
            return limit_s, None
        return end_value, self._trace_back(end_state, reached)

    def _extend(
        self,
        group: int,
        upper: NDArray[np.int64],
        lower: NDArray[np.int64],
        first_limit: float,
        limit_s: float,
        lower_value: NDArray[np.float64],
        value: NDArray[np.float64],
        parent: NDArray[np.int64],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Append one block on a device of `group`; False if stopped."""
        instance = self.instance
        seconds = limit_s + (first_limit if instance.num_passes == 2 else 0.0)
        step = max(1, PAIRS_PER_CALL // len(lower))
        for begin in range(0, len(upper), step):
            if should_stop():
                return False
            extend_chains(
                upper[begin : begin + step],
                lower,
                self.work,
                instance.most_work(group, seconds) + 1e-9 * float(self.work[self.full]),
                self.bits,
                self.times[group],
                self.memory,
                self.closed[group],
                self.cut_offsets,
                self.cut_nets,
                self.cut_counts,
                instance.net_times[group],
                self.cut_times[group],
                instance.memory_limits[group],
                first_limit,
                limit_s,
                instance.overlap,
                lower_value,
                value,
                parent,
            )
        return True

    def _trace_back(self, state: tuple[int, ...], reached: Mapping[tuple[int, ...], Reached]) -> Chain:
        """Follow the parents from the full ideal to the empty one."""
        chain: Chain = []
        ideal = self.full
        while any(state):
            here = reached[state]
            at = int(np.flatnonzero(here.ideals == ideal)[0])
            group = int(here.group[at])
            chain.append((self.bits[ideal], group))
            ideal, state = int(here.parent[at]), tuple(n - (h == group) for h, n in enumerate(state))
        return chain[::-1]


@dataclass(frozen=True, slots=True)
class Reached:
    """The ideals that chains of one state have reached.

    Parameters
    ----------
    ideals
        ``[num_reached]`` indices, by rising work.
    value
        ``[num_reached]`` best objective of a chain to each.
    parent, group
        ``[num_reached]`` the ideal before its last block, and the group that runs the block.
    """

    ideals: NDArray[np.int64]
    value: NDArray[np.float64]
    parent: NDArray[np.int64]
    group: NDArray[np.int64]


def merge_windows(windows: list[tuple[float, float]]) -> NDArray[np.float64]:
    """``[num_windows, 2]`` disjoint windows that cover the same values."""
    merged: list[list[float]] = []
    for low, high in sorted(window for window in windows if window[0] <= window[1]):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return np.array(merged).reshape(-1, 2)

r"""A contracted throughput problem for the dynamic programs, and how far a chain can have come.

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
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction
from placekit.evaluate import MEMORY_TOLERANCE
from placekit.objectives import Throughput

__all__ = ["Chain", "Instance", "pack", "unpack"]

Chain = list[tuple[NDArray[np.uint64], int]]
"""Blocks from first to last: the ideal after the block, and the group of the device that runs it."""


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

    def __init__(self, contraction: Contraction[Throughput], order: NDArray[np.int64], limit_s: float) -> None:
        problem = contraction.problem
        objective = problem.objective
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

    @cached_property
    def least_s(self) -> float:
        """Seconds that no objective is below: the devices could not do all of the work in less."""
        total = float(self.work.sum()) * (1 - 1e-9)
        low_s, high_s = 0.0, float(self.total_times.max(initial=0.0)) * self.num_classes
        for _ in range(30):
            middle_s = (low_s + high_s) / 2
            done = sum(self.most_work(g, count * middle_s) for g, count in enumerate(self.counts))
            low_s, high_s = (low_s, middle_s) if done >= total else (middle_s, high_s)
        return low_s

    def states(self) -> Iterator[tuple[int, ...]]:
        """Yield how many devices of each group are used, by rising total."""
        return iter(sorted(itertools.product(*(range(count + 1) for count in self.counts)), key=sum))

    def window(self, state: tuple[int, ...]) -> tuple[float, float]:
        """Return the least and the most work of an ideal that `state` can stand at."""
        total = float(self.work.sum())
        slack = 1e-9 * total  # sums are rounded; a window may be too wide, never too narrow
        before = sum(self._capacity[g][n] for g, n in enumerate(state))
        after = sum(self._capacity[g][m - n] for g, (n, m) in enumerate(zip(state, self.counts, strict=True)))
        return total - after - slack, before + slack

    @cached_property
    def _capacity(self) -> list[list[float]]:
        """The most work of so many devices of each group below the limit."""
        return [
            [0.0, *(self.most_work(group, number * self.limit_s) for number in range(1, count + 1))]
            for group, count in enumerate(self.counts)
        ]

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

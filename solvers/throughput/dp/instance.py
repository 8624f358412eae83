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

With teams a block is run by a *crew*: so many devices of each group. Its load is the block's load over the number of
devices if they are of one kind, else the harmonic sum of :class:`placekit.objectives.Throughput`. Windows hold as they
are: a member works for less than :math:`T` per sample, and what a crew does is what its members do.

References
----------
The DP over ideals is Tarnawski et al., NeurIPS 2020, section 5.1; loads from parts and balance windows are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.objectives import Throughput
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.teams.partitions import crews, equal_devices

Chain = list[tuple[NDArray[np.uint64], int]]
"""Blocks from first to last: the ideal after the block, and the crew that runs it."""


@dataclass(frozen=True, slots=True)
class Crew:
    """The devices that run a block."""

    devices: tuple[int, ...]  # ``[num_groups]`` how many of each group
    # leads, sizes: a group of every kind in it, and how many devices of that kind
    leads: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, devices: tuple[int, ...], kinds: Sequence[int]) -> Self:
        """Return a crew of so many devices of each group, of the given kinds."""
        leads: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for g, take in enumerate(devices):
            if take:
                leads.setdefault(kinds[g], g)
                sizes[kinds[g]] = sizes.get(kinds[g], 0) + take
        return cls(devices, tuple(leads.values()), tuple(sizes.values()))

    def load_s(self, alone_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[...]`` seconds per sample from those ``[num_leads, ...]`` that one device of each kind takes."""
        if len(self.sizes) == 1:
            return np.asarray(alone_s[0] / self.sizes[0], dtype=np.float64)
        with np.errstate(divide="ignore"):  # what takes no time
            rate = sum(size / seconds for size, seconds in zip(self.sizes, alone_s, strict=True))
        return np.asarray(1 / rate, dtype=np.float64)


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
        device, or on every crew that it can be in, is closed there, and a net that costs more is cut down to twice the
        limit of a crew, so that sums and their differences keep their precision.
    """

    def __init__(self, contraction: Contraction[Throughput], order: NDArray[np.int64], limit_s: float) -> None:
        problem = contraction.problem
        objective = problem.objective
        self.contraction = contraction
        self.limit_s = limit_s
        self.order = order
        self.rank = np.argsort(order)
        self.overlap = objective.overlap
        self.num_passes = 2 if objective.schedule == "gpipe" and problem.graph.is_backward.any() else 1
        rule = objective.teams
        self.groups = contraction.interchangeable if rule == "off" else equal_devices(contraction)
        self.counts = tuple(len(group) for group in self.groups)
        kinds = [int(problem.platform.kind_of_device[group[0]]) for group in self.groups]
        self.memory_limits = problem.platform.memory_limits_bytes[[group[0] for group in self.groups]].tolist()
        self.memory = contraction.memory_bytes[order]
        self.shared_memory = self._shared_memory()
        by_pass = contraction.time_s[order][:, kinds], contraction.net_time_s[:, kinds]
        if self.num_passes == 1:
            by_pass = by_pass[0].sum(axis=2, keepdims=True), by_pass[1].sum(axis=2, keepdims=True)
        # [num_groups, num_passes, ...]
        self.times = np.ascontiguousarray(by_pass[0].transpose(1, 2, 0))
        self.net_times = np.ascontiguousarray(by_pass[1].transpose(1, 2, 0))
        self.crews = tuple(Crew.of(vector, kinds) for vector in crews(self.counts, kinds, rule))
        self._close_classes()
        if rule != "any":  # of a mixed crew a member may be as slow as it likes
            most = [max(crew.sizes[0] for crew in self.crews if crew.devices[g]) for g in range(len(kinds))]
            self.net_times = np.minimum(self.net_times, 2 * limit_s * np.array(most)[:, None, None])
        self.net_offsets = contraction.net_offsets
        self.net_pins = self.rank[contraction.net_pins]

    def _shared_memory(self) -> tuple[NDArray[Any], ...]:
        """Return the memory blocks by class, as `kernels.shared_bytes` reads them; none if they do not matter."""
        problem = self.contraction.problem
        memory, level = problem.stage_memory, np.zeros(problem.graph.num_ops + 1)
        if not problem.has_tight_blocks:
            nothing = np.zeros(0, dtype=np.int64)
            return np.zeros(1, dtype=np.int64), nothing, nothing, np.zeros(0), nothing, level
        classes, positions = self.rank[self.contraction.class_of_op[memory.ops]], memory.position[memory.ops]
        kinds = memory.kind.astype(np.int64)
        return memory.offsets, classes, positions, np.array(memory.num_bytes), kinds, level

    def _close_classes(self) -> None:
        """Find out which crew cannot run which class, and on which group no crew can.

        `closed` is ``[num_groups, num_classes]``, `closed_rows` ``[num_rows, num_classes]`` has one row for every
        different set of classes that crews cannot run, and `row_of_crew` says which is whose.
        """
        contraction, limit_s = self.contraction, self.limit_s * (1 + 1e-9)
        seconds = self.times.sum(axis=1)
        cannot, too_long = [], []
        for crew in self.crews:
            if contraction.problem.objective.teams == "off":
                cannot.append(~contraction.allowed[self.order, self.groups[crew.leads[0]][0]])
            else:
                cannot.append(~_can_run(contraction, self.groups, crew)[self.order])
            too_long.append(crew.load_s(seconds[list(crew.leads)]) > limit_s)
        never = np.array(cannot) | np.array(too_long)
        takes = np.array([crew.devices for crew in self.crews]) > 0
        self.closed = np.stack([never[takes[:, g]].all(axis=0) for g in range(len(self.groups))])
        rows = np.array([row | self.closed[take].any(axis=0) for row, take in zip(cannot, takes, strict=True)])
        number: dict[bytes, int] = {}  # sorting rows that are as long as the problem takes a hundred times as long
        self.row_of_crew: list[int] = [number.setdefault(row.tobytes(), len(number)) for row in rows]
        self.closed_rows = rows[np.unique(self.row_of_crew, return_index=True)[1]]
        self.times = np.where(self.closed[:, None], 0.0, self.times)

    @property
    def has_teams(self) -> bool:
        """True if a block can be run by several devices."""
        return len(self.crews) > len(self.groups)

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

    @cached_property
    def _by_rate(self) -> list[tuple[NDArray[np.float64], ...]]:
        """Seconds and work of the classes of each group, the most work per second first, and the sums of both so far.

        Of the classes that the group may run.
        """
        groups: list[tuple[NDArray[np.float64], ...]] = []
        for closed, seconds in zip(self.closed, self.total_times, strict=True):
            times, work = seconds[~closed], self.work[~closed]
            with np.errstate(over="ignore"):
                order = np.argsort(-np.divide(work, times, out=np.full_like(work, np.inf), where=times > 0))
            groups.append((times[order], work[order], np.cumsum(times[order]), np.cumsum(work[order])))
        return groups

    def most_work(self, group: int, seconds: float) -> float:
        """Return the most work that devices of `group` can do in `seconds`, by a fractional knapsack."""
        times, work, spent, done = self._by_rate[group]
        whole = int(np.searchsorted(spent, seconds, side="right"))
        total = float(done[whole - 1]) if whole else 0.0
        if whole < len(spent):
            total += float((seconds - (spent[whole - 1] if whole else 0.0)) / times[whole] * work[whole])
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

    def most_work_of(self, crew: Crew, seconds: float) -> float:
        """Return the most work that a crew can do in `seconds`."""
        return sum(self.most_work(g, take * seconds) for g, take in enumerate(crew.devices) if take)

    def placement(self, chain: Chain) -> Placement:
        """Return the placement of a chain: the crews take the devices of a group in order."""
        free = [list(group) for group in self.groups]
        device = np.zeros(self.num_classes, dtype=np.int64)
        team = np.arange(sum(self.counts))
        before = np.zeros(self.num_classes, dtype=bool)
        for ideal, crew in chain:
            inside = unpack(ideal, self.num_classes)
            members = [free[g].pop(0) for g, take in enumerate(self.crews[crew].devices) for _ in range(take)]
            device[self.order[inside & ~before]] = team[members] = min(members)
            before = inside
        return Placement.of(self.contraction.problem, self.contraction.expand(device), None, team)


def _can_run(contraction: Contraction, groups: Sequence[Sequence[int]], crew: Crew) -> NDArray[np.bool_]:
    """``[num_classes]`` True where all members support the class, and all that it is pinned to can be members."""
    supported = contraction.supported[:, [groups[g][0] for g in crew.leads]].all(axis=1)
    # devices with the same pins belong to classes that are pinned to all of them
    whole = [d for group, take in zip(groups, crew.devices, strict=True) if take == len(group) for d in group]
    elsewhere = np.delete(contraction.pins, whole, axis=1).any(axis=1)
    return np.asarray(supported & ~elsewhere)


def unpack(words: NDArray[np.uint64], num_classes: int) -> NDArray[np.bool_]:
    """``[..., num_classes]`` membership from the ``[..., num_words]`` words of ideals."""
    return np.unpackbits(words.view(np.uint8), axis=-1, count=num_classes, bitorder="little").astype(bool)


def pack(inside: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """``[..., num_words]`` words from ``[..., num_classes]`` membership."""
    num_words = max(1, -(-inside.shape[-1] // 64))
    padded = np.zeros((*inside.shape[:-1], num_words * 64), dtype=bool)
    padded[..., : inside.shape[-1]] = inside
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint64)

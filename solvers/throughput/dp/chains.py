"""The best chain of blocks through a set of ideals: the dynamic program itself.

It is apart from :mod:`placekit.solvers.chain`, which knows problems of one order only: here are ideals of any graph,
teams of unequal devices, transfers beside work and passes with loads of their own, and a search below a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.throughput.dp.chain_kernels import CrewRows, Ends, IdealRows, Limits, extend_chains
from placekit.solvers.throughput.dp.ideals import IdealSet
from placekit.solvers.throughput.dp.instance import Chain, unpack

PAIRS_PER_CALL = 20_000_000
"""Pairs of ideals between two looks at the clock: a fraction of a second."""
FIRST_SHARE = 0.05
"""Of the way from the limit down to the bound: where the floor of the first of several searches is."""
FRONT_STEP = 1e-10
"""Step of the forward load along the front of GPipe, relative to the best objective; or twice the rounding, if more."""


class ChainSearch:
    """Find the best chain through `ideals` below the limit of their instance.

    Parameters
    ----------
    ideals
        The ideals at which blocks may end.
    should_stop
        Asked about once a second.
    floor_s
        A lower bound of the objective: chains at or below it are as good as each other.
    """

    def __init__(self, ideals: IdealSet, should_stop: Callable[[], bool], floor_s: float = 0.0) -> None:
        self.ideals = ideals
        self.floor_s = floor_s if ideals.instance.num_passes == 1 else 0.0
        self.instance = ideals.instance
        self.should_stop = should_stop

    def best(self) -> tuple[float, Chain | None] | None:
        """Return the best objective below the limit and its chain; (limit, None) if there is none below.

        None if `should_stop` ended the search before it was complete.

        Notes
        -----
        One pass: O(states * groups * pairs of ideals inside the windows * cut). With two passes (GPipe), one such
        search per point of the front of (largest forward load, largest backward load).
        """
        best, chain = self.instance.limit_s, None
        if self.instance.num_passes == 1:
            return self._best_of_one_pass()
        first_limit, least_second = best, 0.0
        while True:
            # every chain left has a second load of at least `least_second`
            found = self._search(min(first_limit, best - least_second), best)
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
            step = max(FRONT_STEP * best, 2 * self.instance.rounding_s)
            if first <= step:
                return best, chain
            first_limit = min(first, first_limit) - step

    def _best_of_one_pass(self) -> tuple[float, Chain | None] | None:
        """As `best`.

        A search with a floor tells no chains at or below it apart, and looks at fewer pairs the higher that is. What it
        finds above is the best of all; what it finds below is the limit of the next one.
        """
        best, chain, share = self.instance.limit_s, None, FIRST_SHARE
        while True:
            floor_s = self.floor_s if best == np.inf else best - min(share, 1.0) * (best - self.floor_s)
            found = self._search(np.inf, best, floor_s)
            if found is None or found[1] is None:
                return found and (best, chain)
            best, chain = found
            if best > floor_s or floor_s <= self.floor_s:
                return best, chain
            share *= 4

    def _first_load(self, chain: Chain) -> float:
        instance = self.instance
        pins = np.repeat(np.arange(len(instance.net_offsets) - 1), np.diff(instance.net_offsets))
        sizes = np.diff(instance.net_offsets)
        largest, before = 0.0, np.zeros(instance.num_classes, dtype=bool)
        for ideal, at in chain:
            crew = instance.crews[at]
            group, size = crew.leads[0], crew.sizes[0]  # two passes have crews of one kind
            inside = unpack(ideal, instance.num_classes)
            block = inside & ~before
            touched = np.bincount(pins, weights=block[instance.net_pins], minlength=len(sizes))
            moved = float(instance.net_times[group, 0][(touched > 0) & (touched < sizes)].sum())
            busy = float(instance.times[group, 0][block].sum())
            largest = max(largest, (max(busy, moved) if instance.overlap else busy + moved) / size)
            before = inside
        return largest

    def _search(self, first_limit: float, limit_s: float, floor_s: float = 0.0) -> tuple[float, Chain | None] | None:
        """Return the best value of the last pass below `limit_s` over chains, and the chain; None if stopped.

        Of chains at or below `floor_s` any will do.
        """
        instance, ideals = self.instance, self.ideals
        num_ideals = len(ideals.bits)
        reached: dict[tuple[int, ...], Reached] = {}
        lower_value, value = np.full(num_ideals, np.inf), np.full(num_ideals, np.inf)
        parent = np.full(num_ideals, -1, dtype=np.int64)
        end_state, end_value = None, limit_s
        seconds = limit_s + (first_limit if instance.num_passes == 2 else 0.0)
        slack = 1e-9 * float(ideals.work[ideals.full])
        most_work = [instance.most_work_of(crew, seconds) + slack for crew in instance.crews]
        floors: dict[tuple[int, ...], NDArray[np.float64]] = {}
        for state in instance.states():
            if not any(state):
                start = np.array([ideals.empty])
                reached[state] = Reached(start, np.zeros(1), start, start)
                continue
            upper = ideals.candidates(state)
            best_parent, best_crew = np.full(len(upper), -1), np.full(len(upper), -1)
            value[upper] = self._with_fewer(state, upper, floors)
            for c, crew in enumerate(instance.crews):
                lower = reached.get(_less(state, crew.devices))
                if lower is None or not len(lower.ideals) or not len(upper):
                    continue
                lower_value[lower.ideals] = lower.value
                parent[upper] = -1
                ends = upper, lower.ideals, most_work[c]
                if not self._extend(c, ends, (first_limit, limit_s, floor_s), lower_value, value, parent):
                    return None
                improved = parent[upper] >= 0
                best_parent[improved], best_crew[improved] = parent[upper][improved], c
            there = best_parent >= 0
            reached[state] = Reached(upper[there], value[upper][there], best_parent[there], best_crew[there])
            self._remember(state, upper, value[upper], floors)
            if there[upper == ideals.full].any() and value[ideals.full] < end_value:
                end_state, end_value = state, float(value[ideals.full])
        if end_state is None:
            return limit_s, None
        return end_value, self._trace_back(end_state, reached)

    def _with_fewer(
        self, state: tuple[int, ...], upper: NDArray[np.int64], floors: Mapping[tuple[int, ...], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """``[num_upper]`` the best value with fewer devices, which a chain to each must beat to be worth keeping.

        With one device for every block nothing can be had with fewer: infinity.
        """
        least = np.full(len(upper), np.inf)
        if self.instance.has_teams:
            for g in range(len(state)):
                before = floors.get(_less(state, tuple(int(h == g) for h in range(len(state)))))
                if before is not None:
                    least = np.minimum(least, before[upper])
        return least

    def _remember(
        self,
        state: tuple[int, ...],
        upper: NDArray[np.int64],
        value: NDArray[np.float64],
        floors: dict[tuple[int, ...], NDArray[np.float64]],
    ) -> None:
        """Keep the best value to every ideal with the devices of `state` or fewer."""
        if self.instance.has_teams:
            everywhere = np.arange(len(self.ideals.bits))
            floors[state] = self._with_fewer(state, everywhere, floors)
            floors[state][upper] = value

    def _extend(
        self,
        at: int,
        ends: tuple[NDArray[np.int64], NDArray[np.int64], float],
        limits: tuple[float, float, float],
        lower_value: NDArray[np.float64],
        value: NDArray[np.float64],
        parent: NDArray[np.int64],
    ) -> bool:
        """Append one block of at most so much work between `ends` on a crew; False if stopped."""
        instance, ideals = self.instance, self.ideals
        upper, lower, most_work = ends
        crew = instance.crews[at]
        leads = list(crew.leads)
        # the rows are the passes of one kind, or the kinds of a crew, which has one pass
        chosen: Any = leads[0] if len(leads) == 1 else (leads, 0)
        tables = (ideals.times, ideals.cut_times, instance.net_times)
        times, cut_times, net_times = (np.ascontiguousarray(table[chosen]) for table in tables)
        crew_rows = CrewRows(times, cut_times, net_times, np.array(crew.sizes, dtype=np.float64), instance.overlap)
        cuts = ideals.cut_offsets, ideals.cut_nets, ideals.cut_counts
        closed = ideals.closed[instance.row_of_crew[at]]
        rows = IdealRows(ideals.work, ideals.memory, closed, ideals.bits, instance.shared_memory, *cuts)
        memory_limit = min(instance.memory_limits[g] for g in leads)
        step = max(1, PAIRS_PER_CALL // len(lower))
        for begin in range(0, len(upper), step):
            if self.should_stop():
                return False
            pairs = Ends(upper[begin : begin + step], lower, most_work)
            extend_chains(pairs, rows, crew_rows, Limits(memory_limit, *limits), lower_value, value, parent)
        return True

    def _trace_back(self, state: tuple[int, ...], reached: Mapping[tuple[int, ...], Reached]) -> Chain:
        chain: Chain = []
        ideal = self.ideals.full
        while any(state):
            here = reached[state]
            at = int(np.flatnonzero(here.ideals == ideal)[0])
            crew = int(here.crew[at])
            chain.append((self.ideals.bits[ideal], crew))
            ideal, state = int(here.parent[at]), _less(state, self.instance.crews[crew].devices)
        return chain[::-1]


def _less(state: tuple[int, ...], devices: tuple[int, ...]) -> tuple[int, ...]:
    """Return the state without so many devices; with a negative number if it has fewer."""
    return tuple(n - take for n, take in zip(state, devices, strict=True))


@dataclass(frozen=True, slots=True)
class Reached:
    """The ideals that chains of one state have reached."""

    ideals: NDArray[np.int64]  # ``[num_reached]`` indices, by rising work
    value: NDArray[np.float64]  # ``[num_reached]`` best objective of a chain to each
    # parent, crew: ``[num_reached]`` the ideal before its last block, and the crew that runs the block
    parent: NDArray[np.int64]
    crew: NDArray[np.int64]

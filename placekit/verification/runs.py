r"""Problems whose groups form a chain, by a plain dynamic program over runs: the proof of method ``chain``, done again.

If every group feeds the next one, a convex part is a run of groups, and so is a part of an acyclic placement. So there
is a placement below a value iff runs, one per device or team of equal devices, cover the chain in less than that: added
up for the serial latency, the largest for the throughput.

Times and bytes are whole numbers of a unit as in :mod:`placekit.verification.ideals`: rounded down, what cannot be
reached then cannot be reached; rounded up, what can be reached can be. Runs that begin with one group are looked at
together: with each further end they gain its work, the tensors that it is the first in the run to read, and those that
it writes; and they lose the tensors whose last reader it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.objectives import SerialLatency, Throughput
from placekit.verification.exact import ExactProblem
from placekit.verification.graphs import topological_positions

MAX_WORK = 4_000_000_000
"""Runs times devices used so far, at most: some seconds."""


def runs_below(exact: ExactProblem, below: Fraction | None) -> bool | None:
    """Return whether some placement is below `below` seconds, or feasible if None; None if this is not the way to know.

    The problem must have a contiguity, and no cost of subgraphs.
    """
    variant, problem = exact.problem.objective, exact.problem
    if not isinstance(variant, SerialLatency | Throughput) or problem.contiguity == "none" or any(exact.is_backward):
        return None
    has_pins = any(pin is not None for pin in exact.pinned)
    if exact.team_rule == "any" or (exact.team_rule == "equal" and has_pins):
        return None
    if isinstance(variant, SerialLatency) and variant.subgraph_cost_s:
        return None
    if (below is not None and below <= 0) or any(not devices for devices in exact.allowed):
        return False
    chain = _chain(exact)
    if chain is None:
        return None
    most = None if below is None else below / exact.tick
    program = LinkedRunProgram if exact.has_links else RunProgram
    reaches = program(exact, chain, most, rounds_up=False).reaches()
    if not reaches:
        return reaches
    costs = problem.costs
    if exact.pools or (costs.blocks is not None and (not costs.blocks.is_weight.all() or any(exact.tensor_size))):
        return None  # of what shares memory only weights are looked at: a relaxation, in which more fits
    return True if program(exact, chain, most, rounds_up=True).reaches() else None


def _chain(exact: ExactProblem) -> list[int] | None:
    """Return the groups in their only order; None if they are no chain."""
    following: list[list[int]] = [[] for _ in exact.groups]
    for u, v in {(exact.group_of[u], exact.group_of[v]) for u, v in exact.order_edges}:
        if u != v:
            following[u].append(v)
    place = topological_positions(len(following), following)
    if None in place:
        return None
    order = sorted(range(len(place)), key=lambda group: place[group] or 0)
    return order if all(after in following[group] for group, after in pairwise(order)) else None


class RunProgram:
    """Search for runs of the groups in `order` that are below `most` ticks; any that fit if None."""

    def __init__(self, exact: ExactProblem, order: list[int], most: Fraction | None, *, rounds_up: bool) -> None:
        self.exact, self.order, self.rounds_up = exact, order, rounds_up
        at = {group: place for place, group in enumerate(order)}
        rows: dict[int, list[int]] = {}
        for device, alike in enumerate(exact.alike):
            rows.setdefault(alike, []).append(device)
        self.rows = list(rows.values())
        self.made: list[list[tuple[int, list[int]]]] = [[] for _ in order]  # tensors, and the places that read them
        for tensor, producer in enumerate(exact.producer):
            place = at[exact.group_of[producer]]
            readers = sorted({at[exact.group_of[op]] for op in exact.readers[tensor]} - {place})
            if readers:
                self.made[place].append((tensor, readers))
        self.has_teams = exact.team_rule == "equal"
        largest_team = max(map(len, self.rows)) if self.has_teams else 1
        terms = len(order) + 2 * len(exact.producer) + exact.num_devices + 1
        self.limit = 1 << (62 - (terms * largest_team).bit_length())
        self.never = self.limit * largest_team  # of a run: so much that no team shares it below the value
        self.most = most
        self.users = [sorted({at[exact.group_of[op]] for op in ops}) for ops in exact.blocks]
        is_weight = exact.problem.costs.blocks.is_weight.tolist() if exact.problem.costs.blocks is not None else []
        self.weights = [(size if stays else 0) for size, stays in zip(exact.block_size, is_weight, strict=True)]
        held = [sum(exact.memory[op] for op in exact.groups[group]) for group in order]
        self.shift = max((sum(held) + sum(self.weights)).bit_length() - 50, 0)
        self.held = np.array([self._shifted(size) for size in held], dtype=np.int64)
        self.shared = [self._shifted(size) for size in self.weights]

    def _shifted(self, size: int) -> int:
        return -(-size >> self.shift) if self.rounds_up else size >> self.shift

    def _units(self, ticks: int) -> int:
        if self.most is None:
            return 0
        top, bottom = ticks * self.limit * self.most.denominator, self.most.numerator
        return min(-(-top // bottom) if self.rounds_up else top // bottom, self.never)

    def reaches(self) -> bool | None:
        """Return whether there are such runs; None if there are too many."""
        exact, count = self.exact, len(self.order)
        is_sum = isinstance(exact.problem.objective, SerialLatency)
        sizes = [len(row) for row in self.rows]
        steps = np.cumprod([1, *(size + 1 for size in sizes)]).tolist()
        if steps[-1] * sum(sizes) * count**2 > MAX_WORK:
            return None
        used = [np.arange(steps[-1]) // step % (size + 1) for step, size in zip(steps, sizes, strict=False)]
        best = np.full((count + 1, steps[-1]), self.limit, dtype=np.int64)
        best[0, 0] = 0
        loads = [self._loads(row) for row in self.rows]
        for begin in range(count):
            for row, of_run in enumerate(loads):
                load = next(of_run)
                for devices in range(1, sizes[row] + 1 if self.has_teams else 2):
                    own = -(-load // devices) if self.rounds_up else load // devices
                    after = best[begin + 1 :]
                    before = np.flatnonzero((best[begin] < self.limit) & (used[row] + devices <= sizes[row]))
                    for state in before.tolist():
                        so_far = int(best[begin, state])
                        reached = so_far + own if is_sum else np.maximum(so_far, own)
                        grown = after[:, state + devices * steps[row]]
                        np.minimum(grown, reached, out=grown)
        return bool((best[-1] < self.limit).any())

    def _loads(self, row: list[int]) -> Iterator[NDArray[np.int64]]:
        """Yield for every group ``[ends]`` units of the runs that begin with it, by rising ends."""
        exact, count, device = self.exact, len(self.order), row[0]
        kind, limit = exact.kind[device], exact.limit[device]
        most_held = None if limit is None else (limit * (10**12 + 1) // 10**12) >> self.shift
        overlaps = getattr(exact.problem.objective, "overlap", False)
        is_able = [device in exact.allowed[group] for group in self.order]
        work = np.array(
            [
                self._units(sum(exact.ticks(op, device) for op in exact.groups[group])) if able else 0
                for group, able in zip(self.order, is_able, strict=True)
            ],
            dtype=np.int64,
        )
        cost = [[self._transfer(tensor, kind) for tensor, _ in made] for made in self.made]
        leaving = np.zeros(count + 1, dtype=np.int64)  # by the end of a run: written in it or before, and read behind
        for place, made in enumerate(self.made):
            for (_, readers), units in zip(made, cost[place], strict=True):
                leaving[place + 1 : readers[-1] + 1] += units
        open_: list[tuple[list[int], int]] = []  # tensors from before the run that are read in it or behind
        for begin in range(count):
            open_ = [(readers, units) for readers, units in open_ if readers[-1] >= begin]
            entering = np.zeros(count + 1, dtype=np.int64)
            for readers, units in open_:
                entering[readers[bisect_left(readers, begin)] + 1] += units
            moved = leaving[begin + 1 :] + np.cumsum(entering)[begin + 1 :]
            done = np.cumsum(work[begin:])
            load = np.maximum(done, moved) if overlaps else done + moved
            if False in is_able[begin:]:
                load[is_able.index(False, begin) - begin :] = self.never
            if most_held is not None:
                load[self._held_from(begin) > most_held] = self.never
            yield load
            for (_, readers), units in zip(self.made[begin], cost[begin], strict=True):
                leaving[begin + 1 : readers[-1] + 1] -= units
                open_.append((readers, units))

    def _transfer(self, tensor: int, kind: int) -> int:
        """Return what a run pays for a tensor that enters or leaves it, in units."""
        return self._units(self.exact.transfer[tensor][kind])

    def _held_from(self, begin: int) -> NDArray[np.int64]:
        """Return ``[ends]`` units of memory of the runs that begin with a group."""
        added = self.held[begin:].copy()
        for users, size in zip(self.users, self.shared, strict=True):
            if users[-1] >= begin:
                added[users[bisect_left(users, begin)] - begin] += size
        held: NDArray[np.int64] = np.cumsum(added)
        return held


class LinkedRunProgram(RunProgram):
    """As `RunProgram`, over direct links: what a run pays for tensors depends on the devices of both its neighbours.

    So the row of the last run and that of the next are part of the state. There are no teams, no overlap, and tensors
    go to the next group only.
    """

    def reaches(self) -> bool | None:
        """Return whether there are such runs; None if there are too many."""
        exact, count, num_rows = self.exact, len(self.order), len(self.rows)
        goes_to_next = all(readers == [at + 1] for at, made in enumerate(self.made) for _, readers in made)
        if self.has_teams or getattr(exact.problem.objective, "overlap", False) or not goes_to_next:
            return None
        sizes = [len(row) for row in self.rows]
        steps = np.cumprod([1, *(size + 1 for size in sizes)]).tolist()
        if steps[-1] * (num_rows + 1) ** 3 * count**2 > MAX_WORK:
            return None
        is_sum = isinstance(exact.problem.objective, SerialLatency)
        used = [np.arange(steps[-1]) // step % (size + 1) for step, size in zip(steps, sizes, strict=False)]
        entering, leaving = self._crossing()
        # by groups that are placed, row of the last run, row of the next, and devices used
        best = np.full((count + 1, num_rows + 1, num_rows + 1, steps[-1]), self.limit, dtype=np.int64)
        best[0, num_rows, :, 0] = 0
        loads = [self._loads(row) for row in self.rows]
        for begin in range(count):
            for row, of_run in enumerate(loads):
                work = next(of_run)
                for last in range(num_rows + 1):
                    so_far = best[begin, last, row]
                    for state in np.flatnonzero((so_far < self.limit) & (used[row] < sizes[row])).tolist():
                        for after in range(num_rows + 1):
                            own = work + entering[last, row, begin] + leaving[row, after, begin + 1 :]
                            reached = so_far[state] + own if is_sum else np.maximum(so_far[state], own)
                            grown = best[begin + 1 :, row, after, state + steps[row]]
                            np.minimum(grown, reached, out=grown)
        return bool((best[-1, :, num_rows] < self.limit).any())

    def _transfer(self, tensor: int, kind: int) -> int:  # noqa: ARG002  # `_crossing` counts it
        return 0

    def _crossing(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``[rows + 1, rows + 1, groups + 1]`` units that the second row, and the first, pay for what enters a group.

        The last row stands for none.
        """
        exact, num_rows = self.exact, len(self.rows)
        both_pay = exact.problem.objective.direct_ends == 2
        entering, leaving = np.zeros((2, num_rows + 1, num_rows + 1, len(self.order) + 1), dtype=np.int64)
        for a, senders in enumerate(self.rows):
            for b, receivers in enumerate(self.rows):
                source, target = senders[0], receivers[-1]
                link = exact.link[source][target]
                for place, made in enumerate(self.made):
                    for tensor, _ in made:
                        if link is None:
                            entering[a, b, place + 1] += self._units(exact.transfer[tensor][exact.kind[target]])
                            leaving[a, b, place + 1] += self._units(exact.transfer[tensor][exact.kind[source]])
                        else:
                            units = self._units(exact.direct[tensor][link])
                            entering[a, b, place + 1] += units
                            leaving[a, b, place + 1] += units if both_pay else 0
        return entering, leaving

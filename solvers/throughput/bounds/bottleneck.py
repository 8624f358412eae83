r"""The bottleneck bound: one device in full detail, all others as crowds.

Take any feasible placement and any group :math:`\kappa` of :math:`n_\kappa` equal devices. Let :math:`S` be what the
device of :math:`\kappa` with the **most work** holds (work, not load; over all passes). Then

1. *its own load is paid in full*: work of :math:`S` plus every net that touches :math:`S` and leaves it is at most
   the objective;
2. *nobody of its group works more*: the other :math:`n_\kappa - 1` devices together do at most :math:`n_\kappa - 1`
   times its work, so :math:`S` has at least the average work of its group: it cannot be small, and a set that is
   not small has to be cut out of the graph;
3. *the others are crowds*: per group, the loads of the others add up to at most their number times the objective;
   their work is that of the classes they hold, in whatever shares, and a net that touches a crowd and leaves it is
   paid by at least one of its devices; their bytes are at most their number times the limit;
4. *contiguity*: `convex` and `acyclic` make :math:`S` a difference of two down-sets of the order graph,
   :math:`S = I_1 \setminus I_0` (everything before or in :math:`S`, less :math:`S`: a path cannot leave and return).
   Under `acyclic` the devices form a chain, so the crowds split in two: those before :math:`S`, who hold exactly
   :math:`I_0`, and those after, who hold the rest; the number :math:`a_g` of devices of group :math:`g` before
   :math:`S` is an integer, and if a placement of value `UB` is known, only placements of at most that value need to
   be bounded, so the crowd before :math:`S` has at most :math:`a_g UB` of load, the crowd after it
   :math:`(n'_g - a_g) UB`.

5. *more than one in detail*: without a chain (`none`, `convex`) the same is true of the :math:`m` devices with the most
   work, :math:`S_1, S_2, \ldots` in that order: each pays in full, they share no class, each works at least as much as
   the next, and the crowd of its group works at most its number times what :math:`S_m` does. With one of them the
   program is small; with all of them it is exact.

Items 1 to 5 are the rows of an integer program: binaries for :math:`I_0` and :math:`I_1` (for `none`, for
:math:`S`), continuous shares for the crowds. Every feasible placement of value at most `UB` gives a solution of the
program whose objective is not above the placement's; so the program's optimum, and HiGHS's dual bound at any time, are
below the optimum of the problem. This is true for every group, so the best group counts. The size does not depend on
the number of devices, and devices of one group are never told apart: that is why it closes where the full program
(one slot per device) does not.

Item 2 is the "some block has at least the average work" of Archer et al.; several groups, memory, training passes, the
counts before and after, and the transfers of the crowds are ours.

References
----------
Archer, Fahrbach, Liu, Prabhu, "Practical Performance Guarantees for Pipelined DNN Inference", ICML 2024,
arXiv 2311.03703.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.errors import ProgramTooLargeError
from placekit.model.problem import Problem
from placekit.solvers.backends.building import ARRAYS, Building, no_step, time_until
from placekit.solvers.backends.program import Program
from placekit.solvers.throughput.bounds.groups import Machines, machines_of

logger = logging.getLogger(__name__)

CEILING = 100.0
"""The program is scaled so that the best objective known is this much: solver tolerances are absolute."""

Linear = dict[int, float]
"""Terms: column -> coefficient."""


def bottleneck(
    problem: Problem,  # a problem with the throughput objective
    *,
    time_limit_s: float = math.inf,  # time for all groups together
    # objective of a feasible placement: makes the program smaller and its bound better
    upper_bound_s: float | None = None,
    num_detailed: int = 1,  # devices in full detail (item 5), at most; one under `Contiguity.ACYCLIC`
    should_stop: Callable[[], bool] | None = None,  # asked often; True ends the search with the bound so far
) -> tuple[float | None, bool]:
    """Return the bound of the module docstring in seconds, None if nothing is proven; and whether it is closed.

    It is if every program was solved to its end. Then more time changes nothing and more devices in detail may; if not,
    a larger program has no chance either.
    """
    deadline = perf_counter() + time_limit_s
    machines = machines_of(problem, upper_bound_s)
    if not machines.has_home:
        return None, True
    # a device that pays for no transfer says no more than the average work does: those groups come last, if at all
    pays = machines.net_time_s.sum(axis=(0, 2)) > 0
    groups = sorted(range(machines.num_groups), key=lambda g: (not pays[g], -int(machines.count[g])))
    groups = [g for g in groups if pays[g]] or groups[:1]
    best: float | None = None
    is_closed = True
    for at, group in enumerate(groups):
        left_s = (deadline - perf_counter()) / (len(groups) - at)
        if left_s <= 0 or (should_stop is not None and should_stop()):
            return best, False
        end_s = perf_counter() + left_s
        try:
            coefficients = count_coefficients(machines, group, num_detailed)
            step = Building("integer program", coefficients, ARRAYS, time_until(end_s))
            program = BottleneckProgram(machines, group, upper_bound_s, num_detailed, step)
        except ProgramTooLargeError as error:
            logger.info("%s", error)
            is_closed = False
            continue
        outcome = program.rows.solve(end_s - perf_counter(), should_stop)
        is_closed &= outcome.status != "stopped"
        found = program.rows.proven_s(outcome, program.unit_s)
        if found is not None and upper_bound_s is not None:
            found = min(found, upper_bound_s)  # it speaks of placements up to that value only
        if found is not None and (best is None or found > best):
            best = found
    return best, is_closed


class BottleneckProgram:
    r"""The integer program for one group.

    Parameters
    ----------
    group
        The group :math:`\kappa` of the device that is looked at in detail.
    upper_bound_s
        Objective of a feasible placement, in seconds; None if none is known.
    num_detailed
        Devices in full detail, at most.
    step
        Called whenever the program grows.

    Attributes
    ----------
    rows : Program
        The program; its objective is in units of `unit_s`.
    unit_s : float
        Seconds per unit.
    """

    def __init__(
        self,
        machines: Machines,
        group: int,
        upper_bound_s: float | None,
        num_detailed: int = 1,
        step: Callable[[], None] = no_step,
    ) -> None:
        self.machines, self.group, self.upper_bound_s = machines, group, upper_bound_s
        ceiling_s = upper_bound_s
        if ceiling_s is None:
            ceiling_s = float(machines.time_s.max(axis=1).sum() + machines.net_time_s.max(axis=1, initial=0.0).sum())
        self.unit_s = max(ceiling_s / CEILING, 1e-290)
        self.time = machines.time_s / self.unit_s
        # a net that costs more than everything allowed only needs to cost more
        self.net_time = np.minimum(machines.net_time_s / self.unit_s, 2 * CEILING)
        self.others = machines.count.copy()
        chain = machines.contraction.problem.contiguity is Contiguity.ACYCLIC
        self.num_detailed = 1 if chain else min(num_detailed, int(machines.count[group]))
        self.others[group] -= self.num_detailed
        self.rows = Program(step)
        top = CEILING * (1 + 1e-6)  # without an upper bound the ceiling is what no placement exceeds
        self.level = [self.rows.column(0.0, top, cost=1.0) for _ in machines.passes]
        if upper_bound_s is not None:
            self.rows.row(dict.fromkeys(self.level, 1.0), high=top)
        self.before: list[Linear] = []
        self.detailed = [self._choose_set() for _ in range(self.num_detailed)]
        self.inside = [_sum(*((inside[c], 1.0) for inside in self.detailed)) for c in range(machines.num_classes)]
        if self.num_detailed > 1:
            for terms in self.inside:
                self.rows.row(terms, high=1.0)
        self.crowds: list[tuple[int, bool | None, dict[int, int]]] = []
        self._share_the_rest()
        self._pay_for_bottleneck()
        self._pay_for_crowds()

    # 4: which sets the bottleneck device may hold

    def _choose_set(self) -> list[Linear]:
        """``[num_classes]`` expressions that are 1 for the classes in one set that a device of the group may hold."""
        contraction, rows = self.machines.contraction, self.rows
        contiguity = contraction.problem.contiguity
        num_classes = self.machines.num_classes
        inside: list[Linear] = [{} for _ in range(num_classes)]
        if contiguity is Contiguity.NONE:
            inside = [{rows.column(is_integer=True): 1.0} for _ in range(num_classes)]
        elif contiguity is Contiguity.ACYCLIC:
            low, high = self._down_sets(num_classes, contraction.senders.tolist(), contraction.receivers.tolist())
            inside = [{high[c]: 1.0, low[c]: -1.0} for c in range(num_classes)]
            self.before = [{low[c]: 1.0} for c in range(num_classes)]
        else:  # convexity is about ops: a class need not be convex itself
            senders, receivers = contraction.problem.order_edges
            num_ops = contraction.problem.graph.num_ops
            low, high = self._down_sets(num_ops, senders.tolist(), receivers.tolist())
            for op, c in enumerate(contraction.class_of_op.tolist()):
                if not inside[c]:
                    inside[c] = {high[op]: 1.0, low[op]: -1.0}
                else:
                    rows.row(_sum((inside[c], 1.0), ({high[op]: 1.0, low[op]: -1.0}, -1.0)), 0.0, 0.0)
        for c in np.flatnonzero(~self.machines.allowed[:, self.group]).tolist():
            rows.row(inside[c], 0.0, 0.0)
        return inside

    def _down_sets(self, num_nodes: int, senders: list[int], receivers: list[int]) -> tuple[list[int], list[int]]:
        """Columns of two nested down-sets, the smaller one first."""
        low = [self.rows.column(is_integer=True) for _ in range(num_nodes)]
        high = [self.rows.column(is_integer=True) for _ in range(num_nodes)]
        for v in range(num_nodes):
            self.rows.row({low[v]: 1.0, high[v]: -1.0}, high=0.0)
        for u, v in zip(senders, receivers, strict=True):
            self.rows.row({low[v]: 1.0, low[u]: -1.0}, high=0.0)
            self.rows.row({high[v]: 1.0, high[u]: -1.0}, high=0.0)
        return low, high

    # 3: who holds the rest

    def _share_the_rest(self) -> None:
        machines, rows = self.machines, self.rows
        sides: list[bool | None] = [True, False] if self.before else [None]
        for g in np.flatnonzero(self.others).tolist():
            columns = [{c: rows.column() for c in np.flatnonzero(machines.allowed[:, g]).tolist()} for _ in sides]
            self.crowds += [(g, side, shares) for side, shares in zip(sides, columns, strict=True)]
        for c in range(machines.num_classes):
            for side in sides:
                shares = {held[c]: 1.0 for _, at, held in self.crowds if at is side and c in held}
                if side is None:
                    rows.row(_sum((shares, 1.0), (self.inside[c], 1.0)), 1.0, 1.0)
                elif side:
                    rows.row(_sum((shares, 1.0), (self.before[c], -1.0)), 0.0, 0.0)
                else:
                    rows.row(_sum((shares, 1.0), (self.inside[c], 1.0), (self.before[c], 1.0)), 1.0, 1.0)

    # 1 and 2

    def _pay_for_bottleneck(self) -> None:
        machines, rows, g = self.machines, self.rows, self.group
        everything = range(machines.num_classes)
        limit = float(machines.memory_limit_bytes[g])
        total = self.time[:, g, :].sum(axis=1)
        works: list[Linear] = []
        for inside in self.detailed:
            moves = self._cut_columns(g, dict(enumerate(inside)))
            for p, level in enumerate(self.level):
                work = _sum(*((inside[c], float(self.time[c, g, p])) for c in everything))
                moved = {moves[n]: float(self.net_time[n, g, p]) for n in moves}
                for load in [work, moved] if machines.has_overlap else [_sum((work, 1.0), (moved, 1.0))]:
                    rows.row(_sum((load, 1.0), ({level: 1.0}, -1.0)), high=0.0)
            if math.isfinite(limit):
                size = machines.contraction.memory_bytes / limit
                rows.row(_sum(*((inside[c], float(size[c])) for c in everything)), high=1.0)
            works.append(_sum(*((inside[c], float(total[c])) for c in everything)))
        for more, less in pairwise(works):
            rows.row(_sum((less, 1.0), (more, -1.0)), high=0.0)
        crowd = [{held[c]: float(total[c]) for c in held} for at, _, held in self.crowds if at == g]
        if crowd:
            rows.row(_sum(*((terms, 1.0) for terms in crowd), (works[-1], -float(self.others[g]))), high=0.0)

    def _pay_for_crowds(self) -> None:
        machines, rows = self.machines, self.rows
        load: dict[tuple[int, int, str], list[Linear]] = {}
        size = machines.contraction.memory_bytes
        ahead = {
            g: rows.column(0.0, float(self.others[g]), is_integer=True) for g, side, _ in self.crowds if side is True
        }
        for g, side, held in self.crowds:
            count = float(self.others[g])
            # devices of the group on this side of the bottleneck, as a constant and a term
            crowd: tuple[float, Linear] = (count, {})
            if side is not None:
                crowd = (0.0, {ahead[g]: 1.0}) if side else (count, {ahead[g]: -1.0})
            moves = self._cut_columns(g, {c: {column: 1.0} for c, column in held.items()})
            for p in range(len(self.level)):
                work = {column: float(self.time[c, g, p]) for c, column in held.items()}
                moved = {moves[n]: float(self.net_time[n, g, p]) for n in moves}
                parts = {"work": work, "moved": moved}
                if not machines.has_overlap:
                    parts = {"load": _sum((work, 1.0), (moved, 1.0))}
                for what, terms in parts.items():
                    load.setdefault((g, p, what), []).append(terms)
                    if side is not None and self.upper_bound_s is not None:
                        top = CEILING * (1 + 1e-6)
                        rows.row(_sum((terms, 1.0), (crowd[1], -top)), high=crowd[0] * top)
            limit = float(machines.memory_limit_bytes[g])
            if math.isfinite(limit):
                terms = {column: float(size[c] / limit) for c, column in held.items()}
                rows.row(_sum((terms, 1.0), (crowd[1], -1.0)), high=crowd[0])
            elif crowd[1]:
                # no device on this side, nothing held on this side
                for column in held.values():
                    rows.row(_sum(({column: 1.0}, 1.0), (crowd[1], -1.0)), high=crowd[0])
        for (g, p, _), both_sides in load.items():
            top_load = _sum(*((terms, 1.0) for terms in both_sides), ({self.level[p]: 1.0}, -float(self.others[g])))
            rows.row(top_load, high=0.0)

    def _cut_columns(self, group: int, member: dict[int, Linear]) -> dict[int, int]:
        """Columns that are 1 where a net touches a set and leaves it, for the nets that `group` pays for.

        A net is inside or outside iff all its pins agree with its producer; `member` may be fractional, then the
        column is at least the largest difference.
        """
        contraction, rows = self.machines.contraction, self.rows
        columns: dict[int, int] = {}
        for n in np.flatnonzero(self.net_time[:, group].any(axis=1)).tolist():
            producer, *readers = contraction.pins_of(n).tolist()
            column = columns[n] = rows.column()
            for reader in readers:
                difference = _sum((member.get(producer, {}), 1.0), (member.get(reader, {}), -1.0))
                rows.row(_sum((difference, 1.0), ({column: 1.0}, -1.0)), high=0.0)
                rows.row(_sum((difference, -1.0), ({column: 1.0}, -1.0)), high=0.0)
        return columns


def count_coefficients(machines: Machines, group: int, num_detailed: int) -> float:
    """Return about how many coefficients the program of a group has."""
    contraction = machines.contraction
    contiguity, edges = contraction.problem.contiguity, 0.0
    per_member, num_sides = 1 if contiguity is Contiguity.NONE else 2, 2 if contiguity is Contiguity.ACYCLIC else 1
    if contiguity is not Contiguity.NONE:
        edges = 4.0 * len(contraction.problem.order_edges[0]) + 2.0 * contraction.problem.graph.num_ops
    readers = np.diff(contraction.net_offsets) - 1
    ends = 2.0 * readers @ (machines.net_time_s > 0).max(axis=2)
    of_sets = edges + ends[group] * (2 * per_member + 1) + 5.0 * per_member * machines.num_classes
    of_crowds = 3.0 * float(ends.sum()) + 5.0 * machines.num_groups * machines.num_classes
    return float(num_detailed * of_sets + num_sides * of_crowds)


def _sum(*parts: tuple[Linear, float]) -> Linear:
    total: Linear = {}
    for terms, factor in parts:
        for column, coefficient in terms.items():
            total[column] = total.get(column, 0.0) + factor * coefficient
    return total

r"""Integer program of a contracted problem, as a PuLP model.

With :math:`x_{cs} = 1` iff class :math:`c` is in slot :math:`s` (:mod:`placekit.solvers.assignment.ilp.membership`),
and :math:`q_{ns} = 1` if net :math:`n` has classes in slot :math:`s` and elsewhere,

.. math::

   \text{throughput:}\quad & \min T, \quad
       \sum_c t_{cs} x_{cs} + \sum_n w_{ns} q_{ns} \le T \quad \forall s \\
   \text{serial latency:}\quad & \min \sum_{cs} t_{cs} x_{cs} + \sum_{ns} w_{ns} q_{ns} + a \sum_d u_d \\
   \text{cut:}\quad & q_{ns} \ge |x_{ps} - x_{p's}| \quad \text{for the producer } p \text{ and every reader } p' \\
   \text{memory:}\quad & \sum_c m_c x_{cs} \le M_s \\
   \text{convex:}\quad & f_{vs} \ge x_{us} - x_{vs},\; f_{vs} \ge f_{us},\; x_{vs} + f_{vs} \le 1
       \quad \text{for every edge } u \to v

(:math:`f_{vs}`: some path left slot :math:`s` on its way to op :math:`v`). The cut rows are exact: all pins of a net
are on one side if and only if each agrees with the producer. For serial latency the number of used devices replaces the
number of subgraphs. It is never larger, so the optimum of the program is then a lower bound.

References
----------
Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020, section 4; the
ordered form is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pulp
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.model.memory import MEMORY_TOLERANCE
from placekit.objectives import Loads
from placekit.solvers.assignment.ilp.membership import (
    AssignmentMembership,
    Linear,
    Membership,
    OrderedMembership,
    linear_row,
)
from placekit.solvers.assignment.ilp.slots import left_before, slot_chain
from placekit.solvers.assignment.memory_rows import (
    PoolRow,
    Shared,
    excesses,
    memory_row,
    opening_positions,
    overfull_pools,
    pool_rows,
)
from placekit.solvers.assignment.teams import NO_ROWS, TeamRows
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.pulp_highs import WatchedLp
from placekit.solvers.generic.coarsen import Contraction

CEILING = 100.0
"""Value of the best known objective in the units of the program: solver tolerances are absolute."""


class IlpModel:
    """Variables, constraints and objective, and conversion between placements and values.

    Parameters
    ----------
    contraction
        The contracted problem, under `Throughput` or `SerialLatency`.
    ceiling_s
        Objective of a feasible placement, in seconds; None if none is known. A class is excluded from devices on which
        the class alone takes longer, and a more costly net is clipped just above the ceiling. So all coefficients are
        between 0 and about `CEILING`: solvers have absolute tolerances, and fail if coefficients differ too much.
    teams
        Rows of spare teams (:mod:`placekit.solvers.assignment.teams`).

    step
        Called whenever the program grows.

    Attributes
    ----------
    lp : pulp.LpProblem
        The model.
    unit_s : float
        Seconds per unit of the model's objective. Dividing by it is exact to one rounding (relative 1.1e-16).
    """

    def __init__(
        self,
        contraction: Contraction,
        ceiling_s: float | None,
        step: Callable[[], None] = no_step,
        teams: TeamRows = NO_ROWS,
    ) -> None:
        self.contraction = contraction = _narrow(contraction, ceiling_s)
        problem = contraction.problem
        loads = problem.objective.loads(problem) or Loads()
        if ceiling_s is None:
            ceiling_s = float(contraction.time_s.max(axis=1).sum() + contraction.net_time_s.sum())
            ceiling_s += loads.subgraph_cost_s * problem.platform.num_devices
        self.unit_s = max(ceiling_s / CEILING, 1e-290)
        self.lp = WatchedLp("placement", step)
        self.membership: Membership = (
            OrderedMembership(self.lp, contraction)
            if problem.contiguity is Contiguity.ACYCLIC
            else AssignmentMembership(self.lp, contraction)
        )
        self.num_slots = len(self.membership.slot_device)
        self.kind_of_slot = problem.platform.kind_of_device[self.membership.slot_device]
        self.cut: dict[tuple[int, int], pulp.LpVariable] = {}
        self.left: dict[tuple[int, int], pulp.LpVariable] = {}
        self.level: dict[str, pulp.LpVariable] = {}
        self.loads: list[tuple[str, pulp.LpAffineExpression]] = []
        self.device_used: dict[int, pulp.LpVariable] = {}
        self.covers: set[tuple[int, ...]] = set()
        self.shared: dict[pulp.LpVariable, tuple[int, Shared]] = {}
        self._variable_of: dict[tuple[int, str, tuple[int, ...], tuple[int, ...]], pulp.LpVariable] = {}
        self.held: dict[int, pulp.LpVariable] = {}
        # what the program refuses, its bounds refuse: the rows know the limits of the judge, whose sums are rounded
        self._most_bytes = problem.platform.memory_limits_bytes * (1 + MEMORY_TOLERANCE)
        self._constrain_memory()
        if problem.has_tight_blocks:
            for position in opening_positions(contraction):
                self._limit_at(position)
        self._constrain_teams(teams)
        self._constrain_cuts()
        if problem.contiguity is Contiguity.CONVEX:
            self._constrain_convexity()
        if loads.is_total:
            self._minimise_total(loads)
        else:
            self._minimise_largest_load(loads)

    # constraints

    def _constrain_memory(self) -> None:
        """Limit the bytes of every slot, in units of its limit."""
        size = self.contraction.memory_bytes
        for s, device in enumerate(self.membership.slot_device):
            limit = self._most_bytes[device]
            fits = np.flatnonzero(self.contraction.allowed[:, device] & (size > 0))
            if size[fits].sum() > limit:
                parts = [(self.membership.at(int(c), s), float(size[c] / limit)) for c in fits]
                self.lp.addConstraint(linear_row(*parts) <= 1, f"memory_{s}")
        for number, pool in enumerate(pool_rows(self.contraction.problem)):
            limit = pool.most_bytes * (1 + MEMORY_TOLERANCE)
            parts = [(x, float(size[c] / limit)) for c in np.flatnonzero(size).tolist() for x in self._in_pool(pool, c)]
            self.lp.addConstraint(linear_row(*parts) <= 1, f"pool_{number}")

    def _in_pool(self, pool: PoolRow, c: int) -> list[Linear]:
        """Return the expressions of a class in the slots of the devices of a pool."""
        slots = [s for s, device in enumerate(self.membership.slot_device) if device in pool.devices]
        return [self.membership.at(c, s) for s in slots]

    def _limit_at(self, position: int) -> bool:
        """Add the rows of a position (:mod:`placekit.solvers.assignment.memory_rows`); False if they exist."""
        key = (-1, position)
        if key in self.covers:
            return False
        self.covers.add(key)
        row = memory_row(self.contraction, position)
        for s, device in enumerate(self.membership.slot_device):
            limit = self._most_bytes[device]
            if row.most_bytes <= limit:
                continue
            fits = np.flatnonzero(self.contraction.allowed[:, device] & (row.class_bytes > 0))
            parts = [(self.membership.at(int(c), s), float(row.class_bytes[c] / limit)) for c in fits]
            parts += [(([(self._shared_at(each, s), 1.0)], 0.0), each.num_bytes / limit) for each in row.shared]
            self.lp.addConstraint(linear_row(*parts) <= 1, f"memory_{s}_at_{position}")
        return True

    def _shared_at(self, shared: Shared, s: int) -> pulp.LpVariable:
        """Return the variable that is 1 where the shared bytes count in slot `s`."""
        key = (s, shared.rule, shared.first, shared.last)
        if key in self._variable_of:
            return self._variable_of[key]
        name = f"shared_{len(self._variable_of)}"
        variable = self._variable_of[key] = self.lp.add_variable(name, 0, 1)
        self.shared[variable] = s, shared
        here: Linear = ([(variable, 1.0)], 0.0)
        at = [self.membership.at(c, s) for c in shared.first]
        rows: list[tuple[list[tuple[Linear, float]], float]] = []
        if shared.rule == "any":
            rows = [([(x, 1.0)], 0.0) for x in at]
        elif shared.rule == "split":
            rows = [([(at[0], sign), (x, -sign)], 0.0) for x in at[1:] for sign in (1.0, -1.0)]
        else:
            for a, x in zip(shared.first, at, strict=True):
                if a in shared.last:
                    rows.append(([(x, 1.0)], 0.0))
                    continue
                rows += [
                    ([(x, 1.0), (self.membership.at(b, s), 1.0)], 1.0) for b in shared.last if b not in shared.first
                ]
        for number, (parts, most) in enumerate(rows):
            self.lp.addConstraint(linear_row(*parts, (here, -1.0)) <= most, f"{name}_{number}")
        return variable

    def _constrain_teams(self, teams: TeamRows) -> None:
        """Limit the devices of used slots per kind, and the pinned members of a slot to its size."""
        seats, size = teams.seats, teams.takes.sum(axis=0)
        for s in range(self.num_slots if len(teams.most) else 0):
            held = self.held[s] = self.lp.add_variable(f"held_{s}", cat="Binary")
            for c in np.flatnonzero(self.contraction.allowed[:, self.membership.slot_device[s]]).tolist():
                row = linear_row((self.membership.at(c, s), 1.0), (([(held, 1.0)], 0.0), -1.0))
                self.lp.addConstraint(row <= 0, f"held_{c}_{s}")
            pinned = [(self.membership.at(c, s), float(seats[c])) for c in np.flatnonzero(seats).tolist()]
            if (room := int(size[self.membership.slot_device[s]])) < seats.sum():
                self.lp.addConstraint(linear_row(*pinned) <= room, f"seats_{s}")
        for kind, most in enumerate(teams.most.tolist()):
            takes = teams.takes[kind, self.membership.slot_device].tolist()
            row = pulp.LpAffineExpression([(self.held[s], take) for s, take in enumerate(takes) if take])
            self.lp.addConstraint(row <= most, f"budget_{kind}")

    def forbid_together(self, device_of_op: NDArray[np.int64]) -> None:
        """Forbid sets of classes that overfill a device by less than the solver's tolerance.

        `evaluate` counts bytes exactly, a solver does not. A cover inequality forbids the set on all devices of the
        kind. If shared memory does not fit, missing rows are added first.
        """
        problem = self.contraction.problem
        for pool, classes in overfull_pools(self.contraction, device_of_op):
            if (-2, *pool.devices, *classes) not in self.covers:
                self.covers.add((-2, *pool.devices, *classes))
                row = linear_row(*((x, 1.0) for c in classes for x in self._in_pool(pool, c)))
                self.lp.addConstraint(row <= len(classes) - 1, f"pool_cover_{len(self.covers)}")
        for excess in excesses(self.contraction, device_of_op):
            if problem.has_tight_blocks and self._limit_at(excess.position):
                continue
            kind = int(problem.platform.kind_of_device[excess.device])
            cover = (kind, *np.flatnonzero(excess.classes).tolist())
            if cover in self.covers:
                continue
            self.covers.add(cover)
            # a larger set may need less: then only this set is forbidden
            signs = np.where(excess.classes, 1.0, 0.0 if excess.grows else -1.0).tolist()
            for s in np.flatnonzero(self.kind_of_slot == kind).tolist():
                row = linear_row(*((self.membership.at(c, s), sign) for c, sign in enumerate(signs) if sign))
                self.lp.addConstraint(row <= int(excess.classes.sum()) - 1, f"cover_{len(self.covers)}_{s}")

    def _constrain_cuts(self) -> None:
        """Set ``q[n, s] = 1`` if net n has classes in slot s and elsewhere, for slots that pay for the net."""
        contraction, at = self.contraction, self.membership.at
        for n in range(contraction.num_nets):
            producer, *readers = contraction.pins_of(n).tolist()
            for s in range(self.num_slots):
                if not contraction.net_time_s[n, self.kind_of_slot[s]].any():
                    continue
                q = self.cut[n, s] = self.lp.add_variable(f"q_{n}_{s}", 0, 1)
                cut: Linear = ([(q, 1.0)], 0.0)
                for reader in readers:
                    ends = at(producer, s), at(reader, s)
                    row = linear_row((ends[0], 1.0), (ends[1], -1.0), (cut, -1.0))
                    self.lp.addConstraint(row <= 0, f"leaves_{n}_{reader}_{s}")
                    row = linear_row((ends[0], -1.0), (ends[1], 1.0), (cut, -1.0))
                    self.lp.addConstraint(row <= 0, f"enters_{n}_{reader}_{s}")

    def _constrain_convexity(self) -> None:
        """Forbid paths of ops that leave a slot and return; classes need not be convex themselves."""
        senders, receivers = self.contraction.problem.order_edges
        class_of_op, at = self.contraction.class_of_op, self.membership.at
        for s in range(self.num_slots):
            f = {v: self.lp.add_variable(f"f_{v}_{s}", 0, 1) for v in np.unique(receivers).tolist()}
            for v, variable in f.items():
                self.left[v, s] = variable
                row = linear_row((at(int(class_of_op[v]), s), 1.0), (([(variable, 1.0)], -1.0), 1.0))
                self.lp.addConstraint(row <= 0, f"never_returns_{v}_{s}")
            for u, v in zip(senders.tolist(), receivers.tolist(), strict=True):
                gone: Linear = ([(f[v], 1.0)], 0.0)
                ends = at(int(class_of_op[u]), s), at(int(class_of_op[v]), s)
                row = linear_row((ends[0], 1.0), (ends[1], -1.0), (gone, -1.0))
                self.lp.addConstraint(row <= 0, f"gone_{u}_{v}_{s}")
                if u in f:
                    self.lp.addConstraint(pulp.LpAffineExpression([(f[u], 1), (f[v], -1)]) <= 0, f"stays_{u}_{v}_{s}")

    # objectives

    def _work(self, slot: int, passes: list[int]) -> list[tuple[Linear, float]]:
        time = self.contraction.time_s[:, self.kind_of_slot[slot], :][:, passes].sum(axis=1) / self.unit_s
        time = np.where(self.contraction.allowed[:, self.membership.slot_device[slot]], time, 0.0)
        return [(self.membership.at(int(c), slot), float(time[c])) for c in np.flatnonzero(time)]

    def _moves(self, slot: int, passes: list[int]) -> list[tuple[Linear, float]]:
        time = self.contraction.net_time_s[:, self.kind_of_slot[slot], :][:, passes].sum(axis=1) / self.unit_s
        time = np.minimum(time, 2 * CEILING)
        return [(([(self.cut[int(n), slot], 1.0)], 0.0), float(time[n])) for n in np.flatnonzero(time)]

    def _minimise_largest_load(self, loads: Loads) -> None:
        """Minimise T, which is at least the load of every slot, per pass if the schedule separates them."""
        passes = {"fw": [0], "bw": [1]} if loads.has_passes else {"all": [0, 1]}
        for name, of_pass in passes.items():
            level = self.level[name] = self.lp.add_variable(f"T_{name}", 0, CEILING * (1 + 1e-6))
            at_level: Linear = ([(level, 1.0)], 0.0)
            for s in range(self.num_slots):
                work, moves = self._work(s, of_pass), self._moves(s, of_pass)
                for i, parts in enumerate([work, moves] if loads.has_overlap else [work + moves]):
                    self.loads.append((name, linear_row(*parts)))
                    self.lp.addConstraint(linear_row(*parts, (at_level, -1.0)) <= 0, f"load_{name}_{s}_{i}")
        self.lp.setObjective(pulp.lpSum(self.level.values()))

    def _minimise_total(self, loads: Loads) -> None:
        """Minimise the sum of all loads, plus the cost of one subgraph per used device."""
        parts: list[tuple[Linear, float]] = []
        for s in range(self.num_slots):
            parts += self._work(s, [0, 1]) + self._moves(s, [0, 1])
            if loads.subgraph_cost_s:
                used = self.device_used[s] = self.lp.add_variable(f"device_used_{s}", 0, 1)
                parts.append((([(used, 1.0)], 0.0), loads.subgraph_cost_s / self.unit_s))
                for c in range(self.contraction.num_classes):
                    row = linear_row((self.membership.at(c, s), 1.0), (([(used, 1.0)], 0.0), -1.0))
                    self.lp.addConstraint(row <= 0, f"device_used_{c}_{s}")
        self.lp.setObjective(linear_row(*parts))

    @property
    def is_exact(self) -> bool:
        """False if the program undercounts subgraphs: its objective is then only a lower bound."""
        return not self.device_used

    # placements

    def encode(self, device_of_op: NDArray[np.int64]) -> dict[pulp.LpVariable, float]:
        """Return a value for every variable, for a placement that is feasible for the problem."""
        contraction = self.contraction
        slot, values = self.membership.encode(contraction.restrict(device_of_op))
        for (n, s), variable in self.cut.items():
            inside = slot[contraction.pins_of(n)] == s
            values[variable] = float(inside.any() and not inside.all())
        for variable, (s, shared) in self.shared.items():
            values[variable] = float(shared.counts(slot == s))
        if self.left:
            values |= self._encode_convexity(slot[contraction.class_of_op])
        for s, variable in (*self.device_used.items(), *self.held.items()):
            values[variable] = float((slot == s).any())
        for level in self.level.values():
            values[level] = 0.0
        for name, load in self.loads:
            level = self.level[name]
            values[level] = max(values[level], load.constant + sum(a * values[v] for v, a in load.items()))
        return values

    def _encode_convexity(self, slot_of_op: NDArray[np.int64]) -> dict[pulp.LpVariable, float]:
        along = edges_along_order(len(slot_of_op), *self.contraction.problem.order_edges)
        gone = [left_before(slot_of_op == s, *along) for s in range(self.num_slots)]
        return {variable: float(gone[s][v]) for (v, s), variable in self.left.items()}

    def decode(self, values: dict[pulp.LpVariable, float]) -> NDArray[np.int64]:
        """Return ``[num_ops]`` devices from the values of the variables."""
        return self.contraction.expand(self.membership.decode(values))


def count_coefficients(contraction: Contraction) -> float:
    """Return about how many coefficients the program of a contraction has."""
    problem = contraction.problem
    groups, num_classes = contraction.interchangeable, contraction.num_classes
    is_chain = problem.contiguity is Contiguity.ACYCLIC
    slots = slot_chain([len(group) for group in groups]) if is_chain else list(range(problem.platform.num_devices))
    kinds = problem.platform.kind_of_device[[groups[g][0] for g in slots] if is_chain else slots]
    readers = np.diff(contraction.net_offsets) - 1
    pays = (contraction.net_time_s > 0).max(axis=2)[:, kinds]
    cuts = 2.0 * float((readers[:, None] * pays).sum()) * (5 if is_chain else 3) + float(pays.sum())
    if is_chain:
        return cuts + len(slots) * (7.0 * num_classes + 2.0 * len(contraction.senders))
    places = 2.0 * num_classes * len(slots) + 5.0 * num_classes * (len(slots) - len(groups))
    if problem.contiguity is not Contiguity.CONVEX:
        return cuts + places
    return cuts + places + len(slots) * (2.0 * problem.graph.num_ops + 5.0 * len(problem.order_edges[0]))


def _narrow(contraction: Contraction, ceiling_s: float | None) -> Contraction:
    """Exclude devices that are too small for a class, or too slow given a known placement."""
    platform = contraction.problem.platform
    fits = contraction.memory_bytes[:, None] <= platform.memory_limits_bytes
    if ceiling_s is not None:
        fits &= contraction.time_s.sum(axis=2)[:, platform.kind_of_device] <= ceiling_s * (1 + 1e-9)
    return replace(contraction, allowed=contraction.allowed & fits)

r"""Constraint program of a flat problem, as a CP-SAT model.

Booleans :math:`x_{cs}` (class c in slot s, :mod:`placekit.solvers.assignment.cpsat.membership`) and, only where the
slot's kind pays for the net, :math:`q_{ns}` (net n has classes in slot s and elsewhere); times in whole units, rounded
down (:mod:`placekit.solvers.backends.scale`):

.. math::

   \text{throughput:}\quad & \min \sum_p T_p, \quad
       \sum_c t_{csp} x_{cs} + \sum_n w_{nsp} q_{ns} \le T_p \quad \forall s, p \\
   \text{serial latency:}\quad & \min \sum_{cs} t_{cs} x_{cs} + \sum_{ns} w_{ns} q_{ns} + a \sum_s u_s \\
   \text{cut:}\quad & x_{ps} \wedge \neg x_{rs} \Rightarrow q_{ns}, \quad \neg x_{ps} \wedge x_{rs} \Rightarrow q_{ns}
       \quad \text{for a first pin } p \text{ and every other pin } r \\
   \text{convex:}\quad & x_{us} \wedge \neg x_{vs} \Rightarrow f_{vs},\; f_{us} \Rightarrow f_{vs},\;
       \neg (x_{vs} \wedge f_{vs}) \quad \text{for every edge } u \to v

- The cut clauses are exact: the pins of a net are on one side if and only if each agrees with the first.
- With overlap the load is the larger of work and transfers, and there is one row for each.
- For serial latency the number of used slots replaces the number of subgraphs. It is never larger, so the optimum
  stays a lower bound.
- The objective of a known placement bounds the T from above: an optimal placement costs no more, and its integer loads
  are not above its true loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.objectives import Loads
from placekit.solvers.assignment.cpsat.convexity import Convexity
from placekit.solvers.assignment.cpsat.membership import ByDevice, BySlot, Membership, Values, interchangeable
from placekit.solvers.assignment.cpsat.memory import MemoryRows
from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.assignment.ilp.slots import slot_chain
from placekit.solvers.assignment.memory_rows import PoolRow
from placekit.solvers.assignment.teams import NO_ROWS, TeamRows
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.cpsat import WatchedCpModel
from placekit.solvers.backends.scale import TimeScale
from placekit.solvers.generic.coarsen import Contraction


class CpsatModel:
    """Variables, constraints and objective, and conversion between placements and values.

    Parameters
    ----------
    flat
        The problem; `FlatProblem.is_ordered` asks for an acyclic quotient.
    ceiling_s
        Objective of a feasible placement, in seconds; None if none is known.
    loads
        What to minimise of the loads: the largest, or the sum (serial latency) and a cost of every used slot.
    convexity
        The order graph of the ops, if the parts must be convex; `flat` should not be ordered then.
    step
        Called whenever the program grows.
    teams
        Rows of spare teams (:mod:`placekit.solvers.assignment.teams`).
    with_blocks
        The problem's contraction if memory that ops share is limited; None if it is not.
    pools
        Memories that devices share.

    Attributes
    ----------
    proto : cp_model.CpModel
        The model.
    memory : MemoryRows
        Memory limits of the model; rows may be added.
    scale : TimeScale
        Unit of time of the model.
    """

    def __init__(
        self,
        flat: FlatProblem,
        ceiling_s: float | None = None,
        loads: Loads = Loads(),  # noqa: B008  # frozen
        *,
        convexity: Convexity | None = None,
        step: Callable[[], None] = no_step,
        teams: TeamRows = NO_ROWS,
        with_blocks: Contraction | None = None,
        pools: Sequence[PoolRow] = (),
    ) -> None:
        self.flat = flat = _narrow(flat, ceiling_s)
        self.proto = WatchedCpModel(step)
        self.membership: Membership = (BySlot if flat.is_ordered else ByDevice)(self.proto, flat)
        self.num_classes, self.num_slots = len(flat.memory_bytes), len(self.membership.device_of_slot)
        slot_cost_s, times_paid = loads.subgraph_cost_s, self._times_paid()
        if ceiling_s is None:
            ceiling_s = float(flat.time_s.max(axis=1).sum() + slot_cost_s * times_paid)
            ceiling_s += float(flat.net_time_s.max(axis=1, initial=0.0).sum()) * len(flat.kind)
        num_passes = flat.time_s.shape[2]
        terms = self.num_classes + len(flat.net_time_s) * (self.num_slots if loads.is_total else 1)
        self.scale = TimeScale.of(ceiling_s, (terms + (times_paid if slot_cost_s else 0)) * num_passes)
        self.most = int(np.floor(ceiling_s * (1 + 1e-12) / self.scale.unit_s)) + 1
        self.kind_of_slot = flat.kind[self.membership.device_of_slot]
        self.cut: dict[tuple[int, int], cp_model.IntVar] = {}
        self.slot_used: dict[int, cp_model.IntVar] = {}
        self.level: list[cp_model.IntVar] = []
        self.loads: list[tuple[int, list[cp_model.IntVar], list[int]]] = []
        self.convexity = convexity
        self._time = self.scale.floor(flat.time_s, self.most + 1)
        self._net_time = self.scale.floor(flat.net_time_s, self.most + 1)
        self.held: dict[int, cp_model.IntVar] = {}
        self.memory = MemoryRows(self.proto, flat, self.membership, with_blocks, pools)
        self._constrain_teams(teams)
        self._constrain_cuts()
        self.gone = {} if convexity is None else convexity.constrain(self.proto, self.membership)
        if loads.is_total:
            self._minimise_total(slot_cost_s)
        else:
            self._minimise_largest_load()

    def _times_paid(self) -> int:
        """Return the largest number of times that the cost of a slot is paid."""
        return self.num_slots

    def _constrain_teams(self, teams: TeamRows) -> None:
        """Limit the devices of used slots per kind, and the pinned members of a slot to its size."""
        if not len(teams.most):
            return
        seats, size = teams.seats, teams.takes.sum(axis=0)
        for s in range(self.num_slots):
            held = self.held[s] = self.proto.new_bool_var(f"held_{s}")
            for c in range(self.num_classes):
                if (c, s) in self.membership.x:
                    self.proto.add_implication(self.membership.x[c, s], held)
            room = int(size[self.membership.device_of_slot[s]])
            pinned = [c for c in np.flatnonzero(seats).tolist() if (c, s) in self.membership.x]
            if room < seats[pinned].sum():
                x = [self.membership.x[c, s] for c in pinned]
                self.proto.add(cp_model.LinearExpr.weighted_sum(x, seats[pinned].tolist()) <= room)
        takes_of_kind = teams.takes[:, self.membership.device_of_slot].tolist()
        for takes, most in zip(takes_of_kind, teams.most.tolist(), strict=True):
            self.proto.add(cp_model.LinearExpr.weighted_sum(list(self.held.values()), takes) <= most)

    def _constrain_cuts(self) -> None:
        flat, x = self.flat, self.membership.x
        for n in range(len(flat.net_time_s)):
            first, *others = flat.net_pins[flat.net_offsets[n] : flat.net_offsets[n + 1]].tolist()
            for s in range(self.num_slots):
                if not self._net_time[n, self.kind_of_slot[s]].any():
                    continue
                here = x.get((first, s))
                if here is None and not any((other, s) in x for other in others):
                    continue
                q = self.cut[n, s] = self.proto.new_bool_var(f"q_{n}_{s}")
                for other in others:
                    there = x.get((other, s))
                    if here is not None:
                        self.proto.add_bool_or(~here, q, *([] if there is None else [there]))
                    if there is not None:
                        self.proto.add_bool_or(~there, q, *([] if here is None else [here]))

    def _work(self, s: int, p: int) -> list[tuple[cp_model.IntVar, int]]:
        times = self._time[:, self.kind_of_slot[s], p].tolist()
        return [(self.membership.x[c, s], time) for c, time in enumerate(times) if time and (c, s) in self.membership.x]

    def _moves(self, s: int, p: int) -> list[tuple[cp_model.IntVar, int]]:
        times = self._net_time[:, self.kind_of_slot[s], p].tolist()
        return [(self.cut[n, s], time) for n, time in enumerate(times) if time and (n, s) in self.cut]

    def _minimise_largest_load(self) -> None:
        for p in range(self.flat.time_s.shape[2]):
            level = self.proto.new_int_var(0, self.most, f"T_{p}")
            self.level.append(level)
            for s in range(self.num_slots):
                work, moves = self._work(s, p), self._moves(s, p)
                for parts in [work, moves] if self.flat.has_overlap else [work + moves]:
                    variables, factors = [v for v, _ in parts], [a for _, a in parts]
                    self.loads.append((p, variables, factors))
                    self.proto.add(cp_model.LinearExpr.weighted_sum(variables, factors) <= level)
        if len(self.level) > 1:
            self.proto.add(sum(self.level) <= self.most)
        self.proto.minimize(sum(self.level))

    def _minimise_total(self, slot_cost_s: float) -> None:
        parts = [part for s in range(self.num_slots) for part in self._work(s, 0) + self._moves(s, 0)]
        cost = int(self.scale.floor(np.array([slot_cost_s]), self.most + 1)[0])
        if cost:
            for s in range(self.num_slots):
                used = self.slot_used[s] = self.proto.new_bool_var(f"slot_used_{s}")
                for c in range(self.num_classes):
                    if (c, s) in self.membership.x:
                        self.proto.add_implication(self.membership.x[c, s], used)
                parts.append((used, cost))
        total = cp_model.LinearExpr.weighted_sum([v for v, _ in parts], [a for _, a in parts])
        self.proto.add(total <= self.most)
        self.proto.minimize(total)

    # placements

    def encode(self, device: NDArray[np.int64]) -> Values | None:
        """Return a value for every variable, for ``[C]`` devices; None if the model excludes the placement."""
        encoded = self.membership.encode(device)
        if encoded is None:
            return None
        slot, values = encoded
        for (n, s), variable in self.cut.items():
            inside = slot[self.flat.net_pins[self.flat.net_offsets[n] : self.flat.net_offsets[n + 1]]] == s
            values[variable.index] = int(inside.any() and not inside.all())
        values |= self.memory.encode(slot)
        if self.convexity is not None:
            values |= self.convexity.encode(self.gone, slot)
        for s, variable in (*self.slot_used.items(), *self.held.items()):
            values[variable.index] = int((slot == s).any())
        for p, level in enumerate(self.level):
            values[level.index] = max(
                sum(a * values[v.index] for v, a in zip(variables, factors, strict=True))
                for of_pass, variables, factors in self.loads
                if of_pass == p
            )
        return values

    def read(self, solution: cp_model.CpSolverSolutionCallback) -> NDArray[np.int64]:
        """Return the ``[C]`` devices of a solution."""
        slot = np.zeros(self.num_classes, dtype=np.int64)
        for (c, s), x in self.membership.x.items():
            if solution.boolean_value(x):
                slot[c] = s
        return self.membership.decode(slot)

    def hint(self, device: NDArray[np.int64]) -> bool:
        """Start the search from ``[C]`` devices; return False if the model excludes the placement."""
        values = self.encode(device)
        self.proto.clear_hints()  # type: ignore[no-untyped-call]  # OR-Tools left the annotation out
        for index, value in (values or {}).items():
            self.proto.add_hint(self.proto.get_int_var_from_proto_index(index), value)
        return values is not None


def count_literals(flat: FlatProblem, convexity: Convexity | None = None) -> float:
    """Return about how many literals and terms the program of a flat problem has."""
    groups, num_classes = interchangeable(flat), len(flat.memory_bytes)
    devices = range(len(flat.kind))
    slots = [groups[g][0] for g in slot_chain([len(group) for group in groups])] if flat.is_ordered else [*devices]
    pays = (flat.net_time_s > 0).max(axis=2)[:, flat.kind[slots]]
    others = np.diff(flat.net_offsets) - 1
    cuts = 6.0 * float((others[:, None] * pays).sum()) + float(pays.sum())
    if flat.is_ordered:
        return cuts + len(slots) * (13.0 * num_classes + 2.0 * len(flat.next_classes))
    places = 3.0 * num_classes * len(slots) + 5.0 * num_classes * (len(slots) - len(groups))
    if convexity is None:
        return cuts + places
    return cuts + places + len(slots) * (3.0 * len(convexity.class_of_op) + 5.0 * len(convexity.senders))


def _narrow(flat: FlatProblem, ceiling_s: float | None) -> FlatProblem:
    """Exclude devices that are too slow for a class, given a known placement."""
    if ceiling_s is None:
        return flat
    # also right with two passes or overlap: the work of a class in a pass is at most the largest load of the pass
    work = flat.time_s.sum(axis=2)[:, flat.kind]
    return flat._replace(allowed=flat.allowed & (work <= ceiling_s * (1 + 1e-9)))

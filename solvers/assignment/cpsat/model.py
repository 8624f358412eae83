r"""The constraint program: a CP-SAT model of a flat problem.

Booleans :math:`x_{cs}` (class c in slot s, :mod:`placekit.solvers.assignment.cpsat.membership`) and, only where the
slot's kind pays for the net, :math:`q_{ns}` (net n touches slot s and leaves it); times in whole units, rounded down
(:mod:`placekit.solvers.backends.scale`):

.. math::

   \text{throughput:}\quad & \min \sum_p T_p, \quad
       \sum_c t_{csp} x_{cs} + \sum_n w_{nsp} q_{ns} \le T_p \quad \forall s, p \\
   \text{serial latency:}\quad & \min \sum_{cs} t_{cs} x_{cs} + \sum_{ns} w_{ns} q_{ns} + a \sum_s u_s \\
   \text{cut:}\quad & x_{ps} \wedge \neg x_{rs} \Rightarrow q_{ns}, \quad \neg x_{ps} \wedge x_{rs} \Rightarrow q_{ns}
       \quad \text{for a first pin } p \text{ and every other pin } r \\
   \text{convex:}\quad & x_{us} \wedge \neg x_{vs} \Rightarrow f_{vs},\; f_{us} \Rightarrow f_{vs},\;
       \neg (x_{vs} \wedge f_{vs}) \quad \text{for every edge } u \to v

The cut clauses are exact because the pins of a net are on one side iff each agrees with the first. Where the sum of
work and transfers is replaced by their larger, there is one row for each. The number of subgraphs in the serial
latency is replaced by the number of used slots, which is never larger, so that the optimum stays a lower bound.

The objective of a placement that is known bounds the T from above: an optimal placement costs no more, and its integer
loads are no larger than its true ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.coarsen import Contraction
from placekit.solvers.assignment.cpsat.membership import ByDevice, BySlot, Membership, Values, interchangeable
from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.assignment.ilp.slots import slot_chain
from placekit.solvers.assignment.memory_rows import Shared, excesses, memory_row, opening_positions
from placekit.solvers.assignment.teams import NO_ROWS, TeamRows
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.cpsat import WatchedCpModel
from placekit.solvers.backends.scale import TimeScale, scale_bytes

__all__ = ["Convexity", "CpsatModel", "count_literals"]


@dataclass(frozen=True, slots=True)
class Convexity:
    """Order edges between original ops, whose classes need not be convex themselves.

    Parameters
    ----------
    class_of_op
        ``[num_ops]`` class of every op.
    senders, receivers
        ``[num_edges]`` ops.
    order
        A topological order of the ops.
    """

    class_of_op: NDArray[np.int64]
    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]
    order: NDArray[np.int64]


class CpsatModel:
    """Variables, constraints, objective; and the way from placements to values and back.

    Parameters
    ----------
    flat
        The problem; `FlatProblem.is_ordered` asks for an acyclic quotient.
    ceiling_s
        Objective of a feasible placement, in seconds; None if none is known.
    is_total
        True to minimise the sum of all loads (serial latency), False for the largest.
    slot_cost_s
        Cost of a used slot, in seconds; only with `is_total`.
    times_paid
        How often the slot cost is paid, at most; None for once per slot.
    convexity
        The order graph of the ops, if the parts must be convex; `flat` should not be ordered then.
    step
        Called whenever the program grows.
    teams
        Rows of spare teams (:mod:`placekit.solvers.assignment.teams`).
    with_blocks
        The problem's contraction if memory that ops share is limited; None if it is not.

    Attributes
    ----------
    proto : cp_model.CpModel
        The model.
    scale : TimeScale
        Its unit of time.
    """

    def __init__(
        self,
        flat: FlatProblem,
        ceiling_s: float | None = None,
        *,
        is_total: bool = False,
        slot_cost_s: float = 0.0,
        times_paid: int | None = None,
        convexity: Convexity | None = None,
        step: Callable[[], None] = no_step,
        teams: TeamRows = NO_ROWS,
        with_blocks: Contraction | None = None,
    ) -> None:
        self.flat = flat = _narrow(flat, ceiling_s)
        self.proto = WatchedCpModel(step)
        self.membership: Membership = (BySlot if flat.is_ordered else ByDevice)(self.proto, flat)
        self.num_classes, self.num_slots = len(flat.memory_bytes), len(self.membership.device_of_slot)
        times_paid = self.num_slots if times_paid is None else times_paid
        if ceiling_s is None:
            ceiling_s = float(flat.time_s.max(axis=1).sum() + slot_cost_s * times_paid)
            ceiling_s += float(flat.net_time_s.max(axis=1, initial=0.0).sum()) * len(flat.kind)
        num_passes = flat.time_s.shape[2]
        terms = self.num_classes + len(flat.net_time_s) * (self.num_slots if is_total else 1)
        self.scale = TimeScale.of(ceiling_s, (terms + (times_paid if slot_cost_s else 0)) * num_passes)
        self.most = int(np.floor(ceiling_s * (1 + 1e-12) / self.scale.unit_s)) + 1
        self.kind_of_slot = flat.kind[self.membership.device_of_slot]
        self.cut: dict[tuple[int, int], cp_model.IntVar] = {}
        self.gone: dict[tuple[int, int], cp_model.IntVar] = {}
        self.slot_used: dict[int, cp_model.IntVar] = {}
        self.level: list[cp_model.IntVar] = []
        self.loads: list[tuple[int, list[cp_model.IntVar], list[int]]] = []
        self.covers: set[tuple[int, ...]] = set()
        self.convexity = convexity
        self._time = self.scale.floor(flat.time_s, self.most + 1)
        self._net_time = self.scale.floor(flat.net_time_s, self.most + 1)
        self.held: dict[int, cp_model.IntVar] = {}
        self._constrain_memory()
        self._constrain_teams(teams)
        self.with_blocks = with_blocks
        self.shared: dict[tuple[int, str, tuple[int, ...], tuple[int, ...]], cp_model.IntVar] = {}
        self._shared_of: dict[int, tuple[int, Shared]] = {}
        for position in () if with_blocks is None else opening_positions(with_blocks):
            self._limit_at(with_blocks, position)  # type: ignore[arg-type]  # no positions without
        self._constrain_cuts()
        if convexity is not None:
            self._constrain_convexity(convexity)
        if is_total:
            self._minimise_total(slot_cost_s)
        else:
            self._minimise_largest_load()

    def _constrain_memory(self) -> None:
        for s, device in enumerate(self.membership.device_of_slot):
            limit = float(self.flat.limit_bytes[device])
            classes = [c for c in range(self.num_classes) if (c, s) in self.membership.x and self.flat.memory_bytes[c]]
            if np.isfinite(limit) and self.flat.memory_bytes[classes].sum() > limit:
                sizes, most = scale_bytes(self.flat.memory_bytes[classes], limit)
                x = [self.membership.x[c, s] for c in classes]
                self.proto.add(cp_model.LinearExpr.weighted_sum(x, sizes.tolist()) <= most)

    def _constrain_teams(self, teams: TeamRows) -> None:
        """At most so many devices in the slots that hold classes, and as many members with pins as a slot has room."""
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

    def forbid_together(self, device: NDArray[np.int64]) -> bool:
        """Close the sets of classes that overfill a device by less than the rounding of the sizes.

        Returns
        -------
        bool
            True if there was such a set: a cover inequality was added, and the model is to be solved again.
        """
        before = len(self.covers)
        for d in range(len(self.flat.kind)):
            together = np.flatnonzero((device == d) & (self.flat.memory_bytes > 0))
            cover = (int(self.flat.kind[d]), *together.tolist())
            if self.flat.memory_bytes[together].sum() <= self.flat.limit_bytes[d] or cover in self.covers:
                continue
            self.covers.add(cover)
            for s in np.flatnonzero(self.kind_of_slot == self.flat.kind[d]).tolist():
                if all((c, s) in self.membership.x for c in together.tolist()):
                    self.proto.add_bool_or(*(~self.membership.x[c, s] for c in together.tolist()))
        if self.with_blocks is not None:
            self._forbid_excesses(self.with_blocks, device)
        return len(self.covers) > before

    def _forbid_excesses(self, contraction: Contraction, device: NDArray[np.int64]) -> None:
        """Add rows where memory that ops share does not fit; forbid the very answer where they are there already."""
        x = self.membership.x
        for excess in excesses(contraction, contraction.expand(device)):
            if self._limit_at(contraction, excess.position):
                continue
            kind, inside = int(self.flat.kind[excess.device]), excess.classes.tolist()
            key = (-2, kind, *np.flatnonzero(excess.classes).tolist())
            if key in self.covers:
                continue
            self.covers.add(key)
            for s in np.flatnonzero(self.kind_of_slot == kind).tolist():
                if all((c, s) in x for c in range(self.num_classes) if inside[c]):
                    literals = [~x[c, s] if inside[c] else x[c, s] for c in range(self.num_classes) if (c, s) in x]
                    self.proto.add_bool_or(*literals)

    def _limit_at(self, contraction: Contraction, position: int) -> bool:
        """Add the rows of a position (:mod:`placekit.solvers.assignment.memory_rows`); False if they were there."""
        key = (-1, position)
        if key in self.covers:
            return False
        self.covers.add(key)
        row = memory_row(contraction, position)
        for s, device in enumerate(self.membership.device_of_slot):
            limit = float(self.flat.limit_bytes[device])
            if not np.isfinite(limit) or row.most_bytes <= limit:
                continue
            classes = [c for c in range(self.num_classes) if (c, s) in self.membership.x and row.class_bytes[c]]
            variables = [self.membership.x[c, s] for c in classes]
            sizes = row.class_bytes[classes].tolist()
            for shared in row.shared:
                if any((c, s) in self.membership.x for c in shared.first):
                    variables.append(self._shared_at(shared, s))
                    sizes.append(shared.num_bytes)
            whole, most = scale_bytes(np.array(sizes, dtype=np.float64), limit)
            self.proto.add(cp_model.LinearExpr.weighted_sum(variables, whole.tolist()) <= most)
        return True

    def _shared_at(self, shared: Shared, s: int) -> cp_model.IntVar:
        """Return the variable that is true where the shared bytes count in slot `s`."""
        key = (s, shared.rule, shared.first, shared.last)
        if key in self.shared:
            return self.shared[key]
        variable = self.shared[key] = self.proto.new_bool_var(f"shared_{len(self.shared)}")
        self._shared_of[variable.index] = s, shared
        x = self.membership.x
        if shared.rule == "split":
            first, *others = [x.get((c, s)) for c in shared.first]
            for other in others:
                for here, there in ((first, other), (other, first)):
                    if here is not None:
                        self.proto.add_bool_or(~here, variable, *([] if there is None else [there]))
            return variable
        for a in shared.first:
            if (a, s) not in x:
                continue
            if shared.rule == "any" or a in shared.last:
                self.proto.add_implication(x[a, s], variable)
                continue
            for b in shared.last:
                if b not in shared.first and (b, s) in x:
                    self.proto.add_bool_or(~x[a, s], ~x[b, s], variable)
        return variable

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

    def _constrain_convexity(self, convexity: Convexity) -> None:
        x, class_of_op = self.membership.x, convexity.class_of_op
        edges = list(zip(convexity.senders.tolist(), convexity.receivers.tolist(), strict=True))
        for s in range(self.num_slots):
            f = {v: self.proto.new_bool_var(f"f_{v}_{s}") for v in np.unique(convexity.receivers).tolist()}
            for v, variable in f.items():
                self.gone[v, s] = variable
                inside = x.get((int(class_of_op[v]), s))
                if inside is not None:
                    self.proto.add_bool_or(~inside, ~variable)
            for u, v in edges:
                source, target = x.get((int(class_of_op[u]), s)), x.get((int(class_of_op[v]), s))
                if source is not None and source is not target:
                    self.proto.add_bool_or(~source, f[v], *([] if target is None else [target]))
                if u in f:
                    self.proto.add_implication(f[u], f[v])

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
        """Return a value for every variable for ``[C]`` devices; None if the model has no room for the placement."""
        encoded = self.membership.encode(device)
        if encoded is None:
            return None
        slot, values = encoded
        for (n, s), variable in self.cut.items():
            inside = slot[self.flat.net_pins[self.flat.net_offsets[n] : self.flat.net_offsets[n + 1]]] == s
            values[variable.index] = int(inside.any() and not inside.all())
        for index, (s, shared) in self._shared_of.items():
            values[index] = int(shared.counts(slot == s))
        if self.convexity is not None:
            values |= self._encode_convexity(self.convexity, slot)
        for s, variable in (*self.slot_used.items(), *self.held.items()):
            values[variable.index] = int((slot == s).any())
        for p, level in enumerate(self.level):
            values[level.index] = max(
                sum(a * values[v.index] for v, a in zip(variables, factors, strict=True))
                for of_pass, variables, factors in self.loads
                if of_pass == p
            )
        return values

    def _encode_convexity(self, convexity: Convexity, slot: NDArray[np.int64]) -> Values:
        rank = np.empty(len(convexity.order), dtype=np.int64)
        rank[convexity.order] = np.arange(len(rank))
        along = np.argsort(rank[convexity.senders], kind="stable")
        edges = list(zip(convexity.senders[along].tolist(), convexity.receivers[along].tolist(), strict=True))
        values: Values = {}
        for s in range(self.num_slots):
            inside = (slot[convexity.class_of_op] == s).tolist()
            gone = [False] * len(inside)
            for u, v in edges:
                gone[v] = gone[v] or gone[u] or (inside[u] and not inside[v])
            values |= {variable.index: int(gone[v]) for (v, at), variable in self.gone.items() if at == s}
        return values

    def read(self, solution: cp_model.CpSolverSolutionCallback) -> NDArray[np.int64]:
        """Return the ``[C]`` devices of a solution."""
        slot = np.zeros(self.num_classes, dtype=np.int64)
        for (c, s), x in self.membership.x.items():
            if solution.boolean_value(x):
                slot[c] = s
        return self.membership.decode(slot)

    def hint(self, device: NDArray[np.int64]) -> bool:
        """Start the search from ``[C]`` devices; return False if the model has no room for the placement."""
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
    return cuts + places + len(slots) * (3.0 * len(convexity.order) + 5.0 * len(convexity.senders))


def _narrow(flat: FlatProblem, ceiling_s: float | None) -> FlatProblem:
    """Close the devices that are too slow for a class, given that a better placement is known."""
    if ceiling_s is None:
        return flat
    # with two passes or overlap too: a class's work in one pass is at most that pass's largest load
    work = flat.time_s.sum(axis=2)[:, flat.kind]
    return flat._replace(allowed=flat.allowed & (work <= ceiling_s * (1 + 1e-9)))

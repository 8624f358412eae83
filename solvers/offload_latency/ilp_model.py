r"""Integer program for `OffloadLatency`: a PuLP model over nodes, slots and tensors.

Places, slots and the binaries :math:`x_{vp}` are those of :mod:`placekit.solvers.offload_latency.cp_model`. Times are
continuous: start and end of each slot, and :math:`a_o`, the time at which the output of op o is in host memory. With
:math:`M` the latency of a known placement (no better placement has any later time),

.. math::

   \min T, \quad T & \ge a_o, \quad T \ge end_s \\
   in_{us} & \ge x_{vs} - x_{us}, \quad out_{us} \ge x_{us} - x_{vs} \quad \text{for every consumer } v \text{ of } u \\
   start_s & \ge a_u - M (1 - in_{us}), \quad
       a_o \ge end_s - M (1 - x_{vs}) \quad \text{for the ops } o \text{ of } v \\
   end_s & = start_s + L_s, \quad L_s = \sum_v t_{vs} x_{vs} + \sum_u c_{us} (in_{us} + out_{us}), \quad
       start_{s+1} \ge end_s \text{ on one device} \\
   a_o & \ge \sum_h t_{oh} x_{vh}, \quad
       a_o \ge a_u + \sum_h t_{oh} x_{vh} \quad \text{for every tensor } u \text{ that } o \text{ reads}

Of equal accelerators the first calls start in the order of their indices.

References
----------
Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020, appendix A.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pulp

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solvers.assignment.ilp.model import CEILING
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.pulp_highs import WatchedLp
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.plans import equal_slots, moves, node_places, ordered_slots, placement_at

LATEST = CEILING * (1 + 1e-6)
"""Upper end of all times: the placement that is known stays inside."""


class OffloadIlp:
    """Program with its variables, and the translation between placements and values.

    Parameters
    ----------
    problem
        The problem, without contiguity.
    ceiling_s
        Latency of a feasible placement, or an upper bound on all latencies, in seconds.
    step
        Called whenever the program grows.

    Attributes
    ----------
    lp : pulp.LpProblem
        The model.
    unit_s : float
        Seconds per unit of the model's objective.
    covers : set of tuples
        What `forbid_together` has closed.
    """

    is_exact = True
    """The optimum of the program is that of the problem."""

    def __init__(
        self,
        problem: Problem,
        flat: OffloadProblem,
        ceiling_s: float,
        step: Callable[[], None] = no_step,
    ) -> None:
        self.problem, self.flat = problem, flat
        self.covers: set[tuple[int, ...]] = set()
        self.unit_s = max(ceiling_s / CEILING, 1e-290)
        self.lp = WatchedLp("offload", step)
        self.device_of_place = flat.device_of_place
        self.num_slots = len(self.device_of_place) - len(flat.hosts)
        self.node_of_op = flat.contraction.class_of_op
        kinds = problem.platform.kind_of_device[self.device_of_place]
        # places where a node alone takes longer than the ceiling are closed below
        self._time = np.minimum(problem.costs.op_time_s[:, kinds] / self.unit_s, 2 * CEILING)
        self._move = np.minimum(problem.costs.transfer_time_s[:, kinds[: self.num_slots]] / self.unit_s, 2 * CEILING)
        node_time = np.zeros((flat.num_nodes, self.num_slots))
        np.add.at(node_time, self.node_of_op, self._time[:, : self.num_slots])
        slowest = np.zeros((flat.num_nodes, len(kinds)))
        np.maximum.at(slowest, self.node_of_op, self._time)
        slowest[:, : self.num_slots] = node_time
        self._node_time = node_time
        allowed = flat.contraction.allowed[:, self.device_of_place] & (slowest <= LATEST)
        self.x = {(v, p): self._binary(f"x_{v}_{p}") for v, p in np.argwhere(allowed).tolist()}
        self.into: dict[tuple[int, int], pulp.LpVariable] = {}
        self.out: dict[tuple[int, int], pulp.LpVariable] = {}
        self.start = [self._time_variable(f"start_{s}") for s in range(self.num_slots)]
        self.end = [self._time_variable(f"end_{s}") for s in range(self.num_slots)]
        self.known = [self._time_variable(f"a_{o}") for o in range(problem.graph.num_ops)]
        self.latency = self._time_variable("T")
        self.lp += self.latency
        self._place_nodes()
        self._constrain_memory()
        self._move_tensors()
        self._time_calls()
        self._time_hosts()
        self._order_equal_devices()

    def _binary(self, name: str) -> pulp.LpVariable:
        return self.lp.add_variable(name, 0, 1, pulp.LpInteger)

    def _time_variable(self, name: str) -> pulp.LpVariable:
        return self.lp.add_variable(name, 0.0, LATEST)

    def _require(self, *terms: tuple[pulp.LpVariable | None, float], least: float, name: str) -> None:
        """Add the row ``sum of terms >= least``; terms without a variable are 0."""
        row = pulp.LpAffineExpression([(variable, factor) for variable, factor in terms if variable is not None])
        self.lp.addConstraint(row >= least, name)

    # constraints

    def _place_nodes(self) -> None:
        num_places = len(self.device_of_place)
        for v in range(self.flat.num_nodes):
            places = [self.x[v, p] for p in range(num_places) if (v, p) in self.x]
            self.lp.addConstraint(pulp.lpSum(places) == 1, f"place_{v}")
        if self.flat.calls_per_device == 1:
            return
        first: dict[int, int] = {}
        for op, label in enumerate(self.problem.op_class.tolist()):
            leader = first.setdefault(label, op)
            for d in np.unique(self.device_of_place).tolist() if leader != op else ():
                places = np.flatnonzero(self.device_of_place == d).tolist()
                mine, its = (pulp.lpSum(self.x[v, p] for p in places if (v, p) in self.x) for v in (op, leader))
                self.lp.addConstraint(mine - its == 0, f"together_{op}_{d}")

    def _constrain_memory(self) -> None:
        sizes = self.flat.memory_bytes
        # the rows use the limits of the judge, with its rounding: otherwise bounds would exclude feasible placements
        most_bytes = self.problem.platform.memory_limits_bytes * (1 + MEMORY_TOLERANCE)
        for d in range(len(most_bytes)):
            limit = most_bytes[d]
            places = np.flatnonzero(self.device_of_place == d).tolist()
            mine = [(v, p) for p in places for v in np.flatnonzero(sizes).tolist() if (v, p) in self.x]
            if float(sizes[sorted({v for v, _ in mine})].sum()) <= limit:
                continue
            row = pulp.lpSum(float(sizes[at[0]] / limit) * self.x[at] for at in mine)
            self.lp.addConstraint(row <= 1, f"memory_{d}")

    def _move_tensors(self) -> None:
        graph = self.problem.graph
        for t, producer in enumerate(graph.tensor_producer.tolist()):
            source = int(self.node_of_op[producer])
            readers = sorted({*self.node_of_op[graph.consumers_of(t)].tolist()} - {source})
            for s in range(self.num_slots):
                here = self.x.get((source, s))
                those = [(v, self.x[v, s]) for v in readers if (v, s) in self.x]
                if those:
                    into = self.into[t, s] = self.lp.add_variable(f"in_{t}_{s}", 0, 1)
                    for v, there in those:
                        self._require((into, 1.0), (there, -1.0), (here, 1.0), least=0, name=f"enters_{t}_{v}_{s}")
                    terms = (self.start[s], 1.0), (self.known[producer], -1.0), (into, -LATEST)
                    self._require(*terms, least=-LATEST, name=f"waits_{t}_{s}")
                if here is not None and readers and self._move[t, s]:
                    out = self.out[t, s] = self.lp.add_variable(f"out_{t}_{s}", 0, 1)
                    for v in readers:
                        there_or_none = self.x.get((v, s))
                        terms = (out, 1.0), (here, -1.0), (there_or_none, 1.0)
                        self._require(*terms, least=0, name=f"leaves_{t}_{v}_{s}")

    def _lasts(self, slot: int) -> list[tuple[pulp.LpVariable, float]]:
        """Return the terms of the time that the call in a slot takes."""
        terms = [(self.x[v, slot], self._node_time[v, slot]) for v in range(self.flat.num_nodes) if (v, slot) in self.x]
        for moved in (self.into, self.out):
            terms += [(moved[t, slot], self._move[t, slot]) for t in range(len(self._move)) if (t, slot) in moved]
        return [(variable, float(factor)) for variable, factor in terms if factor]

    def _time_calls(self) -> None:
        for s in range(self.num_slots):
            row = pulp.LpAffineExpression([(self.end[s], 1.0), (self.start[s], -1.0)])
            lasts = pulp.LpAffineExpression(self._lasts(s))
            self.lp.addConstraint(row - lasts == 0, f"lasts_{s}")
            self._require((self.latency, 1.0), (self.end[s], -1.0), least=0, name=f"last_call_{s}")
            if s % self.flat.calls_per_device:
                self._require((self.start[s], 1.0), (self.end[s - 1], -1.0), least=0, name=f"next_{s}")
            for op, v in enumerate(self.node_of_op.tolist()):
                if (v, s) in self.x:
                    terms = (self.known[op], 1.0), (self.end[s], -1.0), (self.x[v, s], -LATEST)
                    self._require(*terms, least=-LATEST, name=f"ends_{op}_{s}")

    def _host_terms(self, op: int, sign: float) -> list[tuple[pulp.LpVariable | None, float]]:
        v = int(self.node_of_op[op])
        hosts = range(self.num_slots, len(self.device_of_place))
        return [(self.x.get((v, p)), sign * float(self._time[op, p])) for p in hosts]

    def _time_hosts(self) -> None:
        graph = self.problem.graph
        for op in range(graph.num_ops):
            self._require((self.latency, 1.0), (self.known[op], -1.0), least=0, name=f"last_{op}")
        for op in np.flatnonzero(np.bincount(graph.receivers, minlength=graph.num_ops) == 0).tolist():
            self._require((self.known[op], 1.0), *self._host_terms(op, -1.0), least=0, name=f"source_{op}")
        for u, op in sorted(set(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))):
            terms = (self.known[op], 1.0), (self.known[u], -1.0), *self._host_terms(op, -1.0)
            self._require(*terms, least=0, name=f"host_{u}_{op}")

    def _order_equal_devices(self) -> None:
        for group in equal_slots(self.flat):
            for a, b in pairwise(group):
                self._require((self.start[b], 1.0), (self.start[a], -1.0), least=0, name=f"order_{a}_{b}")

    def forbid_together(self, placement: Placement) -> None:
        """Close the sets of nodes that overfill a device by less than the solver's tolerance (cover inequalities)."""
        node_place = node_places(self.flat, placement)
        assert node_place is not None  # the program makes no more calls than there are slots
        sizes, device_of_node = self.flat.memory_bytes, self.device_of_place[node_place]
        limits = self.problem.platform.memory_limits_bytes
        used = self.problem.stage_memory.use(placement.device_of_op, len(limits)).total
        for d in np.flatnonzero(used > limits).tolist():
            nodes = np.flatnonzero((device_of_node == d) & (sizes > 0)).tolist()
            if (d, *nodes) in self.covers:
                continue
            self.covers.add((d, *nodes))
            places = np.flatnonzero(self.device_of_place == d).tolist()
            row = pulp.lpSum(self.x[v, p] for v in nodes for p in places if (v, p) in self.x)
            self.lp.addConstraint(row <= len(nodes) - 1, f"cover_{len(self.covers)}")

    # placements

    def decode(self, values: dict[pulp.LpVariable, float]) -> Placement:
        """Return the placement that the solver's values stand for."""
        most, place = np.zeros(self.flat.num_nodes), np.zeros(self.flat.num_nodes, dtype=np.int64)
        for (v, p), x in self.x.items():
            if values[x] > most[v]:
                most[v], place[v] = values[x], p
        return placement_at(self.flat, place)

    def encode(self, placement: Placement) -> dict[pulp.LpVariable, float] | None:
        """Return a value for every variable, for a feasible placement; None if the program does not have it."""
        schedule = self.problem.objective.score(self.problem, placement.device_of_op, placement.step_of_op).schedule
        assert schedule is not None  # the offload latency has a clock
        graph, ops = self.problem.graph, ~schedule.is_transfer
        begins, finishes = np.zeros(graph.num_ops), np.zeros(graph.num_ops)
        begins[schedule.op[ops]], finishes[schedule.op[ops]] = schedule.start_s[ops], schedule.finish_s[ops]
        node_place = node_places(self.flat, placement, ordered_slots(self.flat, placement, begins))
        if node_place is None or any((v, p) not in self.x for v, p in enumerate(node_place.tolist())):
            return None
        place = node_place[self.node_of_op]
        values = dict.fromkeys(self.lp.variables(), 0.0)
        values |= {x: float(node_place[v] == p) for (v, p), x in self.x.items()}
        for moved, enters in ((self.into, True), (self.out, False)):
            values |= {x: float(moves(graph, place, t, s, enters)) for (t, s), x in moved.items()}
        known = finishes / self.unit_s
        latest = 0.0
        for s in range(self.num_slots):
            lasts = sum(factor * values[variable] for variable, factor in self._lasts(s))
            moved_in = sum(float(self._move[at]) * values[variable] for at, variable in self.into.items() if at[1] == s)
            mine, start = place == s, latest
            if mine.any():
                start = max(0.0, float(begins[mine].min()) / self.unit_s - moved_in)  # ops run after the transfers in
                known[mine] = start + lasts
            latest = max(latest, start + lasts)
            values[self.start[s]], values[self.end[s]] = start, start + lasts
        values |= dict(zip(self.known, known.tolist(), strict=True))
        values[self.latency] = float(known.max())
        return values


def count_coefficients(problem: Problem, flat: OffloadProblem) -> float:
    """Estimate the number of coefficients of the program."""
    graph, num_places, num_hosts = problem.graph, len(flat.device_of_place), len(flat.hosts)
    num_slots = num_places - num_hosts
    placed = 2.0 * num_places * flat.num_nodes + graph.num_ops * (3.0 * num_slots + num_hosts + 3.0)
    moved = num_slots * (5.0 * graph.num_tensors + 6.0 * graph.num_edges)
    return placed + moved + graph.num_edges * (num_hosts + 2.0)

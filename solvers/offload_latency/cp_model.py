r"""Constraint program for `OffloadLatency`: a CP-SAT model over nodes, slots and tensors.

A *slot* is one call that an accelerator may make, a *place* a slot or a host. Booleans :math:`x_{vp}` (node v in place
p), :math:`in_{us}` and :math:`out_{us}` (tensor u moves into, out of slot s); times in whole units, rounded down
(:mod:`placekit.solvers.backends.scale`): start and end of each slot, and :math:`a_o`, the time at which the output of
op o is in host memory (T if nothing reads it).

.. math::

   \min T, \quad T \ge end_s, \quad
   in_{us} & \ge x_{vs} - x_{us}, \quad out_{us} \ge x_{us} - x_{vs} \quad \text{for every consumer } v \text{ of } u \\
   in_{us} & \Rightarrow start_s \ge a_u, \quad x_{us} \Rightarrow a_u \ge end_s \quad \text{for every tensor } u
       \text{ that another node reads} \\
   end_s & = start_s + \sum_v t_{vs} x_{vs} + \sum_u c_{us} (in_{us} + out_{us}), \quad
       start_{s+1} \ge end_s \text{ on one device} \\
   a_o & \ge a_u + \sum_h t_{oh} x_{vh} \quad \text{for every tensor } u \text{ that } o \text{ reads}

The row of :math:`a_o` needs no condition: in one call both outputs appear at its end, and in different calls the
consumer's output is later. So time itself makes the calls convex. Of equal accelerators the first calls start in the
order of their indices. With several calls per device a node is a single op, and ops that share a device have equal sums
of x over the slots of each device.

With one call per device the calls of equal accelerators can be numbered along the data: of two that start together, one
that feeds the other takes no time and comes first, and empty ones come last. So :math:`y_{os}` (op o is in one of the
calls up to s, or no call behind s leads to it) falls along edges, :math:`y_{os} \Rightarrow y_{us}` for an input u, and
:math:`x_{vs} \Rightarrow y_{os} \wedge \neg y_{o,s-1}` for the ops o of v, which on a host may be on both sides of a
call. Times alone say the same, but only once they are known.

Under a contiguity :math:`y_{vd}` says that node v is on device d. Acyclic: :math:`b_{de}` (d comes before e) is an
order of the devices, and :math:`y_{ud} \wedge y_{ve} \Rightarrow b_{de}` for every edge (u, v) of the order graph.
Convex: :math:`g_{od}` says that a path to op o has left device d, so :math:`g_{od} \Rightarrow \neg y_{od}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise, permutations, product

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.model.contiguity import Contiguity
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.cpsat import WatchedCpModel
from placekit.solvers.backends.scale import TimeScale, scale_bytes
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.plans import equal_slots, moves, node_places, ordered_slots, placement_at


class OffloadModel:
    """Program with its variables, and the translation between placements and hints.

    Parameters
    ----------
    ceiling_s
        Latency of a feasible placement, in seconds.
    bound_s
        Proven lower bound, in seconds.
    follows
        Nodes that follow another node (:mod:`placekit.solvers.offload_latency.free_followers`); None for none. Their
        memory does not count, so that the program is a relaxation unless memory is plentiful.
    step
        Called whenever the program grows.

    Attributes
    ----------
    proto : cp_model.CpModel
        The model.
    scale : TimeScale
        Its unit of time.
    """

    def __init__(
        self,
        problem: Problem,
        flat: OffloadProblem,
        ceiling_s: float,
        bound_s: float,
        follows: Mapping[int, int] | None = None,
        step: Callable[[], None] = no_step,
    ) -> None:
        self.problem, self.flat, self.follows = problem, flat, follows or {}
        self.proto = WatchedCpModel(step)
        graph = problem.graph
        self.root = np.arange(flat.num_nodes)
        self.root[list(self.follows)] = list(self.follows.values())
        self.nodes = np.unique(self.root).tolist()
        self.node_of_op = self.root[flat.contraction.class_of_op]
        self.device_of_place = flat.device_of_place
        self.num_slots = len(self.device_of_place) - len(flat.hosts)
        self.scale = TimeScale.of(ceiling_s, graph.num_ops + graph.num_tensors * (self.num_slots + 1))
        self.most = math.floor(ceiling_s * (1 + 1e-12) / self.scale.unit_s) + 1
        kinds = problem.platform.kind_of_device[self.device_of_place]
        self._time = self.scale.floor(problem.costs.op_time_s[:, kinds], self.most + 1)
        self._move = self.scale.floor(problem.costs.transfer_time_s[:, kinds[: self.num_slots]], self.most + 1)
        allowed = flat.contraction.allowed[:, self.device_of_place]
        self.x = {
            (v, p): self.proto.new_bool_var(f"x_{v}_{p}")
            for v in self.nodes
            for p in np.flatnonzero(allowed[v]).tolist()
        }
        self.into: dict[tuple[int, int], cp_model.IntVar] = {}
        self.out: dict[tuple[int, int], cp_model.IntVar] = {}
        self.start = [self.proto.new_int_var(0, self.most, f"start_{s}") for s in range(self.num_slots)]
        self.end = [self.proto.new_int_var(0, self.most, f"end_{s}") for s in range(self.num_slots)]
        # every term is rounded down, so the optimum may be below the bound by as many units
        least = max(0, min(self.most, math.floor(bound_s / self.scale.unit_s) - self.scale.num_terms))
        self.latency = self.proto.new_int_var(least, self.most, "T")
        self.ready = [
            self.latency if is_sink else self.proto.new_int_var(0, self.most, f"a_{op}")
            for op, is_sink in enumerate((np.bincount(graph.senders, minlength=graph.num_ops) == 0).tolist())
        ]
        self._place_nodes()
        self._constrain_memory()
        self._move_tensors()
        self._time_calls()
        self._time_hosts()
        self._order_equal_devices()
        if problem.contiguity is Contiguity.ACYCLIC:
            self._order_devices()
        elif problem.contiguity is Contiguity.CONVEX:
            self._keep_convex()
        self.proto.minimize(self.latency)

    def _place_nodes(self) -> None:
        num_places = len(self.device_of_place)
        for v in self.nodes:
            self.proto.add_exactly_one([self.x[v, p] for p in range(num_places) if (v, p) in self.x])
        if self.flat.calls_per_device == 1:
            return
        first: dict[int, int] = {}
        for op, label in enumerate(self.problem.op_class.tolist()):
            leader = first.setdefault(label, op)
            if leader == op:
                continue
            for d in np.unique(self.device_of_place).tolist():
                places = np.flatnonzero(self.device_of_place == d).tolist()
                mine, its = ([self.x[v, p] for p in places if (v, p) in self.x] for v in (op, leader))
                self.proto.add(sum(mine) == sum(its))

    def _constrain_memory(self) -> None:
        sizes = self.flat.memory_bytes.copy()
        sizes[list(self.follows)] = 0.0  # relaxed, or there is room for everything
        for d, limit in enumerate(self.problem.platform.memory_limits_bytes.tolist()):
            places = np.flatnonzero(self.device_of_place == d).tolist()
            mine = [(v, p) for p in places for v in np.flatnonzero(sizes).tolist() if (v, p) in self.x]
            nodes = sorted({v for v, _ in mine})
            if float(sizes[nodes].sum()) <= limit:
                continue
            whole, most = scale_bytes(sizes[nodes], limit)
            size = dict(zip(nodes, whole.tolist(), strict=True))
            terms = [self.x[at] for at in mine]
            self.proto.add(cp_model.LinearExpr.weighted_sum(terms, [size[v] for v, _ in mine]) <= most)

    def _move_tensors(self) -> None:
        graph = self.problem.graph
        for t, producer in enumerate(graph.tensor_producer.tolist()):
            source = int(self.node_of_op[producer])
            readers = sorted({*self.node_of_op[graph.consumers_of(t)].tolist()} - {source})
            for s in range(self.num_slots):
                here = self.x.get((source, s))
                those = [self.x[v, s] for v in readers if (v, s) in self.x]
                if those:
                    into = self.into[t, s] = self.proto.new_bool_var(f"in_{t}_{s}")
                    for there in those:
                        self.proto.add_bool_or(~there, into, *([] if here is None else [here]))
                    self.proto.add(self.start[s] >= self.ready[producer]).only_enforce_if(into)
                if here is not None and readers and self._move[t, s]:
                    out = self.out[t, s] = self.proto.new_bool_var(f"out_{t}_{s}")
                    for v in readers:
                        there_or_none = self.x.get((v, s))
                        self.proto.add_bool_or(~here, out, *([] if there_or_none is None else [there_or_none]))
                if here is not None and readers:
                    self.proto.add(self.ready[producer] >= self.end[s]).only_enforce_if(here)

    def _time_calls(self) -> None:
        node_time = np.zeros((self.flat.num_nodes, self.num_slots), dtype=np.int64)
        np.add.at(node_time, self.node_of_op, self._time[:, : self.num_slots])
        for s in range(self.num_slots):
            terms = [(self.x[v, s], int(node_time[v, s])) for v in self.nodes if (v, s) in self.x]
            for moved in (self.into, self.out):
                terms += [(moved[t, s], int(self._move[t, s])) for t in range(len(self._move)) if (t, s) in moved]
            variables, factors = [v for v, _ in terms], [a for _, a in terms]
            lasts = cp_model.LinearExpr.weighted_sum(variables, factors)
            self.proto.add(self.end[s] == self.start[s] + lasts)
            self.proto.add(self.latency >= self.end[s])
            if s % self.flat.calls_per_device:
                self.proto.add(self.start[s] >= self.end[s - 1])

    def _time_hosts(self) -> None:
        graph = self.problem.graph
        hosts = range(self.num_slots, len(self.device_of_place))
        inputs: list[set[int]] = [set() for _ in range(graph.num_ops)]
        for u, op in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
            inputs[op].add(u)
        for op, v in enumerate(self.node_of_op.tolist()):
            mine = [p for p in hosts if (v, p) in self.x]
            factors = [int(self._time[op, p]) for p in mine]
            takes = cp_model.LinearExpr.weighted_sum([self.x[v, p] for p in mine], factors)
            if not inputs[op]:
                self.proto.add(self.ready[op] >= takes)
            for u in sorted(inputs[op]):
                self.proto.add(self.ready[op] >= self.ready[u] + takes)

    def _order_equal_devices(self) -> None:
        for group in equal_slots(self.flat):
            for a, b in pairwise(group):
                self.proto.add(self.start[a] <= self.start[b])
            if self.flat.calls_per_device == 1 and len(group) > 1:
                self._number_calls(group)

    def _number_calls(self, slots: list[int]) -> None:
        """Require that calls are numbered along the data, empty ones last, of equal accelerators."""
        graph = self.problem.graph
        edges = sorted({*zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)})
        before: list[cp_model.IntVar] = []
        used_before: cp_model.IntVar | None = None
        for s in slots:
            upto = [self.proto.new_bool_var(f"upto_{op}_{s}") for op in range(graph.num_ops)]
            mine = [self.x.get((v, s)) for v in self.node_of_op.tolist()]
            used = self.proto.new_bool_var(f"used_{s}")
            self.proto.add_bool_or(~used, *{each.index: each for each in mine if each is not None}.values())
            if used_before is not None:
                self.proto.add_implication(used, used_before)
            for op, here in enumerate(mine):
                if here is not None:
                    self.proto.add_implication(here, used)
                    self.proto.add_implication(here, upto[op])
                if before:
                    self.proto.add_implication(before[op], upto[op])
                if before and here is not None:
                    self.proto.add_implication(here, ~before[op])
            for u, v in edges:
                self.proto.add_implication(upto[v], upto[u])
            before, used_before = upto, used

    def _on_devices(self) -> list[list[cp_model.IntVar | None]]:
        """Return the literals ``[N][D]`` of node on device; None where the node cannot run."""
        found: list[list[cp_model.IntVar | None]] = []
        for v in range(self.flat.num_nodes):
            found.append([])
            for d in range(self.problem.platform.num_devices):
                mine = [self.x[v, p] for p in np.flatnonzero(self.device_of_place == d).tolist() if (v, p) in self.x]
                if len(mine) > 1:
                    there = self.proto.new_bool_var(f"y_{v}_{d}")
                    self.proto.add(sum(mine) == there)
                    mine = [there]
                found[-1].append(mine[0] if mine else None)
        return found

    def _order_devices(self) -> None:
        """Keep the quotient graph acyclic: every edge follows an order of the devices."""
        on, num_devices = self._on_devices(), self.problem.platform.num_devices
        place = [self.proto.new_int_var(0, num_devices - 1, f"place_{d}") for d in range(num_devices)]
        before = {}
        for d, e in permutations(range(num_devices), 2):
            before[d, e] = self.proto.new_bool_var(f"before_{d}_{e}")
            self.proto.add(place[d] < place[e]).only_enforce_if(before[d, e])
        senders, receivers = (self.node_of_op[ends] for ends in self.problem.order_edges)
        edges = sorted({*zip(senders.tolist(), receivers.tolist(), strict=True)})
        for (u, v), (d, e) in product(edges, before):
            here, there = on[u][d], on[v][e]
            if u != v and here is not None and there is not None:
                self.proto.add_bool_or(~here, ~there, before[d, e])

    def _keep_convex(self) -> None:
        """Let no path of the order graph come back to a device that it has left."""
        on, num_ops = self._on_devices(), self.problem.graph.num_ops
        edges = sorted({*zip(*(ends.tolist() for ends in self.problem.order_edges), strict=True)})
        for d in range(self.problem.platform.num_devices):
            left = [self.proto.new_bool_var(f"left_{op}_{d}") for op in range(num_ops)]
            at = [on[v][d] for v in self.node_of_op.tolist()]
            for op, here in enumerate(at):
                if here is not None:
                    self.proto.add_implication(left[op], ~here)
            for u, v in edges:
                self.proto.add_implication(left[u], left[v])
                here, there = at[u], at[v]
                if here is not None:
                    self.proto.add_bool_or(~here, left[v], *([] if there is None else [there]))

    # placements
    def read(self, solution: cp_model.CpSolverSolutionCallback) -> Placement:
        """Return the placement that CP-SAT has just found."""
        place = np.zeros(self.flat.num_nodes, dtype=np.int64)
        for (v, p), x in self.x.items():
            if solution.boolean_value(x):
                place[v] = p
        return placement_at(self.flat, place[self.root])

    def hint(
        self,
        placement: Placement,  # a feasible placement
        # ``[num_ops]`` start of the call or host op that each op belongs to, by which equal devices are ordered
        starts_s: NDArray[np.float64],
    ) -> bool:
        """Start the search from a placement; return False if it has more calls than a device may make."""
        node_place = node_places(self.flat, placement, ordered_slots(self.flat, placement, starts_s))
        if node_place is None:
            return False
        self.proto.clear_hints()  # type: ignore[no-untyped-call]  # OR-Tools left the annotation out
        for (v, p), x in self.x.items():
            self.proto.add_hint(x, bool(node_place[v] == p))
        for moved, enters in ((self.into, True), (self.out, False)):
            for (t, s), variable in moved.items():
                self.proto.add_hint(variable, moves(self.problem.graph, node_place[self.node_of_op], t, s, enters))
        return True


def count_literals(problem: Problem, flat: OffloadProblem) -> float:
    """Estimate the number of literals and terms of the program of the whole problem."""
    graph, num_places = problem.graph, len(flat.device_of_place)
    num_slots = num_places - len(flat.hosts)
    moved = num_slots * (12.0 * graph.num_tensors + 6.0 * graph.num_edges)
    num_devices, num_edges = problem.platform.num_devices, len(problem.order_edges[0])
    per_edge = {Contiguity.NONE: 0.0, Contiguity.CONVEX: 5.0 * num_devices, Contiguity.ACYCLIC: 3.0 * num_devices**2}
    together = per_edge[problem.contiguity] * num_edges
    together += (3.0 * graph.num_ops + 2.0 * graph.num_edges) * num_slots  # numbers of calls
    return moved + together + 3.0 * num_places * flat.num_nodes + graph.num_edges * (2.0 + len(flat.hosts))

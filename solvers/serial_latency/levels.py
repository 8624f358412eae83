r"""Constraint program with the exact number of subgraphs, by a level for every op.

Two sets of Booleans are added to the program of :mod:`placekit.solvers.assignment.cpsat.model`: :math:`g_{vj}` (the
level of op v is at least j, :math:`j = 1 .. J`), and :math:`e_{uv}` (the classes of an edge are in different slots):

.. math::

   & g_{v,j+1} \Rightarrow g_{vj}, \quad g_{uj} \Rightarrow g_{vj}, \quad g_{uj} \wedge e_{uv} \Rightarrow g_{v,j+1}
       \quad (g_{u0} \text{ is true}) \\
   & g_{vj} \Rightarrow \bigvee_{u \to v} \big( g_{uj} \vee (g_{u,j-1} \wedge e_{uv}) \big) \\
   & g_{vj} \wedge \neg g_{v,j+1} \wedge x_{vs} \Rightarrow b_{js}, \qquad
     \min \ldots + a \sum_{js} b_{js}

The second line forbids a level that is higher than the paths make it: such a level could save a subgraph.

The number of levels is bounded. Let C be the objective of a placement and B a bound on work and transfers. A better
placement has at most :math:`(C - B) / a` subgraphs, and a path with j device changes visits :math:`j + 1` of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.objectives import SerialLatency
from placekit.objectives.serial_latency import subgraph_levels
from placekit.solvers.assignment.cpsat.convexity import flat_and_convexity
from placekit.solvers.assignment.cpsat.membership import Values
from placekit.solvers.assignment.cpsat.model import CpsatModel
from placekit.solvers.generic.coarsen import Contraction


def most_levels(
    contraction: Contraction[SerialLatency],  # the contracted problem, with a cost per subgraph
    ceiling_s: float | None,  # objective of a feasible placement; None if none is known
    floor_s: float,  # lower bound on work and transfers
) -> int:
    """Return the highest level in any placement better than `ceiling_s`."""
    problem = contraction.problem
    objective = problem.objective
    # every edge between two classes can be a device change
    longest = int(subgraph_levels(problem.graph, contraction.class_of_op).max())
    if ceiling_s is None:
        return longest
    most = max(ceiling_s - floor_s, 0.0) / objective.subgraph_cost_s * (1 + 1e-9) + 1e-9
    return longest if most > longest + 1 else max(math.floor(most) - 1, 0)


class LevelModel(CpsatModel):
    """Constraint program of the serial latency with the exact number of subgraphs.

    Parameters
    ----------
    contraction
        The contracted problem under `SerialLatency` with a cost per subgraph.
    ceiling_s
        Objective of a feasible placement; None if none is known.
    num_levels
        Highest level that a placement of interest reaches (`most_levels`).
    """

    def __init__(self, contraction: Contraction[SerialLatency], ceiling_s: float | None, num_levels: int) -> None:
        problem = contraction.problem
        objective = problem.objective
        self.contraction, self.num_levels = contraction, num_levels
        self.is_at_least: dict[tuple[int, int], cp_model.IntVar] = {}
        self.differs: dict[tuple[int, int], cp_model.IntVar] = {}
        self.through: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.subgraph: dict[tuple[int, int], cp_model.IntVar] = {}
        flat, convexity = flat_and_convexity(contraction)
        super().__init__(
            flat,
            ceiling_s,
            objective.loads(problem),
            convexity=convexity,
        )

    def _times_paid(self) -> int:
        return self.contraction.problem.graph.num_ops  # each op may be its own subgraph

    def _minimise_total(self, slot_cost_s: float) -> None:
        parts = [part for s in range(self.num_slots) for part in self._work(s, 0) + self._moves(s, 0)]
        cost = int(self.scale.floor(np.array([slot_cost_s]), self.most + 1)[0])
        if cost:
            self._constrain_levels()
            parts += [(variable, cost) for variable in self._count_subgraphs()]
        total = cp_model.LinearExpr.weighted_sum([v for v, _ in parts], [a for _, a in parts])
        self.proto.add(total <= self.most)
        self.proto.minimize(total)

    def _different(self, c: int, d: int) -> cp_model.IntVar:
        """Return the Boolean that is true iff classes `c` and `d` are in different slots."""
        pair = min(c, d), max(c, d)
        if pair not in self.differs:
            e = self.differs[pair] = self.proto.new_bool_var(f"e_{pair[0]}_{pair[1]}")
            for s in range(self.num_slots):
                here, there = self.membership.x.get((c, s)), self.membership.x.get((d, s))
                if here is not None and there is not None:
                    self.proto.add_bool_or(~here, ~there, ~e)
                if here is not None:
                    self.proto.add_bool_or(~here, e, *([] if there is None else [there]))
        return self.differs[pair]

    def _constrain_levels(self) -> None:
        graph, class_of_op = self.contraction.problem.graph, self.contraction.class_of_op.tolist()
        add, top = self.proto.add_bool_or, self.num_levels
        reach = np.minimum(subgraph_levels(graph, self.contraction.class_of_op), top)
        g = self.is_at_least
        before: dict[int, list[int]] = {}
        for u, v in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
            before.setdefault(v, []).append(u)
        for v in graph.order.tolist():
            for j in range(1, int(reach[v]) + 1):
                g[v, j] = self.proto.new_bool_var(f"g_{v}_{j}")
                if j > 1:
                    add(~g[v, j], g[v, j - 1])
            why: dict[int, list[cp_model.IntVar]] = {j: [] for j in range(1, int(reach[v]) + 1)}
            for u in before.get(v, []):
                for j in range(1, int(reach[u]) + 1):
                    add(~g[u, j], g[v, j])
                    why[j].append(g[u, j])
                if class_of_op[u] == class_of_op[v]:
                    continue
                e = self._different(class_of_op[u], class_of_op[v])
                for j in range(int(reach[u]) + 1):
                    is_there = [~g[u, j]] if j else []
                    if j + 1 > top:
                        add(*is_there, ~e)  # one level too many
                        continue
                    add(*is_there, ~e, g[v, j + 1])
                    if j == 0:
                        why[1].append(e)
                        continue
                    through = self.through[u, v, j] = self.proto.new_bool_var(f"t_{u}_{v}_{j}")
                    self.proto.add_implication(through, g[u, j])
                    self.proto.add_implication(through, e)
                    why[j + 1].append(through)
            for j, reasons in why.items():
                add(~g[v, j], *reasons)

    def _count_subgraphs(self) -> list[cp_model.IntVar]:
        class_of_op = self.contraction.class_of_op.tolist()
        for v in range(self.contraction.problem.graph.num_ops):
            for j in range(self.num_levels + 1):
                if j and (v, j) not in self.is_at_least:
                    break
                at = [~self.is_at_least[v, j]] if j else []
                if (v, j + 1) in self.is_at_least:
                    at.append(self.is_at_least[v, j + 1])
                for s in range(self.num_slots):
                    inside = self.membership.x.get((class_of_op[v], s))
                    if inside is None:
                        continue
                    if (j, s) not in self.subgraph:
                        self.subgraph[j, s] = self.proto.new_bool_var(f"b_{j}_{s}")
                    self.proto.add_bool_or(*at, ~inside, self.subgraph[j, s])
        return list(self.subgraph.values())

    def encode(self, device: NDArray[np.int64]) -> Values | None:
        """Return a value for every variable, for ``[C]`` devices; None if the placement has too many levels."""
        encoded = self.membership.encode(device)
        values = super().encode(device)
        if encoded is None or values is None:
            return None
        slot, _ = encoded
        level = subgraph_levels(self.contraction.problem.graph, self.contraction.expand(device))
        if self.is_at_least and level.max() > self.num_levels:
            return None
        values |= {g.index: int(level[v] >= j) for (v, j), g in self.is_at_least.items()}
        values |= {e.index: int(slot[c] != slot[d]) for (c, d), e in self.differs.items()}
        of_class = self.contraction.class_of_op
        values |= {
            t.index: int(level[u] >= j and slot[of_class[u]] != slot[of_class[v]])
            for (u, v, j), t in self.through.items()
        }
        used = set(zip(level.tolist(), slot[of_class].tolist(), strict=True))
        return values | {b.index: int(pair in used) for pair, b in self.subgraph.items()}

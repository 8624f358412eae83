"""Convexity in the constraint program: every op on a path between two ops of a part is in the part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.solvers.assignment.cpsat.membership import Membership, Values
from placekit.solvers.assignment.flat import FlatProblem, flatten
from placekit.solvers.assignment.ilp.slots import left_before
from placekit.solvers.generic.coarsen import Contraction

Gone = dict[tuple[int, int], cp_model.IntVar]
"""``f`` of :mod:`placekit.solvers.assignment.cpsat.model` by op and slot: a path left the slot before the op."""


@dataclass(frozen=True, slots=True)
class Convexity:
    """Rows for order edges between ops; classes of ops need not be convex themselves."""

    class_of_op: NDArray[np.int64]  # ``[num_ops]`` class of every op
    # senders, receivers: ``[num_edges]`` ops
    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]

    def constrain(self, proto: cp_model.CpModel, membership: Membership) -> Gone:
        """Add the rows of every slot, and return their variables."""
        x, class_of_op = membership.x, self.class_of_op
        edges = list(zip(self.senders.tolist(), self.receivers.tolist(), strict=True))
        gone: Gone = {}
        for s in range(len(membership.device_of_slot)):
            f = {v: proto.new_bool_var(f"f_{v}_{s}") for v in np.unique(self.receivers).tolist()}
            for v, variable in f.items():
                gone[v, s] = variable
                inside = x.get((int(class_of_op[v]), s))
                if inside is not None:
                    proto.add_bool_or(~inside, ~variable)
            for u, v in edges:
                source, target = x.get((int(class_of_op[u]), s)), x.get((int(class_of_op[v]), s))
                if source is not None and source is not target:
                    proto.add_bool_or(~source, f[v], *([] if target is None else [target]))
                if u in f:
                    proto.add_implication(f[u], f[v])
        return gone

    def encode(self, gone: Gone, slot: NDArray[np.int64]) -> Values:
        """Return a value for every variable of `gone` for ``[C]`` slots."""
        along = edges_along_order(len(self.class_of_op), self.senders, self.receivers)
        is_gone = {s: left_before(slot[self.class_of_op] == s, *along) for s in {s for _, s in gone}}
        return {variable.index: int(is_gone[s][v]) for (v, s), variable in gone.items()}


def flat_and_convexity(contraction: Contraction) -> tuple[FlatProblem, Convexity | None]:
    """Return the arrays of a contraction, and rows for convex parts if the problem asks for them: then in no order."""
    flat, problem = flatten(contraction), contraction.problem
    if problem.contiguity is not Contiguity.CONVEX:
        return flat, None
    return flat._replace(is_ordered=False), Convexity(contraction.class_of_op, *problem.order_edges)

"""Explanations of exact methods for a problem without a feasible placement."""

from __future__ import annotations

import numpy as np

from placekit.model.placement import Violation
from placekit.solvers.generic.coarsen import Contraction

__all__ = ["cannot_share", "clash"]


def cannot_share(contraction: Contraction, c: int) -> Violation:
    """Return what is wrong with class `c`, which has no device: only a fused cycle gets this far."""
    ops = np.flatnonzero(contraction.class_of_op == c)
    names = [contraction.problem.graph.op_names[op] for op in ops[:3]]
    message = (
        f"ops {', '.join(map(repr, names))}{', ...' if len(ops) > 3 else ''} ({len(ops)} in all) wait for each other "
        "through colocation, so an acyclic placement keeps them together; no device supports and holds them all"
    )
    return Violation("support", message, names[0])


def clash() -> Violation:
    """Return what is known when an exhaustive search has no solution."""
    message = (
        "no placement satisfies memory, support, pins, colocation and contiguity together "
        "(each can be satisfied on its own; the search was exhaustive)"
    )
    return Violation("infeasible", message)

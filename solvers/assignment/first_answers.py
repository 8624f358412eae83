"""First answers of the exact methods: quick placements, quick bounds, and proofs of infeasibility."""

from __future__ import annotations

import numpy as np

from placekit.model.placement import Violation
from placekit.objectives import O_co
from placekit.solve.method import Run
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.coarsen import Contraction, contract


def open_run(run: Run[O_co]) -> Contraction[O_co] | None:
    """Offer the single devices, raise the first bound, and contract the problem.

    Returns
    -------
    Contraction or None
        None if a class fits on no device: then the run holds the proof.
    """
    offer_single_devices(run)
    run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
    contraction = contract(run.problem)
    if run.problem.objective.team_rule != "off":
        return contraction  # ops pinned to several devices fit on no device, but perhaps on a team
    nowhere = np.flatnonzero(~flatten(contraction).allowed.any(axis=1))
    if nowhere.size:
        run.prove_infeasible(cannot_share(contraction, int(nowhere[0])))
        return None
    return contraction


def cannot_share(contraction: Contraction, c: int) -> Violation:
    """Return the violation of class `c`, which no device can hold: a cycle that was fused by colocation."""
    ops = np.flatnonzero(contraction.class_of_op == c)
    names = [contraction.problem.graph.op_names[op] for op in ops[:3]]
    message = (
        f"ops {', '.join(map(repr, names))}{', ...' if len(ops) > 3 else ''} ({len(ops)} in all) wait for each other "
        "through colocation, so an acyclic placement keeps them together; no device supports and holds them all"
    )
    return Violation("support", message, names[0])

"""Opening of the exact methods: quick bounds and placements before the search begins."""

from __future__ import annotations

import numpy as np

from placekit.objectives import O_co
from placekit.solve.method import Run
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.assignment.infeasible import cannot_share
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.largest_op import largest_op

__all__ = ["open_run"]


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
        return contraction  # pins to several devices leave no device, but perhaps a team
    nowhere = np.flatnonzero(~flatten(contraction).allowed.any(axis=1))
    if nowhere.size:
        run.prove_infeasible(cannot_share(contraction, int(nowhere[0])))
        return None
    return contraction

"""How the exact methods open: what is quick to know before the search begins."""

from __future__ import annotations

import numpy as np

from placekit.coarsen import Contraction, contract
from placekit.contiguity import Contiguity
from placekit.method import Run
from placekit.objectives import Throughput
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.assignment.infeasible import cannot_share
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.largest_op import largest_op

__all__ = ["offer_best_chains", "open_run"]


def open_run(run: Run) -> Contraction | None:
    """Offer the single devices, raise the first bound, and contract the problem.

    Returns
    -------
    Contraction or None
        None if a class fits on no device: then the run holds the proof.
    """
    offer_single_devices(run)
    run.raise_bound(*largest_op(run.problem))
    contraction = contract(run.problem)
    nowhere = np.flatnonzero(~flatten(contraction).allowed.any(axis=1))
    if nowhere.size:
        run.prove_infeasible(cannot_share(contraction, int(nowhere[0])))
        return None
    return contraction


def offer_best_chains(run: Run, contraction: Contraction) -> None:
    """Offer the chains of ``dpl``, for throughput: they are acyclic, which every contiguity allows.

    A program that knows them is scaled by a good objective and closes slow devices from the start.
    """
    from placekit.solvers.throughput.dp.linear import LinearDpParams, offer_chains

    problem = run.problem
    if not isinstance(problem.objective, Throughput) or run.should_stop() is not None:
        return
    if problem.contiguity is not Contiguity.ACYCLIC:
        contraction = contract(problem.replace(contiguity=Contiguity.ACYCLIC))
        if not flatten(contraction).allowed.any(axis=1).all():
            return
    offer_chains(run, contraction, LinearDpParams())

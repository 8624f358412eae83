"""Neighbourhoods that a learned policy chooses: ops whose device it is undecided about are freed more often."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from placekit.solve.method import Run

__all__ = ["UNCERTAIN", "draw_weighted", "uncertain_ops"]

UNCERTAIN = "uncertain"
"""The kind of neighbourhood."""
LEAST = 0.02
"""Weight of an op that the policy is sure about, in units of the largest: it may be wrong."""

logger = logging.getLogger(__name__)


def uncertain_ops(run: Run) -> NDArray[np.float64] | None:
    """``[num_ops]`` positive weights of the ops, the larger the less a learned policy knows where they belong.

    Returns
    -------
    NDArray[np.float64] or None
        None, and a warning, if no learned method worked on `run` before.
    """
    if run.uncertainty is None:
        logger.warning("lns: no policy worked on %s before, as in 'hsdag+lns': it chooses none", run.problem.name)
        return None
    entropy = run.uncertainty()
    return entropy + max(LEAST * float(entropy.max(initial=0.0)), np.finfo(np.float64).tiny)


def draw_weighted(
    rng: np.random.Generator, among: NDArray[np.int64], weight: NDArray[np.float64], size: int
) -> NDArray[np.int64]:
    """Return `size` of `among`, or all of them if there are fewer, drawn one by one in proportion to their weights.

    Parameters
    ----------
    rng
        Where chance comes from.
    among
        ``[N]`` indices into `weight`.
    weight
        Positive weights.
    size
        How many.

    References
    ----------
    Efraimidis, Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97, 2006: the
    smallest of independent exponential variables with the weights as rates.
    """
    arrival = rng.exponential(size=len(among)) / weight[among]
    return among[np.argsort(arrival, kind="stable")[:size]]

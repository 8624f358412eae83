r"""Simulated annealing of placement and order together, guided by the critical path.

Every proposal is judged by its exact makespan. The threshold is drawn before the trial, so most trials end early
(:mod:`placekit.solvers.makespan.search.trial`).

The makespan alone is flat nearly everywhere. So a proposal that delays the ops on average also pays :math:`w` times
that delay. A proposal that lets ops end earlier on average gains nothing by it, so that the threshold stays sharp.

Proposals come from :mod:`placekit.solvers.makespan.search.proposals`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.solvers.generic.draws import Cooling
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.proposals import propose
from placekit.solvers.makespan.search.trial import keeps, restore
from placekit.solvers.makespan.search.walk import Walk, forget, settle, touched, trace, undo

SORT_EVERY = 64
"""Accepted proposals between two sortings of the sequence by start time, which changes no schedule."""


@njit(allocates=False)
def sort_by_start(walk: Walk) -> None:
    """Sort the sequence by start time; ties keep their order, so no op changes its time."""
    start_s = walk.timeline.start_s
    for i in range(1, len(walk.sequence)):  # it is nearly sorted
        v = walk.sequence[i]
        k = i
        while k > 0 and start_s[walk.sequence[k - 1]] > start_s[v]:
            walk.sequence[k] = walk.sequence[k - 1]
            walk.position[walk.sequence[k]] = k
            k -= 1
        walk.sequence[k] = v
        walk.position[v] = k


@njit(allocates=False)
def anneal(
    flat: SequenceProblem,
    walk: Walk,
    best_device: NDArray[np.int64],
    best_sequence: NDArray[np.int64],
    best_s: float,
    weight: float,
    cooling: Cooling,
) -> float:
    """Anneal from `walk`, and keep the best schedule.

    Parameters
    ----------
    flat
        The problem.
    walk
        State to start from; afterwards the last state.
    best_device, best_sequence
        ``[V]`` overwritten with the best placement and order if they are better than `best_s`.
    best_s
        Makespan to beat, in seconds.
    weight
        Weight of the mean finish time in the cost.
    cooling
        Temperatures in seconds.

    Returns
    -------
    float
        The makespan of the best if it changed, else `best_s`.

    Notes
    -----
    O(ops + edges) per proposal, at worst.
    """
    flat, walk = by_reference(flat), by_reference(walk)
    hot_s, cold_s, num_steps, seed = cooling
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    value = settle(flat, walk, 0, len(walk.sequence))
    trace(flat, walk)
    if value < best_s:
        best_s = value
        _copy(walk, best_device, best_sequence)
    temperature = hot_s
    factor = (cold_s / hot_s) ** (1.0 / num_steps) if hot_s > 0.0 else 0.0
    num_accepted = 0
    for _ in range(num_steps):
        temperature *= factor
        forget(walk)
        first = propose(flat, walk)
        if first < 0:
            undo(flat, walk)
            continue
        slack = -temperature * math.log(max(np.random.random(), 1e-300))  # noqa: NPY002
        limit_s = value + slack
        end = touched(flat, walk, first)
        is_kept, tried = keeps(flat, walk, first, end, limit_s, value, weight)
        if not is_kept:
            restore(flat, walk, first, tried)
            undo(flat, walk)
            continue
        value = settle(flat, walk, first, end)
        num_accepted += 1
        if num_accepted % SORT_EVERY == 0:
            sort_by_start(walk)
            settle(flat, walk, 0, len(walk.sequence))
        trace(flat, walk)
        if value < best_s:
            best_s = value
            _copy(walk, best_device, best_sequence)
    return best_s


@njit(inline=True, allocates=False)
def _copy(walk: Walk, device: NDArray[np.int64], sequence: NDArray[np.int64]) -> None:
    for i in range(len(device)):
        device[i], sequence[i] = walk.device[i], walk.sequence[i]

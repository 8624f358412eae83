"""A common divisor of all times of a problem: what objectives are whole multiples of.

Every objective of placekit is a sum of op times, transfer times and costs of subgraphs, or the largest of several such
sums. If all of them are whole multiples of one step, so is the objective, and a lower bound of 59.99994 steps is one
of 60.

**Tolerances.** A time is a multiple of the step if it is the nearest floating-point number to one, or a few next to it
(`ULPS`): 0.055 is 55 times 0.001. A sum of such times differs from a multiple by parts in 1e10 at most, for up to a
million terms. Bounds are rounded up from `BOUND_TOLERANCE` relative, above anything that a bound or an objective can be
off, so that an optimum of 60 steps never becomes 61.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem

__all__ = ["BOUND_TOLERANCE", "common_step_s", "round_up_to_step", "time_step_s"]

DECIMALS = 12
"""Digits behind the decimal point of a second that are tried."""
MOST_STEPS = 2**40
"""Steps of the largest time, at most: any float is a multiple of something small enough."""
ULPS = 4.0
"""How many units in the last place a time may be away from a multiple."""
BOUND_TOLERANCE = 3e-6
"""Relative; see the module docstring. Well above the tolerance within which a result counts as optimal."""


def time_step_s(problem: Problem) -> float | None:
    """Return seconds that every objective of `problem` is a multiple of; None if there are none worth knowing.

    O(times * decimals).
    """
    constants_s, costs = problem.objective.constants_s(), problem.costs
    if constants_s is None:
        return None
    moves = costs.transfer_time_s.ravel(), costs.direct_time_s.ravel()
    return common_step_s(costs.op_time_s[costs.supported], *moves, np.array(constants_s))


def common_step_s(*times_s: NDArray[np.float64]) -> float | None:
    """Return the largest step, a whole number of some decimal unit, that all the times are multiples of, or None."""
    every = np.unique(np.concatenate(times_s))
    every = every[every > 0]
    if not len(every):
        return None
    for decimals in range(DECIMALS + 1):
        unit = 10.0**decimals  # an exact number, unlike its inverse
        steps = np.rint(every * unit)
        if steps[-1] > MOST_STEPS:
            return None
        if steps[0] and (np.abs(steps / unit - every) <= ULPS * np.spacing(every)).all():
            return float(np.gcd.reduce(steps.astype(np.int64))) / unit
    return None


def round_up_to_step(bound_s: float, step_s: float) -> float:
    """Return the lower bound `bound_s` rounded up to a multiple of the step, or itself if it is no higher.

    Examples
    --------
    >>> round_up_to_step(0.0591, 0.001) == 0.06 * (1 - 1e-12)
    True
    >>> round_up_to_step(60.00001, 1.0), round_up_to_step(61.0, 1.0)
    (60.00001, 61.0)
    """
    if not 0 < bound_s < math.inf:
        return bound_s
    # a hair below: the judge adds up in floating point
    return max(bound_s, math.ceil(bound_s / step_s * (1 - BOUND_TOLERANCE)) * step_s * (1 - 1e-12))

"""Common divisor of all times of a problem, to which lower bounds are rounded up.

Every objective of placekit is a sum of op times, transfer times and costs of subgraphs, or the largest of several such
sums. If all times are whole multiples of one step, so is the objective. Then a lower bound of 59.99994 steps is a lower
bound of 60 steps.

**Tolerances.** A time counts as a multiple of the step if it is within `ULPS` floating-point numbers of one: 0.055 is
55 times 0.001. A sum of up to a million such times differs from a multiple by at most parts in 1e10. A bound is rounded
up only if it exceeds a multiple by more than `BOUND_TOLERANCE` (relative), which is more than any error of a bound or
an objective. So an optimum of 60 steps never becomes 61.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem

DECIMALS = 12
"""Number of decimal digits of a second that are tried."""
MOST_STEPS = 2**40
"""Largest number of steps of the largest time: every float is a multiple of some tiny step."""
ULPS = 4.0
"""Largest distance of a time from a multiple, in units in the last place."""
BOUND_TOLERANCE = 3e-6
"""Relative; see the module docstring. Well above the tolerance within which a result counts as optimal."""


def time_step_s(problem: Problem) -> float | None:
    """Return the step in seconds of which every objective of `problem` is a multiple; None if there is none.

    O(times * decimals).
    """
    constants_s, costs = problem.objective.constants_s(), problem.costs
    if constants_s is None:
        return None
    moves = costs.transfer_time_s.ravel(), costs.direct_time_s.ravel()
    return common_step_s(costs.op_time_s[costs.supported], *moves, np.array(constants_s))


def common_step_s(*times_s: NDArray[np.float64]) -> float | None:
    """Return the largest step (a whole number of a decimal unit) that divides all times; None if there is none."""
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

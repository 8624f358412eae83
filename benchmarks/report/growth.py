r"""How a cost grows with size: the exponent :math:`b` of :math:`y = a n^b`, by least squares on logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Growth", "fit_growth"]


@dataclass(frozen=True, slots=True)
class Growth:
    """A fitted power law.

    Parameters
    ----------
    exponent
        Slope of the line through the logarithms.
    standard_error
        Standard error of the slope; None for two points, which every line fits.
    scale
        Value at size 1.
    num_points
        Number of points.
    """

    exponent: float
    standard_error: float | None
    scale: float
    num_points: int

    def at(self, size: float) -> float:
        """Return the fitted value at `size`."""
        return self.scale * float(size**self.exponent)

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.2f}"
        return f"{self.exponent:.2f}{error}"


def fit_growth(sizes: Sequence[float], values: Sequence[float]) -> Growth | None:
    """Fit a power law; None without two different sizes.

    Parameters
    ----------
    sizes, values
        The points, all above 0.

    Examples
    --------
    >>> str(fit_growth([1, 10, 100], [2, 200, 20_000]))
    '2.00 ± 0.00'
    """
    if len(set(sizes)) < 2:
        return None
    x, y = np.log(np.asarray(sizes, dtype=np.float64)), np.log(np.asarray(values, dtype=np.float64))
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    offset = float(y.mean()) - slope * float(x.mean())
    freedom = len(x) - 2
    residual = float(((y - offset - slope * x) ** 2).sum())
    error = math.sqrt(residual / freedom / spread) if freedom > 0 else None
    return Growth(slope, error, math.exp(offset), len(x))

"""How much two arrays differ, in units that make sense for tensors of any size and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["relative_errors"]

_BEYOND = 1e30
"""Numbers that stand for infinity, as in attention masks: they must agree, and do not count for the spread."""

_INFINITE = (float("inf"), float("inf"))

_LEAST_SPREAD = 0.01
"""Least spread in units of the largest magnitude: below it the rounding of the numbers themselves would be an error."""

_USUAL_TAIL = 4.0
"""Spreads from the mean to the furthest of some ten thousand normally distributed numbers."""


def relative_errors(expected: NDArray[Any], found: NDArray[Any]) -> tuple[float, float]:
    """Return by how much `found` differs from `expected`, in units of its spread: at most, and root mean square.

    The spread is the standard deviation of `expected`, or a hundredth of its largest magnitude where that is more (a
    tensor that hardly varies). For the largest difference it is at least a quarter of the largest distance from the
    mean, which is more where few numbers are much larger than the others (a softmax that is nearly one-hot, the squares
    inside an RMS norm): rounding is in proportion to them.
    Infinities, numbers beyond 1e30 and NaN must be the same at the same places. For integers and booleans both errors
    are the share of elements that differ.

    Returns
    -------
    tuple[float, float]
        0 if equal; infinity for another shape, or where one is finite and the other is not.

    Examples
    --------
    >>> [round(error, 3) for error in relative_errors(np.array([-1.0, 1.0]), np.array([-1.0, 1.1]))]  # spread 1
    [0.1, 0.071]
    >>> relative_errors(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    (0.25, 0.25)
    """
    if expected.shape != found.shape:
        return _INFINITE
    if expected.dtype.kind != "f":
        share = float(np.mean(expected != found)) if expected.size else 0.0
        return share, share
    a, b = expected.astype(np.float64), found.astype(np.float64)
    is_number = np.abs(a) < _BEYOND  # False for NaN
    if not np.array_equal(is_number, np.abs(b) < _BEYOND):
        return _INFINITE
    beyond, also = a[~is_number], b[~is_number]
    if not np.array_equal(np.isnan(beyond), np.isnan(also)) or (np.sign(beyond) * np.sign(also) < 0).any():
        return _INFINITE
    a, b = a[is_number], b[is_number]
    difference = np.abs(a - b)
    if not difference.any():
        return 0.0, 0.0
    spread = max(float(a.std()), _LEAST_SPREAD * float(np.abs(a).max()))
    if not spread:
        return _INFINITE
    furthest = float(np.abs(a - a.mean()).max())
    return float(difference.max()) / max(spread, furthest / _USUAL_TAIL), float(
        np.sqrt(np.mean(difference**2))
    ) / spread

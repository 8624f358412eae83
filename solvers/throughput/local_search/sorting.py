"""Sorting in few lines: Numba's own `sort` takes longer to compile than the searches do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit


@njit(inner=True)
def sort(values: NDArray[np.float64] | NDArray[np.int64], begin: int, end: int) -> None:
    """Sort a slice in place, ascending: Shell's sort with Knuth's steps, O(n ** 1.5)."""
    step = 1
    while step < (end - begin) // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(begin + step, end):
            value = values[i]
            j = i
            while j >= begin + step and values[j - step] > value:
                values[j] = values[j - step]
                j -= step
            values[j] = value
        step //= 3

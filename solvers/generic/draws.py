"""Random choices of the compiled searches, from Numba's generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit


@njit(inline=True)
def below(count: int) -> int:
    """Return a random index below `count`."""
    return min(int(np.random.random() * count), count - 1)  # noqa: NPY002  # numba has only the old generators


@njit(inner=True)
def shuffled(count: int) -> NDArray[np.int64]:
    """``[count]`` the numbers below `count` in random order."""
    order = np.empty(count, dtype=np.int64)
    for i in range(count):
        j = below(i + 1)
        order[i] = order[j]
        order[j] = i
    return order

"""Random choices of the compiled searches, from Numba's generator, and how long and how hot they walk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit


class Cooling(NamedTuple):
    """Course of an annealing walk."""

    # hot, cold: first and last temperature, in the unit of what is annealed; it falls geometrically
    hot: float
    cold: float
    num_steps: int  # number of proposals
    seed: int


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

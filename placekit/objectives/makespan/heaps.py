"""Binary heaps of (key, place) pairs on slices of flat arrays: the smallest key first, ties by the smallest place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit


@njit(inline=True)
def push(keys: NDArray[np.float64], places: NDArray[np.int64], base: int, size: int, key: float, place: int) -> None:
    """Add (key, place) to the heap that starts at `base` and has `size` entries; O(log size)."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        other = keys[base + parent]
        if other < key or (other == key and places[base + parent] < place):
            break
        keys[base + at] = other
        places[base + at] = places[base + parent]
        at = parent
    keys[base + at] = key
    places[base + at] = place


@njit(inline=True)
def pop(keys: NDArray[np.float64], places: NDArray[np.int64], base: int, size: int) -> None:
    """Remove the first entry, which the caller has read at `base`, leaving `size` others; O(log size)."""
    key, place = keys[base + size], places[base + size]
    at, child = 0, 1
    while child < size:
        left = base + child
        if child + 1 < size and (
            keys[left + 1] < keys[left] or (keys[left + 1] == keys[left] and places[left + 1] < places[left])
        ):
            child += 1
            left += 1
        if key < keys[left] or (key == keys[left] and place < places[left]):
            break
        keys[base + at] = keys[left]
        places[base + at] = places[left]
        at, child = child, 2 * child + 1
    keys[base + at] = key
    places[base + at] = place

"""The numba kernel that counts memory that the classes of a block share."""

from __future__ import annotations

import numpy as np

from placekit.kernels import njit
from placekit.model.memory import BlockKind

__all__ = ["shared_bytes"]

ACTIVATION, WEIGHT = int(BlockKind.ACTIVATION), int(BlockKind.WEIGHT)


@njit
def shared_bytes(bits, i, j, shared):  # type: ignore[no-untyped-def]  # compiled
    """Return what the classes between the ideals j and i need beside their own memory.

    The formula of :mod:`placekit.model.memory`. O(uses + positions).

    Parameters
    ----------
    bits : uint64[num_ideals, num_words]
        The ideals.
    i, j : int
        Indices of the upper and the lower one.
    shared : tuple
        `Instance.shared_memory`: offsets, classes, positions, bytes and kinds of the blocks, and a scratch array of
        the positions.
    """
    offsets, classes, positions, num_bytes, kinds, level = shared
    level[:] = 0.0
    total = 0.0
    for block in range(len(num_bytes)):
        first, last, inside = len(level), -1, 0
        for e in range(offsets[block], offsets[block + 1]):
            word, bit = classes[e] >> 6, np.uint64(classes[e] & 63)
            if ((bits[i, word] & ~bits[j, word]) >> bit) & np.uint64(1):
                inside += 1
                first = min(first, positions[e])
                last = max(last, positions[e])
        if inside == 0:
            continue
        if kinds[block] == ACTIVATION:
            level[first] += num_bytes[block]
            level[last + 1] -= num_bytes[block]
        elif kinds[block] == WEIGHT or inside < offsets[block + 1] - offsets[block]:
            total += num_bytes[block]
    now, peak = 0.0, 0.0
    for at in range(len(level)):
        now += level[at]
        peak = max(peak, now)
    return total + peak

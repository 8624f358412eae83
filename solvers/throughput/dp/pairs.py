"""Tests on a pair of ideals, inlined into the kernels that extend chains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit

__all__ = ["is_block", "mark_cut", "rest_of_cut"]


@njit(inline=True)
def is_block(
    j: int,
    i: int,
    bits: NDArray[np.uint64],
    closed: NDArray[np.float64],
    memory: NDArray[np.float64],
    memory_limit: float,
) -> bool:
    """Return whether what ideal `i` has beyond `j` is a block: not empty, within memory, with no closed class."""
    if closed[i] != closed[j] or memory[i] - memory[j] > memory_limit or i == j:
        return False
    for w in range(bits.shape[1]):  # noqa: SIM110  # compiled
        if bits[j, w] & ~bits[i, w]:
            return False
    return True


@njit(inline=True)
def mark_cut(
    cut_offsets: NDArray[np.int64],
    cut_nets: NDArray[np.int32],
    cut_counts: NDArray[np.int32],
    i: int,
    pins_inside: NDArray[np.int32],
    is_cut: bool,
) -> None:
    """Note for `rest_of_cut` how many pins of each net that ideal `i` cuts lie inside, or forget it."""
    for e in range(cut_offsets[i], cut_offsets[i + 1]):
        pins_inside[cut_nets[e]] = cut_counts[e] if is_cut else 0


@njit(inline=True)
def rest_of_cut(
    cut_offsets: NDArray[np.int64],
    cut_nets: NDArray[np.int32],
    cut_counts: NDArray[np.int32],
    j: int,
    pins_inside: NDArray[np.int32],
    net_times: NDArray[np.float64],
    row: int,
) -> float:
    """Return the seconds of a block's nets, less those of the cut of the upper ideal.

    Nets that the lower ideal `j` cuts and the upper one does not meet the block; those that both cut with as many pins
    inside do not.
    """
    seconds = 0.0
    for e in range(cut_offsets[j], cut_offsets[j + 1]):
        net = cut_nets[e]
        if pins_inside[net] == 0:
            seconds += net_times[row, net]
        elif pins_inside[net] == cut_counts[e]:
            seconds -= net_times[row, net]
    return seconds

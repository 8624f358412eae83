"""Decisions on one level of groups, with the log-probabilities that a policy gradient needs.

Shapes
------
``N`` nodes, ``G`` groups of the level, ``S`` samples, ``W`` swaps, ``D`` devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.learner import entropy

__all__ = ["Decisions", "agreed", "odds", "sampled", "swaps"]


class Decisions(NamedTuple):
    """The groups of one level and the distribution of their devices.

    Parameters
    ----------
    group_of_node
        ``[N]`` group of every node.
    log_probs
        ``[G, D]`` log-probability of every device, minus infinity where the mask forbids it.
    """

    group_of_node: NDArray[np.int64]
    log_probs: Tensor


def swaps(level: Decisions, base: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return at most `count` groups ``[W]``, and for each a device it may go to but does not have in `base` ``[G]``."""
    can = level.log_probs.detach() > -torch.inf
    can[torch.arange(len(base)), base] = False
    group, device = can.nonzero(as_tuple=True)
    if not count:
        return group[:0], device[:0]
    drawn = torch.randperm(len(group), generator=generator)[:count]
    return group[drawn], device[drawn]


def agreed(level: Decisions, devices: Tensor) -> Tensor:
    """``[count * G]`` log-probability of the device of all nodes of a group, minus infinity where they differ.

    `devices` are those of the nodes, ``[count, N]``. (A group whose nodes differ would teach the head, which all levels
    share, to be undecided.)
    """
    groups = torch.arange(len(level.log_probs))
    members = torch.from_numpy(level.group_of_node).expand(len(devices), -1)
    empty = devices.new_empty(len(devices), len(groups))
    least, most = (empty.scatter_reduce(1, members, devices, how, include_self=False) for how in ("amin", "amax"))
    return level.log_probs[groups, least].masked_fill(least != most, -torch.inf).flatten()


def sampled(level: Decisions, chosen: Tensor, first_row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, log-probability and entropy of every decision of devices ``[S, G]`` chosen."""
    num_samples, num_groups = chosen.shape
    row = torch.arange(first_row, first_row + num_samples).repeat_interleave(num_groups)
    groups = torch.arange(num_groups)
    log_probs = level.log_probs[groups, chosen].flatten()
    return row, log_probs, entropy(level.log_probs).repeat(num_samples)


def odds(
    level: Decisions, base: Tensor, group: Tensor, device: Tensor, first_row: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return row and log-odds against the device in `base` of every swap, and no entropies: samples have them."""
    gap = level.log_probs[group, device] - level.log_probs[group, base[group]]
    return torch.arange(first_row, first_row + len(group)), gap, gap.new_empty(0)

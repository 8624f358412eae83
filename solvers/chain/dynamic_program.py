"""Exact plans of a chain of blocks: which device, or team of equal devices, has which run of blocks.

Contiguity leaves every device one run of a chain. What a stage takes then depends on its kind of device, on its first
and on its last block only, and devices of a kind are interchangeable. So a dynamic program over (devices used of every
kind, blocks placed) is exact:

1. Claim: the best plan of the first `j` blocks with given counts of devices ends in a stage over blocks `i .. j - 1`.
2. Reason: the stages before it are a plan of `i` blocks with the counts less those of the stage; a better one would
   make the whole plan no worse, as loads are added up (latency) or the largest counts (throughput).
3. Conclusion: trying every last stage on the best plans of fewer devices finds the optimum.

Apart from it are programs whose stages depend on more: :mod:`placekit.solvers.throughput.dp` has chains of ideals of
any graph, :mod:`placekit.solvers.training_plan` stages whose memory depends on their place in the pipeline, and
:mod:`placekit.solvers.generic.pipedream` an objective of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placekit.solve.stop import is_wanted


class StoppedError(Exception):
    """The solve that the program works for is to stop."""


@dataclass(frozen=True)
class StageSort:
    """A sort of stage: devices of a group with what they take together."""

    group: int  # group of interchangeable devices
    devices: int  # devices that a stage takes of the group
    # ``[num_blocks + 1, num_blocks + 1]`` seconds of a stage over blocks ``i .. j - 1``; infinite if it cannot be.
    cost_s: NDArray[np.float64]
    # fullness, moved_s: the same shape: share of the memory that a device of it fills (0 without a limit), and the
    # seconds of its transfers; they decide between plans with the same seconds
    fullness: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    moved_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))


@dataclass(frozen=True)
class BlockRun:
    """Blocks ``begin .. end - 1`` by the sort of stage with the number `sort`."""

    sort: int
    begin: int
    end: int


@dataclass(frozen=True)
class Lead:
    """Rule that the first stage on a card is on one of some groups."""

    hosts: frozenset[int]  # groups that are no cards
    leaders: frozenset[int]  # groups of which the first card may be

    def refuses(self, group: int, used: tuple[int, ...]) -> bool:
        """Return whether a stage of a group would be the first on a card, and may not be."""
        return not (group in self.hosts or group in self.leaders or any(
            count for at, count in enumerate(used) if at not in self.hosts
        ))  # fmt: skip


def best_chain(
    sorts: Sequence[StageSort], sizes: Sequence[int], num_blocks: int, *, is_sum: bool, lead: Lead | None = None
) -> tuple[float, tuple[BlockRun, ...]] | None:
    """Return the best plan and its seconds; None if there is none.

    `sizes` are the devices of every group. The sum of the stages' seconds is minimised if `is_sum`, else the largest.
    With `lead` only plans that obey it count. Raises `StoppedError`: the solve is to stop.

    Examples
    --------
    >>> cost = np.where(np.tri(4, k=-1).T, np.subtract.outer(np.arange(4.0), np.arange(4.0)).T, np.inf)
    >>> best_chain([StageSort(0, 1, cost)], [2], 3, is_sum=False)
    (2.0, (BlockRun(sort=0, begin=0, end=1), BlockRun(sort=0, begin=1, end=3)))
    """
    shape = tuple(size + 1 for size in sizes)
    best = np.full((*shape, num_blocks + 1), np.inf)
    best[(0,) * len(sizes)][0] = 0.0
    came_by = np.zeros(best.shape, dtype=np.int32)
    came_from = np.zeros(best.shape, dtype=np.int32)
    together = np.add if is_sum else np.maximum
    limit = np.inf
    for used in np.ndindex(*shape):  # rising in every count
        so_far = best[used]
        begins = np.flatnonzero(so_far[:-1] < limit)
        if not len(begins):
            continue
        for at, sort in enumerate(sorts):
            count = used[sort.group] + sort.devices
            if count > sizes[sort.group] or (lead is not None and lead.refuses(sort.group, used)):
                continue
            if not is_wanted():
                raise StoppedError
            grown = (*used[: sort.group], count, *used[sort.group + 1 :])
            reached = together(so_far[begins, None], sort.cost_s[begins])
            row = reached.argmin(axis=0)
            value = reached[row, np.arange(num_blocks + 1)]
            better = value < best[grown]
            best[grown][better] = value[better]
            came_by[grown][better] = at
            came_from[grown][better] = begins[row[better]]
            limit = min(limit, best[grown][-1])
    ends = best[..., -1]
    used = tuple(map(int, np.unravel_index(int(ends.argmin()), ends.shape)))
    value = float(ends[used])
    if not np.isfinite(value):
        return None
    stages: list[BlockRun] = []
    end = num_blocks
    while end:
        at, begin = int(came_by[(*used, end)]), int(came_from[(*used, end)])
        stages.append(BlockRun(at, begin, end))
        group = sorts[at].group
        used = (*used[:group], used[group] - sorts[at].devices, *used[group + 1 :])
        end = begin
    return value, tuple(reversed(stages))

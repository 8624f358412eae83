"""Kinds of neighbourhoods that compete: which are drawn, how large, and along which edges they grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Operator", "adjacency", "choose_operators", "region"]

DECAY = 0.9
"""How fast the success of a kind of neighbourhood is forgotten."""
LEAST_SUCCESS = 0.05
"""What is left to a kind that never succeeds."""
GROWTH, SHRINK = 1.15, 0.9
"""Factors of the size after a neighbourhood that was closed, and after one that was not."""


@dataclass(slots=True)
class Operator:
    """One way to draw a neighbourhood, its size by now, and how it fares.

    Parameters
    ----------
    name
        Which way.
    size, smallest
        Free items of the first neighbourhood, and at least.
    success
        Weight in the draw.
    """

    name: str
    size: float = 25
    smallest: int = 6
    success: float = 1.0

    def learn(self, *, succeeded: bool, was_closed: bool, largest: int) -> None:
        """Remember how a neighbourhood of this kind went.

        Closed within the limit: there is room for more; not closed: less would have been more.
        """
        self.success = max(LEAST_SUCCESS, DECAY * self.success + (1 - DECAY) * succeeded)
        self.size = min(max(self.size * (GROWTH if was_closed else SHRINK), self.smallest), largest)


def choose_operators(rng: np.random.Generator, operators: Sequence[Operator], count: int) -> list[Operator]:
    """Return `count` operators, drawn with replacement in proportion to their success."""
    weights = np.array([operator.success for operator in operators])
    return [operators[i] for i in rng.choice(len(weights), count, p=weights / weights.sum())]


def adjacency(senders: NDArray[np.int64], receivers: NDArray[np.int64], num_nodes: int) -> list[NDArray[np.int64]]:
    """Return the nodes next to each node, in either direction."""
    ends = np.concatenate([senders, receivers])
    others = np.concatenate([receivers, senders])
    by_end = np.argsort(ends, kind="stable")
    return np.split(others[by_end], np.searchsorted(ends[by_end], np.arange(1, num_nodes)))


def region(
    neighbours: Sequence[NDArray[np.int64]], seeds: Iterable[int], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return at most `size` nodes reached along edges from the seeds, these included, nearest first."""
    found = dict.fromkeys(seeds)
    queue = list(found)
    for v in queue:
        if len(found) >= size:
            break
        for u in rng.permutation(neighbours[v]).tolist():
            if u not in found and len(found) < size:
                found[u] = None
                queue.append(u)
    return np.array(queue, dtype=np.int64)

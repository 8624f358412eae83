"""Kinds of neighbourhoods that compete, and what every large-neighbourhood search does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Operator", "adjacency", "choose_operators", "region", "search_side_by_side"]

DECAY = 0.9
"""How fast the success of a kind of neighbourhood is forgotten."""
LEAST_SUCCESS = 0.05
"""What is left to a kind that never succeeds."""
GROWTH = 1.15
"""Growth of the size after a neighbourhood that was closed."""

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class Operator:
    """One way to draw a neighbourhood, its size by now, and how it fares.

    Parameters
    ----------
    name
        Which way.
    size
        Free items of the first neighbourhood.
    smallest
        Least size.
    shrink
        Factor of the size after a neighbourhood that was not closed.
    success
        Weight in the draw.
    """

    name: str
    size: float
    smallest: int
    shrink: float = 0.9
    success: float = 1.0

    def learn(self, *, succeeded: bool, was_closed: bool, largest: int) -> None:
        """Remember how a neighbourhood of this kind went.

        Closed within the limit: there is room for more; not closed: less would have been more.
        """
        self.success = max(LEAST_SUCCESS, DECAY * self.success + (1 - DECAY) * succeeded)
        self.size = min(max(self.size * (GROWTH if was_closed else self.shrink), self.smallest), largest)


def choose_operators(rng: np.random.Generator, operators: Sequence[Operator], count: int) -> list[Operator]:
    """Return `count` operators, drawn with replacement in proportion to their success."""
    weights = np.array([operator.success for operator in operators])
    return [operators[i] for i in rng.choice(len(weights), count, p=weights / weights.sum())]


def search_side_by_side(
    search: Callable[[_Task], _Answer], tasks: Iterable[_Task], num_workers: int
) -> list[Future[_Answer]]:
    """Return the finished futures of `search` on every task, in threads."""
    with ThreadPoolExecutor(num_workers) as pool:
        futures = [pool.submit(search, task) for task in tasks]
        while wait(futures, timeout=0.05).not_done:
            pass  # in short steps, so that this thread keeps seeing signals
    return futures


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

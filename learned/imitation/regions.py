"""Connected regions of a graph, which grow along its edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


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

"""Random orders, from which searches for the makespan begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import placekit as pk


def random_order(problem: pk.Problem, rng: np.random.Generator) -> NDArray[np.int64]:
    """``[V]`` a topological order at random."""
    graph = problem.graph
    missing = np.bincount(graph.receivers, minlength=graph.num_ops)
    order: list[int] = []
    while len(order) < graph.num_ops:
        ready = np.setdiff1d(np.flatnonzero(missing == 0), order)
        op = int(rng.choice(ready))
        np.subtract.at(missing, graph.receivers[graph.senders == op], 1)
        order.append(op)
    return np.array(order)

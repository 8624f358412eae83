r"""Work that must fit into a window: bounds on the makespan from heads, times and tails together.

For any set J of ops let k devices run ops of J. On each of them the first op of J starts no earlier than its head and
the last one is followed by no less than its tail; these are different ops on different devices. With weights
:math:`y_d` as in :mod:`placekit.solvers.makespan.bounds.between`,

.. math:: T \ge \min_k \frac{\sum_{v \in J} \min_d y_d p_{vd} + y_{min} (r_{(1)} + \ldots + r_{(k)} + q_{(1)} + \ldots
          + q_{(k)})}{Y_k}

with the k smallest heads and the k smallest tails of J. J runs through the sets
:math:`\{v : r_v \ge a, q_v \ge b\}` for thresholds a and b: the bound of Carlier for equal machines, made for devices
that differ. O(thresholds**2 * ops).

References
----------
Carlier, "Scheduling jobs with release dates and tails on identical machines to minimize the makespan", EJOR 29, 1987;
Fernandez and Bussell, "Bounds on the number of processors and time for multiprocessor optimal schedules", IEEE
Transactions on Computers C-22, 1973.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.solvers.makespan.bounds.between import insert_smallest, weights_of
from placekit.solvers.makespan.bounds.windows import Windows

__all__ = ["window_work"]

MAX_THRESHOLDS = 200
"""Heads and tails that are tried as thresholds, evenly spread over all of them."""


def window_work(windows: Windows) -> float:
    """Return the bound of the module docstring in seconds, rounded down."""
    tasks = windows.tasks
    first = [int(np.flatnonzero(tasks.group == g)[0]) for g in range(len(tasks.group_size))]
    head, tail = windows.first_s, windows.last_s
    best = 0.0
    for y in weights_of(tasks):
        work = (tasks.time_s[:, first] * y).min(axis=1)
        capacity = np.cumsum(np.sort(np.repeat(y, tasks.group_size))[::-1])
        found = _window_work(head, tail, work, _thresholds(head), _thresholds(tail), capacity, float(y.min()))
        best = max(best, found)
    return best * (1 - 1e-12)


def _thresholds(values: NDArray[np.float64]) -> NDArray[np.float64]:
    distinct = np.unique(values)
    if len(distinct) <= MAX_THRESHOLDS:
        return distinct
    return distinct[np.linspace(0, len(distinct) - 1, MAX_THRESHOLDS).astype(np.int64)]


@njit(cache=True, nogil=True)
def _window_work(
    head: NDArray[np.float64],
    tail: NDArray[np.float64],
    work: NDArray[np.float64],
    heads: NDArray[np.float64],
    tails: NDArray[np.float64],
    capacity: NDArray[np.float64],
    lightest: float,
) -> float:
    most = len(capacity)
    early, late = np.empty(most), np.empty(most)
    best = 0.0
    for a in heads:
        for b in tails:
            early[:], late[:] = np.inf, np.inf
            total, count = 0.0, 0
            for v in range(len(head)):
                if head[v] >= a and tail[v] >= b:
                    total += work[v]
                    count += 1
                    insert_smallest(early, head[v])
                    insert_smallest(late, tail[v])
            idle, least = 0.0, np.inf
            for k in range(1, min(most, count) + 1):
                idle += early[k - 1] + late[k - 1]
                least = min(least, (total + lightest * idle) / capacity[k - 1])
            if count > 0:
                best = max(best, least)
    return best

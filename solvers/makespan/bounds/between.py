r"""What must happen between two ops: least time from the end of s to the start of t, for every pair s before t.

Let J be the ops that are both behind s and before t, and let a schedule be given in which k devices run ops of J. All
of J runs between the end of s and the start of t, an interval of length L.

- On a device other than that of s, let v be the first op of J there. Every predecessor of v in :math:`J \cup \{s\}`
  ran elsewhere, so v starts at least :math:`\rho_s(v) = \max_u (dist(s, u) + c_{uv})` after the end of s, with the
  longest path of least times, and the least delay between two devices. At least k - 1 of the k devices are other
  than that of s, and their first ops are different ops: together they idle at the beginning for at least the sum
  :math:`R_k` of the k - 1 smallest :math:`\rho_s(v)`.
- Read backwards, the same holds at the end for t: :math:`R'_k`.
- With any weights :math:`y_d > 0` of the devices, an op takes at least :math:`\min_d y_d p_{vd}` of weighted time, and
  the k devices have at most :math:`Y_k L`, the sum of the k largest weights, of which they idle
  :math:`y_{min} (R_k + R'_k)` or more.

.. math:: L(s, t) \ge \min_k \frac{\sum_{v \in J} \min_d y_d p_{vd} + y_{min} (R_k + R'_k)}{Y_k}

No schedule beats the longest path either. Equal devices get equal weights; for unequal ones several weights are tried,
and the best L of each pair counts. With k = 1 the idle times vanish: staying on one device costs all the work. This
is where it pays that transfers are slow, and what neither path nor work can see alone.

Notes
-----
O(ops**3) in a compiled loop and one matrix product for each vector of weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.patience import is_wanted
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["least_between", "reachable", "useful_pairs"]


def reachable(tasks: Tasks) -> NDArray[np.bool_]:
    """``[V, V]`` True where the second op is behind the first. O(edges * ops / 8)."""
    behind = np.zeros((tasks.num_ops, tasks.num_ops), dtype=np.bool_)
    for u, v in zip(tasks.senders[::-1].tolist(), tasks.receivers[::-1].tolist(), strict=True):
        behind[u, v] = True
        behind[u] |= behind[v]
    return behind


def _weights_of(tasks: Tasks) -> list[NDArray[np.float64]]:
    """Return vectors of weights ``[groups]`` that are worth trying, each with largest weight one.

    Equal weights, and weights that rise with the speed of the groups: were every op as much slower on one group as
    all of them are on average, these would be the multipliers of the linear program of the work.
    """
    first = [int(np.flatnonzero(tasks.group == g)[0]) for g in range(len(tasks.group_size))]
    time_s = tasks.time_s[:, first]
    usable = np.isfinite(time_s).all(axis=1)
    total = time_s[usable].sum(axis=0) if usable.any() else np.ones(len(first))
    if len(first) == 1 or not (total > 0).all():
        return [np.ones(len(first))]
    speed = total.min() / total
    powers = [speed**power for power in (0.0, 0.5, 0.75, 1.0, 1.25)]
    return [y for y in powers if (y > 0).all()]  # none has vanished: times may differ by three hundred digits


def least_between(tasks: Tasks) -> NDArray[np.float64]:
    """``[V, V]`` L in seconds; -infinity where the second op is not behind the first.

    In a solve that has to end it is less, and holds all the same.
    """
    behind = reachable(tasks)
    first = [int(np.flatnonzero(tasks.group == g)[0]) for g in range(len(tasks.group_size))]
    time_s = tasks.time_s[:, first]
    least_s = time_s.min(axis=1)
    num_ops = tasks.num_ops
    dist = _distances(num_ops, tasks.senders, tasks.receivers, least_s)
    wait, wait_back = _waits_between(tasks, dist)
    inside = behind.astype(np.float64)
    least = dist.copy()
    for y in _weights_of(tasks):
        if not is_wanted():
            break
        weighted = (time_s * y).min(axis=1)
        weighted[np.isinf(weighted)] = 0.0  # an op without a device, in a segment: others find it infeasible
        # rounding: sums of V positive terms, each off by V parts in 1e16 at most
        work = (inside * weighted) @ inside * (1 - 1e-12)
        per_device = np.sort(np.repeat(y, tasks.group_size))[::-1]
        _spread(behind, work, wait, wait_back, np.cumsum(per_device), float(y.min()), least)
    return least


def _waits_between(tasks: Tasks, between_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what an op v that is the first behind s on another device waits for, and the same read backwards.

    Parameters
    ----------
    tasks
        The tasks.
    between_s
        ``[V, V]`` least seconds from the end of one op to the start of another, negative where the second is not
        behind the first.

    Returns
    -------
    tuple[NDArray[np.float64], NDArray[np.float64]]
        rho of the module docstring, ``[V, V]`` by s, then by v; and ``[V, V]`` by v, then by t. O(ops * edges).
    """
    num_ops, senders, receivers = tasks.num_ops, tasks.senders, tasks.receivers
    least_s, delay_s = tasks.time_s.min(axis=1), _least_delay(tasks)
    wait = _waits(num_ops, senders, receivers, delay_s, least_s, between_s)
    flip = num_ops - 1
    turned = np.lexsort((flip - senders, flip - receivers))
    senders, receivers = (flip - receivers)[turned], (flip - senders)[turned]
    back = between_s[::-1, ::-1].T.copy()
    return wait, _waits(num_ops, senders, receivers, delay_s[turned], least_s[::-1].copy(), back)[::-1, ::-1].T.copy()


def _least_delay(tasks: Tasks) -> NDArray[np.float64]:
    """``[E]`` least delay of an edge whose ends are on two devices."""
    num_kinds = tasks.delay_s.shape[1]
    count = np.bincount(tasks.kind, minlength=num_kinds)  # representatives of a kind are one only if the kind has one
    possible = np.outer(count > 0, count > 0) & ~np.diag(count == 1)
    if not possible.any():
        return np.zeros(len(tasks.senders))
    least: NDArray[np.float64] = tasks.delay_s[:, possible].min(axis=1)
    return least


@njit(cache=True, nogil=True)
def _distances(
    num_ops: int, senders: NDArray[np.int64], receivers: NDArray[np.int64], least_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``[V, V]`` longest path from the end of the first op to the start of the second; -inf where there is none."""
    dist = np.full((num_ops, num_ops), -np.inf)
    for e in range(len(senders) - 1, -1, -1):
        u, v = senders[e], receivers[e]
        dist[u, v] = max(dist[u, v], 0.0)
        for w in range(v + 1, num_ops):
            if dist[v, w] >= 0.0:
                dist[u, w] = max(dist[u, w], least_s[v] + dist[v, w])
    return dist


@njit(cache=True, nogil=True)
def _waits(
    num_ops: int,
    senders: NDArray[np.int64],
    receivers: NDArray[np.int64],
    delay_s: NDArray[np.float64],
    least_s: NDArray[np.float64],
    dist: NDArray[np.float64],
) -> NDArray[np.float64]:
    """``[V, V]`` rho of the module docstring: by s, then by v."""
    wait = np.zeros((num_ops, num_ops))
    for e in range(len(senders)):
        u, v = senders[e], receivers[e]
        wait[u, v] = max(wait[u, v], delay_s[e])
        for s in range(u):
            if dist[s, u] >= 0.0:
                wait[s, v] = max(wait[s, v], dist[s, u] + least_s[u] + delay_s[e])
    return wait


@njit(cache=True, nogil=True)
def _spread(
    behind: NDArray[np.bool_],
    work: NDArray[np.float64],
    wait: NDArray[np.float64],
    wait_back: NDArray[np.float64],
    capacity: NDArray[np.float64],
    lightest: float,
    least: NDArray[np.float64],
) -> None:
    """Raise `least` to the bound of the module docstring for one vector of weights."""
    num_ops, most = len(behind), len(capacity)
    early, late = np.empty(most), np.empty(most)
    for s in range(num_ops):
        for t in range(s + 1, num_ops):
            if not behind[s, t] or work[s, t] / capacity[0] <= least[s, t]:
                continue  # even on one device alone no longer than what is known
            count = 0
            early[:], late[:] = np.inf, np.inf
            for v in range(s + 1, t):
                if behind[s, v] and behind[v, t]:
                    count += 1
                    _insert_smallest(early, wait[s, v])
                    _insert_smallest(late, wait_back[v, t])
            idle, best = 0.0, np.inf
            for k in range(1, min(most, count) + 1):
                if k > 1:
                    idle += early[k - 2] + late[k - 2]
                best = min(best, (work[s, t] + lightest * idle) / capacity[k - 1])
            if count > 0 and best > least[s, t]:
                least[s, t] = best


@njit(cache=True, nogil=True)
def _insert_smallest(smallest: NDArray[np.float64], value: float) -> None:
    """Keep the smallest values in rising order."""
    i = len(smallest) - 1
    if value >= smallest[i]:
        return
    while i > 0 and smallest[i - 1] > value:
        smallest[i] = smallest[i - 1]
        i -= 1
    smallest[i] = value


@njit(cache=True, nogil=True)
def useful_pairs(least: NDArray[np.float64], time_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """``[V, V]`` True for the pairs whose L is not the sum of two others and the time ``[V]`` of the op between."""
    num_ops = len(least)
    useful = least > 0.0
    for s in range(num_ops):
        for t in range(s + 1, num_ops):
            for u in range(s + 1, t):
                if useful[s, t] and least[s, u] + time_s[u] + least[u, t] >= least[s, t] * (1 - 1e-9):
                    useful[s, t] = False
                    break
    return useful

r"""Work shared out over unequal devices, window by window: a bound on the makespan, and what an op costs where.

Let a schedule of makespan at most T be given, :math:`x_{cg} \in \{0, 1\}` say that class c runs on group g of
:math:`n_g` equal devices, and J be the ops that start on g no earlier than a and are followed there by no less than b
(heads :math:`r_{vg} \ge a`, tails :math:`q_{vg} \ge b`). If k devices of the group run ops of J, these are idle before
their first op of J and behind their last one; those are different ops on different devices, so with the k smallest
heads and tails of J

.. math:: \sum_c x_{cg} \sum_{v \in c \cap J} p_{vg} \;\le\; \max_{k \le n_g} \bigl( k T - r_{(1)} - \ldots - r_{(k)}
          - q_{(1)} - \ldots - q_{(k)} \bigr).

The linear program asks for the least T with such shares :math:`x \ge 0`, :math:`\sum_g x_{cg} = 1`, with the k that is
right for a given limit on T. If it needs more than the limit, no schedule keeps it.

Its multipliers :math:`y_i \ge 0` of the rows are **prices**: scaled to :math:`\sum_i y_i k_i = 1`, an op costs
:math:`\pi_{vg} = p_{vg} \sum_{i \ni v} y_i` on g, and by weak duality, whatever they are,

.. math:: T \;\ge\; \sum_c \min_g \sum_{v \in c} \pi_{vg} + \sum_i y_i \bigl( r_{(1)} + \ldots + q_{(k_i)} \bigr),

which is how the bound is evaluated, so the solver need not be trusted. Every placement, summed up at these prices in
place of the minima, bounds its own makespan: what it pays more than the cheapest one is time lost on the wrong devices.
Annealing needs to know, since most such moves leave the makespan as it is.

References
----------
Lenstra, Shmoys, Tardos, "Approximation algorithms for scheduling unrelated parallel machines", Mathematical Programming
46, 1990, the program of the loads; heads and tails as in :mod:`placekit.solvers.makespan.energy`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.makespan.windows import Windows

__all__ = ["Shares", "share_out", "shared_work"]

MAX_THRESHOLDS = 16
"""Heads and tails that are tried as a and b, the denser the smaller: large sets are what binds."""
MAX_COEFFICIENTS = 400_000
"""Of the program, roughly; fewer thresholds are tried in larger problems."""
ROUNDING = 1e-11
"""Relative; taken off the bound, a sum of at most some millions of products."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The solution of the module docstring's program.

    Parameters
    ----------
    bound_s
        If it exceeds the limit, no schedule keeps the limit.
    share
        ``[C, G]`` x.
    price_s
        ``[V, G]`` prices in seconds of makespan; infinity where an op cannot be.
    """

    bound_s: float
    share: NDArray[np.float64]
    price_s: NDArray[np.float64]


def shared_work(windows: Windows, limit_s: float) -> float:
    """Return seconds; if they exceed the limit that made `windows`, no schedule keeps it. 0 if nothing is proven."""
    tasks = windows.tasks
    groups = [tasks.group == g for g in range(len(tasks.group_size))]
    time_s, head_s, tail_s = (
        np.stack([times[:, group].min(axis=1) for group in groups], axis=1)
        for times in (tasks.time_s, windows.head_s, windows.tail_s)
    )
    shares = share_out(time_s, head_s, tail_s, tasks.class_of_op, tasks.group_size, limit_s)
    return 0.0 if shares is None else shares.bound_s


def share_out(
    time_s: NDArray[np.float64],
    head_s: NDArray[np.float64],
    tail_s: NDArray[np.float64],
    class_of_op: NDArray[np.int64],
    size: NDArray[np.int64],
    limit_s: float,
) -> Shares | None:
    """Solve the program of the module docstring.

    Parameters
    ----------
    time_s
        ``[V, G]`` seconds of each op on a device of each group; infinity where it cannot be.
    head_s, tail_s
        ``[V, G]`` least seconds before and after.
    class_of_op
        ``[V]`` class of each op.
    size
        ``[G]`` devices of each group.
    limit_s
        The limit; finite.

    Returns
    -------
    Shares | None
        None if the solver found nothing, a class has no group, or the limit is not positive.

    Notes
    -----
    A linear program of classes * groups variables and at most ``groups * MAX_THRESHOLDS**2`` rows: some hundredths of
    a second for 250 ops.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, hstack, vstack

    num_ops, num_groups = time_s.shape
    num_classes = int(class_of_op.max()) + 1
    can = np.ones((num_classes, num_groups), dtype=bool)
    np.logical_and.at(can, class_of_op, np.isfinite(time_s))
    if not can.any(axis=1).all() or not limit_s > 0:
        return None
    fewer = int(np.sqrt(MAX_COEFFICIENTS / (num_ops * num_groups)))
    num_thresholds = min(max(fewer, 2), MAX_THRESHOLDS)
    members = coo_array((np.ones(num_ops), (np.arange(num_ops), class_of_op)), shape=(num_ops, num_classes)).tocsr()
    work, devices, idle = [], [], []
    for g in range(num_groups):
        on = np.flatnonzero(can[class_of_op, g])
        head, tail = head_s[on, g] / limit_s, tail_s[on, g] / limit_s
        is_in = _windows(head, tail, num_thresholds)
        k, wait = _idle(is_in, head, tail, int(size[g]))
        here = coo_array(is_in * (time_s[on, g] / limit_s)).tocsr() @ members[on]
        nothing = [coo_array((len(k), num_classes))] * (num_groups - 1)
        work.append(hstack([*nothing[:g], here, *nothing[g:]], format="csr"))
        devices.append(k)
        idle.append(wait)
    rows, device_count, waiting = vstack(work, format="csr"), np.concatenate(devices), np.concatenate(idle)
    num_shares = rows.shape[1]
    column = np.arange(num_shares)
    whole = coo_array((np.ones(num_shares), (column % num_classes, column)), shape=(num_classes, num_shares + 1))
    found = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        np.append(np.zeros(num_shares), 1.0),
        A_ub=hstack([rows, coo_array(-device_count[:, None])], format="csr"),
        b_ub=-waiting,
        A_eq=whole.tocsr(),
        b_eq=np.ones(num_classes),
        bounds=np.stack([np.zeros(num_shares + 1), np.append(can.T.ravel().astype(float), np.inf)], axis=1),
        method="highs",
    )
    if found.status != 0:
        return None
    multiplier = np.maximum(-found.ineqlin.marginals, 0.0)
    multiplier /= max(float(multiplier @ device_count), 1e-300)
    by_class = np.where(can, (rows.T @ multiplier).reshape(num_groups, num_classes).T, np.inf)
    bound = (by_class.min(axis=1).sum() + multiplier @ waiting) * (1 - ROUNDING)
    price = np.full((num_ops, num_groups), np.inf)
    at = 0
    for g, k in enumerate(devices):
        on = np.flatnonzero(can[class_of_op, g])
        is_in = _windows(head_s[on, g] / limit_s, tail_s[on, g] / limit_s, num_thresholds)
        price[on, g] = time_s[on, g] * (multiplier[at : at + len(k)] @ is_in)
        at += len(k)
    return Shares(float(bound * limit_s), found.x[:num_shares].reshape(num_groups, num_classes).T, price)


def _windows(head: NDArray[np.float64], tail: NDArray[np.float64], num_thresholds: int) -> NDArray[np.bool_]:
    """``[rows, ops]`` the sets J, none of them empty."""
    early, late = _thresholds(head, num_thresholds), _thresholds(tail, num_thresholds)
    is_in = (head >= early[:, None])[:, None, :] & (tail >= late[:, None])[None, :, :]
    is_in = is_in.reshape(len(early) * len(late), len(head))
    return is_in[is_in.any(axis=1)]


def _thresholds(values: NDArray[np.float64], at_most: int) -> NDArray[np.float64]:
    distinct = np.unique(values)
    if len(distinct) <= at_most:
        return distinct
    return distinct[np.unique(np.rint(np.linspace(0, 1, at_most) ** 2 * (len(distinct) - 1)).astype(np.int64))]


def _idle(
    is_in: NDArray[np.bool_], head: NDArray[np.float64], tail: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``[rows]`` the k with the largest right-hand side for a limit of one, and the heads and tails in it."""
    most = min(size, len(head))
    if most == 0:
        return np.zeros(0), np.zeros(0)
    wait = sum(np.cumsum(np.sort(np.where(is_in, times, np.inf), axis=1)[:, :most], axis=1) for times in (head, tail))
    best = np.argmax(np.arange(1, most + 1) - wait, axis=1)
    return best + 1.0, np.take_along_axis(wait, best[:, None], axis=1)[:, 0]

r"""Lower bound on the makespan from sharing out work over unequal devices, window by window.

Let a schedule of makespan at most T be given. :math:`x_{cg} \in \{0, 1\}` says that class c runs on group g of
:math:`n_g` equal devices. J are the ops with heads :math:`r_{vg} \ge a` and tails :math:`q_{vg} \ge b`.

1. If k devices of the group run ops of J, each of them is idle before its first op of J and after its last one.
2. These are different ops on different devices. So with the k smallest heads and tails of J

.. math:: \sum_c x_{cg} \sum_{v \in c \cap J} p_{vg} \;\le\; \max_{k \le n_g} \bigl( k T - r_{(1)} - \ldots - r_{(k)}
          - q_{(1)} - \ldots - q_{(k)} \bigr).

The linear program finds the least T with shares :math:`x \ge 0`, :math:`\sum_g x_{cg} = 1`, for the k that is right for
a given limit on T. If this T exceeds the limit, no schedule keeps the limit.

With any multipliers :math:`y_i \ge 0` of the rows, scaled to :math:`\sum_i y_i k_i = 1`, an op costs
:math:`\pi_{vg} = p_{vg} \sum_{i \ni v} y_i` on g, and by weak duality

.. math:: T \;\ge\; \sum_c \min_g \sum_{v \in c} \pi_{vg} + \sum_i y_i \bigl( r_{(1)} + \ldots + q_{(k_i)} \bigr),

The bound is evaluated by this formula, so the solver need not be trusted. The *surcharge* of a group for a class is
what the class pays there above its cheapest group. A schedule that uses the group takes at least the bound plus the
surcharge. If that exceeds the limit, the group is closed for the class.

References
----------
Lenstra, Shmoys, Tardos, "Approximation algorithms for scheduling unrelated parallel machines", Mathematical Programming
46, 1990, the program of the loads. Carlier, "Scheduling jobs with release dates and tails on identical machines to
minimize the makespan", EJOR 29, 1987, for heads and tails on several machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import block_diag, coo_array, csr_array, hstack

from placekit.arrays import all_by
from placekit.solve.certificates import SharedWork
from placekit.solvers.makespan.bounds.windows import Windows
from placekit.solvers.makespan.schedule.tasks import Tasks

MAX_OPS_SHARED = 20_000
"""Ops up to which the program is worth its time: a second, there."""
MAX_THRESHOLDS = 16
"""Heads and tails that are tried as a and b, the denser the smaller: large sets are what binds."""
MAX_COEFFICIENTS = 400_000
"""Of the program, roughly; fewer thresholds are tried in larger problems."""
LONGEST = 1e9
"""Times are cut off at so many limits, which weakens the bound where the solver would not bear the numbers."""
ROUNDING = 1e-11
"""Relative; taken off the bound, a sum of at most some millions of products."""


class Shares(NamedTuple):
    """Solution of the program in the module docstring."""

    bound_s: float  # lower bound; above the limit it proves that no schedule keeps the limit
    # ``[C, G]`` increase of `bound_s` if the class runs on the group; infinity where it cannot
    surcharge_s: NDArray[np.float64]
    # rows, multipliers: rows of each group, and their multipliers ``[R]``
    rows: Sequence[_Rows]
    multipliers: Sequence[NDArray[np.float64]]

    def certificate(self, tasks: Tasks) -> SharedWork:
        """Return the certificate of the bound, if the rows hold for every device alone; `tasks` list all devices."""
        return SharedWork(
            tuple(
                (tuple(np.flatnonzero(tasks.group == g).tolist()), tuple(tasks.op[part.ops[is_in]].tolist()), float(y))
                for g, (part, worth) in enumerate(zip(self.rows, self.multipliers, strict=True))
                for is_in, y in zip(part.is_in[worth > 0], worth[worth > 0], strict=True)
            )
        )


def shared_work(windows: Windows, limit_s: float) -> Shares | None:
    """Share out the work of `windows` under the limit `limit_s`; None if the solver finds nothing."""
    tasks = windows.tasks
    return share_out(*windows.by_group(), tasks.class_of_op, tasks.group_size, limit_s)


def shared_work_of_all(windows: Windows, low_s: float, unit_s: float) -> Shares | None:
    r"""Return a bound on the makespan from the windows of all schedules; None if nothing is known.

    A row of the module docstring also holds for each device of the group alone, with the smallest head and the smallest
    tail of J: the ops of J on the device lie between the two. This needs a makespan of at least head plus tail, which
    the known bound `low_s` guarantees. With any multipliers the bound is

    .. math:: \sum_i y_i n_i \bigl( \min_J r + \min_J q \bigr) + \sum_c \min_g \sum_{v \in c} \pi_{vg} ,

    for any limit. So `unit_s`, about a makespan, is only a unit of time.
    """
    tasks = windows.tasks
    return share_out(*windows.by_group(), tasks.class_of_op, tasks.group_size, unit_s, low_s=low_s)


def share_out(
    time_s: NDArray[np.float64],  # ``[V, G]`` seconds of each op on a device of each group; infinity where it cannot be
    # head_s, tail_s: ``[V, G]`` least seconds before and after
    head_s: NDArray[np.float64],
    tail_s: NDArray[np.float64],
    class_of_op: NDArray[np.int64],  # ``[V]`` class of each op
    size: NDArray[np.int64],  # ``[G]`` devices of each group
    limit_s: float,  # the limit; finite
    *,
    low_s: float | None = None,  # known bound; use the rows of :func:`shared_work_of_all`
) -> Shares | None:
    """Solve the program of the module docstring.

    Returns
    -------
    Shares | None
        None if the solver found nothing, a class has no group, or the limit is not positive.

    Notes
    -----
    A linear program of classes * groups variables and at most ``groups * MAX_THRESHOLDS**2`` rows: some hundredths of
    a second for 250 ops.
    """
    num_ops, num_groups = time_s.shape
    can = all_by(class_of_op, np.isfinite(time_s), int(class_of_op.max()) + 1)
    if not can.any(axis=1).all() or not limit_s > 0:
        return None
    fewer = int(np.sqrt(MAX_COEFFICIENTS / (num_ops * num_groups)))
    num_thresholds = min(max(fewer, 2), MAX_THRESHOLDS)
    low = None if low_s is None else low_s / limit_s
    rows = []
    for g in range(num_groups):
        on = np.flatnonzero(can[class_of_op, g])
        time, head, tail = (np.minimum(times[on, g], LONGEST * limit_s) / limit_s for times in (time_s, head_s, tail_s))
        rows.append(_Rows.of(on, time, head, tail, int(size[g]), num_thresholds, low))
    multipliers = _multipliers(rows, class_of_op, can)
    if multipliers is None:
        return None
    scale = max(sum(float(y @ part.devices) for y, part in zip(multipliers, rows, strict=True)), 1e-300)
    bound, by_class = 0.0, np.full(can.shape, np.inf)
    for g, (y, part) in enumerate(zip(multipliers, rows, strict=True)):
        price = np.full(num_ops, np.inf)
        price[part.ops] = part.time * (y / scale @ part.is_in)
        by_class[:, g] = np.bincount(class_of_op, weights=price)
        bound += float(y / scale @ part.idle)
    least = by_class.min(axis=1, keepdims=True)
    bound_s = (bound + float(least.sum())) * (1 - ROUNDING) * limit_s
    return Shares(bound_s, (by_class - least) * limit_s, rows, multipliers)


class _Rows(NamedTuple):
    """Rows of one group, in units of the limit."""

    ops: NDArray[np.int64]  # ``[N]`` ops that can run there
    time: NDArray[np.float64]  # ``[N]`` their times
    is_in: NDArray[np.bool_]  # ``[R, N]`` the sets J, none of them empty
    # devices, idle: ``[R]`` the k with the largest right-hand side, and the heads and tails in it. In rows that hold
    # for every device: the number of devices, each with the smallest head and tail.
    devices: NDArray[np.float64]
    idle: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        ops: NDArray[np.int64],
        time: NDArray[np.float64],
        head: NDArray[np.float64],
        tail: NDArray[np.float64],
        size: int,
        num_thresholds: int,
        low: float | None,
    ) -> _Rows:
        heads, tails = _thresholds(head, num_thresholds), _thresholds(tail, num_thresholds)
        is_in = (head >= heads[:, None])[:, None, :] & (tail >= tails[:, None])[None, :, :]
        is_in = is_in.reshape(len(heads) * len(tails), len(ops))
        is_in = is_in[is_in.any(axis=1)]
        most = min(size, len(ops))
        if most == 0:
            return cls(ops, time, is_in, *np.zeros((2, 0)))
        if low is not None:
            both = sum(np.where(is_in, times, np.inf).min(axis=1) for times in (head, tail))
            fits = both <= low  # a device that runs none of J may be idle for less than both
            return cls(ops, time, is_in[fits], np.full(int(fits.sum()), float(size)), size * both[fits])
        idle = np.zeros((len(is_in), most))
        for times in (head, tail):
            smallest = np.sort(np.where(is_in, times, np.inf), axis=1)[:, :most]
            idle += np.cumsum(smallest, axis=1)
        best = np.argmax(np.arange(1, most + 1) - idle, axis=1)
        chosen = np.take_along_axis(idle, best[:, None], axis=1)[:, 0]
        return cls(ops, time, is_in, best + 1.0, chosen)


def _multipliers(
    rows: Sequence[_Rows], class_of_op: NDArray[np.int64], can: NDArray[np.bool_]
) -> list[NDArray[np.float64]] | None:
    """Return the multipliers of the rows of each group; None if HiGHS finds nothing."""
    num_classes, num_groups = can.shape
    num_shares = num_classes * num_groups  # group by group
    work = []
    for part in rows:
        places = np.arange(len(part.ops))
        member = coo_array((part.time, (places, class_of_op[part.ops])), shape=(len(places), num_classes))
        work.append(csr_array(part.is_in.astype(np.float64)) @ member.tocsr())
    devices = np.concatenate([part.devices for part in rows])
    column = np.arange(num_shares)
    whole = coo_array((np.ones(num_shares), (column % num_classes, column)), shape=(num_classes, num_shares + 1))
    found = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        np.append(np.zeros(num_shares), 1.0),
        A_ub=hstack([block_diag(work), coo_array(-devices[:, None])], format="csr"),
        b_ub=-np.concatenate([part.idle for part in rows]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(num_classes),
        bounds=np.stack([np.zeros(num_shares + 1), np.append(can.T.ravel().astype(float), np.inf)], axis=1),
        method="highs",
    )
    if found.status != 0:
        return None
    multipliers: NDArray[np.float64] = np.maximum(-found.ineqlin.marginals, 0.0)
    return np.split(multipliers, np.cumsum([len(part.idle) for part in rows])[:-1])


def _thresholds(values: NDArray[np.float64], at_most: int) -> NDArray[np.float64]:
    distinct = np.unique(values)
    if len(distinct) <= at_most:
        return distinct
    return distinct[np.unique(np.rint(np.linspace(0, 1, at_most) ** 2 * (len(distinct) - 1)).astype(np.int64))]

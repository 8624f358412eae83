"""What an op costs on a device beside its time: the search's sense for work that is on the wrong device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.makespan.ranks import downward_rank
from placekit.solvers.makespan.bounds.shared_work import MAX_OPS_SHARED, share_out
from placekit.solvers.makespan.schedule.sequence import SequenceProblem

__all__ = ["Prices", "price"]

BINDING = 0.75
"""Prices count where their program reaches this share of the makespan; elsewhere paths bind, and not work."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices, and where each class would go by them.

    Parameters
    ----------
    price_s
        ``[V, D]`` seconds of makespan; see :mod:`placekit.solvers.makespan.bounds.shared_work`. 0 where an op cannot
        be.
    allowed
        ``[C, D]`` True on the devices of the group that has the largest share of the class.
    """

    price_s: NDArray[np.float64]
    allowed: NDArray[np.bool_]


def price(flat: SequenceProblem, limit_s: float) -> Prices | None:
    """Return the prices of `flat`, whose makespan is about `limit_s`.

    Returns
    -------
    Prices | None
        None where prices say nothing, or take too long: all devices are alike, work is not what binds, or there are
        more than `MAX_OPS_SHARED` ops.
    """
    instance = flat.instance
    time_s = np.where(flat.allowed[instance.class_of_op], flat.time_s, np.inf)
    columns, group = np.unique(time_s, axis=1, return_inverse=True)
    group = group.ravel()
    if columns.shape[1] == 1 or len(time_s) > MAX_OPS_SHARED or not limit_s > 0:
        return None
    fastest_s = columns.min(axis=1)
    head_s = downward_rank(instance, fastest_s, np.zeros(len(instance.producer)))
    head_s, tail_s = (np.repeat(times[:, None], columns.shape[1], axis=1) for times in (head_s, flat.tail_s))
    shares = share_out(columns, head_s, tail_s, instance.class_of_op, np.bincount(group), limit_s)
    if shares is None or shares.bound_s < BINDING * limit_s:
        return None
    price_s = np.where(np.isfinite(shares.price_s), shares.price_s, 0.0)
    # rows as everywhere: in another layout every kernel would be compiled once more
    per_device_s = np.ascontiguousarray(price_s[:, group])
    return Prices(per_device_s, flat.allowed & (shares.share.argmax(axis=1)[:, None] == group))

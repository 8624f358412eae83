r"""Beam search in the order of time: schedules where work on the right device matters more than transfers.

Schedules are made from their beginning (:mod:`placekit.solvers.makespan.schedule.partial_schedule`). Let device d weigh
:math:`w_d`, with
:math:`\sum_d w_d = 1`, and an op cost :math:`\pi_{vd}` (:mod:`placekit.solvers.makespan.bounds.shared_work`). A
schedule of makespan T pays

.. math::

   T \approx \sum_v \min_d \pi_{vd} + \sum_v \bigl( \pi_{v d(v)} - \min_d \pi_{vd} \bigr) + \sum_d w_d \, idle_d ,

the first sum whatever it does. The others grow as the schedule does, so partial schedules that are equally far, by the
weighted time :math:`W = \sum_d w_d \, free_d`, can be compared by what they have paid. W is cut into intervals; of each
interval the cheapest partial schedules are kept, one for every set of ops that are done, and extended.

What is still to come enters by the ops that are not done and have at least q seconds behind them: they end by T - q, so

.. math:: T \gtrsim W + q + \sum_{v:\, q_v \ge q} \min_d \pi_{vd} .

Notes
-----
With K kept of each of I intervals O(I K (V + E)) time and O(I (K + V)) memory. K shrinks with the size, so that a
search takes about half a second; noise on the costs makes another one of the next. Contention is left out.

References
----------
Ow and Morton, "Filtered beam search in scheduling", Int. J. of Production Research 26(1), 1988.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined, njit
from placekit.solvers.makespan.schedule.partial_schedule import (
    NOTHING,
    WAIT,
    Decisions,
    Known,
    Partial,
    bytes_needed,
    decide,
    find_ready,
    is_offered,
    next_free,
    rebuild,
    what_is_paid,
    when_ready,
)
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.prices import Prices
from placekit.solvers.makespan.search.starts import Start

__all__ = ["BEAM_S", "MAX_OPS_BEAM", "Beam"]

MAX_OPS_BEAM = 1_000
"""Ops up to which enough partial schedules can be kept."""
MOST_KEPT = 500
"""Partial schedules kept of an interval, at most."""
EFFORT = 16e6
"""Kept partial schedules times ops squared: half a second."""
INTERVALS_PER_OP = 2.0
"""Intervals for each op: a decision leads to a later one."""
ROOM = 4
"""Offers that an interval has room for, in units of those it keeps."""
NOISE = 6e-4
"""What is added to a cost at random, at most, in units of the limit."""
LOOSE = 0.3
"""An op without inputs is loose up to this share of the mean op time, each op on its fastest device."""
BEAM_S = 5.0
"""Seconds that must be left when a search begins: it takes a second or so, and does not look at the clock."""
LEAST_SLACK, MOST_SLACK = 0.01, 1.0
"""How far above the best makespan the limit is, relatively. It is twice as far after a search that found nothing."""


class Beam:
    """The search for one problem.

    Parameters
    ----------
    flat
        The problem, a whole one.
    prices
        What its ops cost where.

    Attributes
    ----------
    work_s
        What all ops cost at least. Where the makespan is much longer, prices do not tell schedules apart.
    """

    def __init__(self, flat: SequenceProblem, prices: Prices) -> None:
        instance, num_ops = flat.instance, flat.instance.num_ops
        can = flat.allowed[instance.class_of_op]
        is_read = np.zeros(num_ops, dtype=np.bool_)
        is_read[instance.producer[np.diff(instance.reader_offsets) > 0]] = True
        has_one_output, is_source = np.diff(instance.out_offsets) == 1, np.diff(instance.in_offsets) == 0
        fastest_s = np.where(can, flat.time_s, np.inf).min(axis=1)
        price_s = np.where(can, prices.price_s, np.inf)
        self.flat = flat
        self.known = Known(
            weight=_weights(price_s, np.where(can, flat.time_s, 0.0)),
            price_s=price_s,
            least_s=price_s.min(axis=1),
            is_loose=is_source & is_read & has_one_output & (fastest_s <= LOOSE * fastest_s.mean()),
            by_tail=np.argsort(-flat.tail_s, kind="stable"),
            key=np.random.default_rng(0).integers(1, 2**63, num_ops).astype(np.uint64),
        )
        self.work_s = float(self.known.least_s.sum())
        self.num_kept = int(min(MOST_KEPT, max(EFFORT / num_ops**2, 1.0)))
        self.slack = LEAST_SLACK

    def start(self, best_s: float, rng: np.random.Generator) -> Start | None:
        """Return a schedule of about `best_s` seconds, or None; the next looks for longer ones.

        Parameters
        ----------
        best_s
            The best makespan known.
        rng
            Source of the noise.
        """
        limit_s = best_s * (1 + self.slack)
        num_intervals = int(INTERVALS_PER_OP * self.flat.instance.num_ops) + 1
        seed = int(rng.integers(2**32))
        value_s, device, start_s = _search(
            self.flat, self.known, limit_s, num_intervals, self.num_kept, NOISE * limit_s, seed
        )
        is_found = bool(np.isfinite(value_s))
        longer = max(value_s / best_s - 1, LEAST_SLACK)
        self.slack = min(longer, self.slack) if is_found else min(2 * self.slack, MOST_SLACK)
        if not is_found:
            return None
        return device, np.lexsort((self.flat.instance.rank, start_s))


def _weights(price_s: NDArray[np.float64], time_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[D]`` price of a second of each device, as most ops pay it; 1 in all."""
    weight = np.zeros(price_s.shape[1])
    for d, (prices_s, times_s) in enumerate(zip(price_s.T, time_s.T, strict=True)):
        if (times_s > 0).any():
            weight[d] = np.median(prices_s[times_s > 0] / times_s[times_s > 0])
    return weight / max(float(weight.sum()), 1e-300)


class _Offers(NamedTuple):
    """Decisions ``[I, M]`` that were not taken yet, by the interval in which they end, and how many: `size` ``[I]``.

    `full_s` ``[I]`` is the cost from which an interval takes no more.
    """

    cost_s: NDArray[np.float64]
    key: NDArray[np.uint64]
    before: NDArray[np.int32]
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    size: NDArray[np.int64]
    full_s: NDArray[np.float64]


@njit(cache=True, nogil=True)
def _cheapest(cost_s: NDArray[np.float64], key: NDArray[np.uint64], most: int) -> NDArray[np.int64]:
    """Return the cheapest offer of each key, cheapest first, at most so many."""
    kept = np.empty(most, dtype=np.int64)
    seen = {np.uint64(0)}
    count = 0
    for i in np.argsort(cost_s, kind="mergesort"):
        if count == most:
            break
        if key[i] not in seen:
            seen.add(key[i])
            kept[count] = i
            count += 1
    return kept[:count]


@njit(cache=True, nogil=True)
def _offer(
    offers: _Offers, k: int, cost_s: float, key: np.uint64, before: int, op: int, device: int, most: int
) -> None:
    """Remember a decision that ends in interval `k`, unless `most` cheaper ones do."""
    if k >= len(offers.size) or cost_s >= offers.full_s[k]:
        return
    if offers.size[k] == offers.cost_s.shape[1]:
        kept = _cheapest(offers.cost_s[k], offers.key[k], most)
        num_kept = len(kept)
        offers.cost_s[k, :num_kept], offers.key[k, :num_kept] = offers.cost_s[k][kept], offers.key[k][kept]
        offers.before[k, :num_kept], offers.op[k, :num_kept] = offers.before[k][kept], offers.op[k][kept]
        offers.device[k, :num_kept] = offers.device[k][kept]
        offers.size[k] = num_kept
        if num_kept == most:
            offers.full_s[k] = offers.cost_s[k, most - 1]
            if cost_s >= offers.full_s[k]:
                return
    i = offers.size[k]
    offers.cost_s[k, i], offers.key[k, i] = cost_s, key
    offers.before[k, i], offers.op[k, i], offers.device[k, i] = before, op, device
    offers.size[k] += 1


@njit(cache=True, nogil=True)
def _search(
    flat: SequenceProblem,
    known: Known,
    limit_s: float,
    num_intervals: int,
    num_kept: int,
    noise_s: float,
    seed: int,
) -> tuple[float, NDArray[np.int64], NDArray[np.float64]]:
    """Return the least makespan found below the limit, or infinity, with device and start of every op ``[V]``."""
    np.random.seed(seed)  # noqa: NPY002  # numba's generator inside a kernel
    num_ops, num_devices = flat.time_s.shape
    width_s = limit_s / num_intervals
    num_intervals += num_ops  # a decision shorter than an interval leads to the next one all the same
    shape = num_intervals, ROOM * num_kept
    offers = _Offers(
        np.empty(shape),
        np.empty(shape, dtype=np.uint64),
        np.empty(shape, dtype=np.int32),
        np.empty(shape, dtype=np.int32),
        np.empty(shape, dtype=np.int32),
        np.zeros(num_intervals, dtype=np.int64),
        np.full(num_intervals, np.inf),
    )
    num_decisions = 3 * num_intervals * num_kept + 3 * num_ops
    decisions = Decisions(
        np.empty(num_decisions, dtype=np.int32),
        np.empty(num_decisions, dtype=np.int32),
        np.empty(num_decisions, dtype=np.int32),
        np.empty(num_decisions),
    )
    partial = Partial(
        np.zeros(num_ops, dtype=np.bool_),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros(num_ops),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros(len(flat.class_bytes), dtype=np.int64),
        np.zeros(num_devices),
        np.zeros(num_devices),
        np.zeros(num_devices),
    )
    best_s, at = np.inf, 0
    best_device, best_start_s = partial.device.copy(), partial.finish_s.copy()
    _offer(offers, 0, 0.0, np.uint64(1), -1, NOTHING, 0, num_kept)
    for k in range(num_intervals):
        size = offers.size[k]
        for i in _cheapest(offers.cost_s[k, :size], offers.key[k, :size], num_kept):
            if offers.cost_s[k, i] >= limit_s or at + num_ops > num_decisions:
                break
            rebuild(flat, partial, decisions, offers.before[k, i])
            at = decide(flat, partial, decisions, at, offers.before[k, i], offers.op[k, i], offers.device[k, i])
            if not partial.is_done.all():
                key = offers.key[k, i]
                _extend(flat, known, partial, key, offers, k + 1, at - 1, width_s, noise_s, limit_s, num_kept)
            elif partial.finish_s.max() < limit_s:
                best_s = limit_s = partial.finish_s.max()
                best_device[:] = partial.device
                for v in range(num_ops):
                    best_start_s[v] = partial.finish_s[v] - flat.time_s[v, partial.device[v]]
    return best_s, best_device, best_start_s


@inlined
def _extend(
    flat: SequenceProblem,
    known: Known,
    partial: Partial,
    key: np.uint64,
    offers: _Offers,
    least_k: int,
    last: int,
    width_s: float,
    noise_s: float,
    limit_s: float,
    num_kept: int,
) -> None:
    """Offer what the device that is free first may do behind decision `last`, in intervals from `least_k` on.

    `key` stands for the ops that are done.
    """
    cost_s, now_s = what_is_paid(flat, known, partial)
    if cost_s >= limit_s:
        return
    find_ready(flat, known, partial)
    d = int(np.argmin(partial.free_s))
    for v in range(len(partial.is_done)):
        if not is_offered(flat, known, partial, v, d):
            continue
        needed = bytes_needed(flat, partial, v, d, 0.0)
        free_s, more_s, then = partial.free_s[d], known.price_s[v, d] - known.least_s[v], key ^ known.key[v]
        for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
            u = flat.instance.producer[flat.instance.in_tensors[j]]
            if not partial.is_done[u] and needed >= 0.0:
                more = bytes_needed(flat, partial, u, d, needed)
                needed = needed + more if more >= 0.0 else -1.0
                free_s += flat.time_s[u, d]
                more_s += known.price_s[u, d] - known.least_s[u]
                then ^= known.key[u]
        if needed < 0.0:
            continue
        start_s = when_ready(flat, partial, v, d, free_s)
        end_s = start_s + flat.time_s[v, d]
        more_s += known.weight[d] * (start_s - free_s)
        if cost_s + more_s < limit_s and end_s + flat.tail_s[v] < limit_s:
            k = int((now_s + known.weight[d] * (end_s - partial.free_s[d])) / width_s)
            noisy_s = cost_s + more_s + noise_s * np.random.random()  # noqa: NPY002
            _offer(offers, max(k, least_k), noisy_s, then, last, v, d, num_kept)
    idle_s = known.weight[d] * (next_free(partial, d) - partial.free_s[d])
    if cost_s + idle_s < limit_s:
        k = int((now_s + idle_s) / width_s)
        _offer(offers, max(k, least_k), cost_s + idle_s, key, last, WAIT, d, num_kept)

"""The beginning of a schedule that a search of losses looks at: what it has done, and the least that it still loses.

The estimate is the least idling, and paying too much, for the next op of every device, each op as early as its inputs
allow; devices may all choose the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined

__all__ = ["Now", "Side", "do", "look", "still_lost", "undo", "worth"]


class Side(NamedTuple):
    """A graph read from one of its ends, times in units of a limit.

    Parameters
    ----------
    time, least
        ``[V, D]`` time of each op, infinity where it cannot be, and what it is credited for: never more than its
        seconds there are worth. The same on all devices, but for classes of several ops.
    early
        ``[V, D]`` earliest start; where an op is credited for a moment's worth, no earlier than that begins.
    in_offsets, in_ops, in_delay
        ``[V + 1]``, ``[E]`` and ``[E, D, D]``: the inputs of each op, and the delays by the devices of both ends.
    out_offsets, out_edges, out_ops
        ``[V + 1]``, ``[E]`` and ``[E]``: the outputs of each op, as numbers of the edges above and as ops.
    rate, since
        ``[D, R]`` what a moment is worth from a time on, the sum over R.
    group
        ``[D]`` group of equal devices.
    key
        ``[V]`` random numbers: their exclusive or stands for a set of ops. 0 for ops on which nothing depends.
    horizon
        The time up to which losses count.
    """

    time: NDArray[np.float64]
    least: NDArray[np.float64]
    early: NDArray[np.float64]
    in_offsets: NDArray[np.int64]
    in_ops: NDArray[np.int64]
    in_delay: NDArray[np.float64]
    out_offsets: NDArray[np.int64]
    out_edges: NDArray[np.int64]
    out_ops: NDArray[np.int64]
    rate: NDArray[np.float64]
    since: NDArray[np.float64]
    group: NDArray[np.int64]
    key: NDArray[np.uint64]
    horizon: float


class Now(NamedTuple):
    """The beginning that is looked at.

    Parameters
    ----------
    is_done
        ``[V]``.
    missing
        ``[V]`` inputs of each op that are not done.
    arrival
        ``[V, D]`` when those that are done are on each device, and when the op may start at all.
    is_near
        ``[V]`` where an op may start before the horizon.
    ready
        ``[V]`` those that are not done, and miss no input; how many there are is kept beside it.
    free, paid
        ``[D]`` when each device is free, and what it is worth until then.
    in_all
        ``[D]`` what it is worth until the horizon.
    start
        ``[V, D]`` scratch: the earliest start of each op.
    met, seen
        ``[V]`` scratch: inputs that can be done in time, zeros between two uses; and the ops that have one.
    least
        ``[D]`` scratch: what each device still loses.
    kept
        ``[E, D]`` scratch: arrivals before the last op.
    """

    is_done: NDArray[np.bool_]
    missing: NDArray[np.int64]
    arrival: NDArray[np.float64]
    is_near: NDArray[np.bool_]
    ready: NDArray[np.int64]
    free: NDArray[np.float64]
    paid: NDArray[np.float64]
    in_all: NDArray[np.float64]
    start: NDArray[np.float64]
    met: NDArray[np.int64]
    seen: NDArray[np.int64]
    least: NDArray[np.float64]
    kept: NDArray[np.float64]


@inlined
def look(side: Side) -> Now:
    """Return the beginning that has done nothing."""
    num_ops, num_devices = side.time.shape
    now = Now(
        np.zeros(num_ops, dtype=np.bool_),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros((num_ops, num_devices)),
        np.zeros(num_ops, dtype=np.bool_),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros(num_devices),
        np.zeros(num_devices),
        np.zeros(num_devices),
        np.zeros((num_ops, num_devices)),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros(num_ops, dtype=np.int64),
        np.zeros(num_devices),
        np.zeros((len(side.out_ops), num_devices)),
    )
    now.missing[:] = side.in_offsets[1:] - side.in_offsets[:-1]
    now.arrival[:] = side.early
    for u in range(num_ops):
        for d in range(num_devices):
            now.is_near[u] = now.is_near[u] or side.early[u, d] < side.horizon
    for d in range(num_devices):
        now.in_all[d] = worth(side, d, side.horizon)
    return now


@inlined
def worth(side: Side, d: int, until: float) -> float:
    """Return what device `d` is worth from the beginning until then."""
    total = 0.0
    for r in range(side.rate.shape[1]):
        total += side.rate[d, r] * max(until - side.since[d, r], 0.0)
    return total


@inlined
def do(side: Side, now: Now, v: int, d: int, end: float, num_ready: int) -> int:
    """Let op `v` end on device `d` then; return how many ops are ready, `v` among them if it was."""
    now.is_done[v] = True
    low = side.out_offsets[v]
    for k in range(low, side.out_offsets[v + 1]):
        u, i = side.out_ops[k], side.out_edges[k]
        now.missing[u] -= 1
        for e in range(now.arrival.shape[1]):
            now.kept[k - low, e] = now.arrival[u, e]
            now.arrival[u, e] = max(now.arrival[u, e], end + side.in_delay[i, d, e])
        if now.missing[u] == 0 and now.is_near[u] and not now.is_done[u]:
            now.ready[num_ready] = u
            num_ready += 1
    return num_ready


@inlined
def undo(side: Side, now: Now, v: int) -> None:
    """Take op `v`, the last that was done, back."""
    now.is_done[v] = False
    low = side.out_offsets[v]
    for k in range(side.out_offsets[v + 1] - 1, low - 1, -1):
        u = side.out_ops[k]
        now.missing[u] += 1
        for e in range(now.arrival.shape[1]):
            now.arrival[u, e] = now.kept[k - low, e]


@inlined
def still_lost(side: Side, now: Now, num_ready: int) -> float:
    """Return the least that is lost until every device has begun its next op, or until the horizon."""
    num_devices = len(now.free)
    for d in range(num_devices):
        now.least[d] = max(now.in_all[d] - now.paid[d], 0.0)
    for r in range(num_ready):
        u = now.ready[r]
        if not now.is_done[u]:
            for d in range(num_devices):
                now.start[u, d] = now.arrival[u, d]
            _come_next(side, now, u, side.horizon)
    # later than this, idling alone costs more
    reach = 0.0
    for d in range(num_devices):
        rate = 0.0
        for r in range(side.rate.shape[1]):
            if side.since[d, r] <= now.free[d]:
                rate += side.rate[d, r]
        reach = max(reach, now.free[d] + now.least[d] / rate if rate > 0 else side.horizon)
    reach = min(reach, side.horizon)
    # other ops come when all their inputs do
    num_known, num_met, r = num_ready, 0, 0
    while r < num_known:
        u = now.ready[r]
        if r >= num_ready:
            _come_next(side, now, u, reach)
        first = np.inf
        for d in range(num_devices):
            first = min(first, now.start[u, d])
        r += 1
        if first >= reach or now.is_done[u]:
            continue
        for k in range(side.out_offsets[u], side.out_offsets[u + 1]):
            w, i = side.out_ops[k], side.out_edges[k]
            if now.met[w] == 0:
                now.seen[num_met] = w
                num_met += 1
                for d in range(num_devices):
                    now.start[w, d] = now.arrival[w, d]
            now.met[w] += 1
            for d in range(num_devices):
                known = np.inf
                for e in range(num_devices):
                    known = min(known, now.start[u, e] + side.time[u, e] + side.in_delay[i, e, d])
                now.start[w, d] = max(now.start[w, d], known)
            if now.met[w] == now.missing[w]:
                now.ready[num_known] = w
                num_known += 1
    for r in range(num_met):
        now.met[now.seen[r]] = 0
    return float(now.least.sum())


@inlined
def _come_next(side: Side, now: Now, u: int, reach: float) -> None:
    """Let `u`, whose inputs allow `start`, be the next op of each device, if it can begin before `reach`."""
    for d in range(len(now.free)):
        at = now.start[u, d] = max(now.start[u, d], now.free[d])
        if at < reach and side.time[u, d] < np.inf:
            lost = worth(side, d, at + side.time[u, d]) - now.paid[d] - side.least[u, d]
            now.least[d] = min(now.least[d], lost)

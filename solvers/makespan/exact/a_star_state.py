"""A small problem, the beginning of a schedule that a search looks at, and the least that it still takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined
from placekit.solvers.makespan.bounds.windows import Windows
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["Chronology", "Now", "chronology_of", "is_ready", "least_makespan_behind"]


class Chronology(NamedTuple):
    """A problem as the search sees it; times in units of a limit on the makespan, ops in topological order.

    Parameters
    ----------
    time, head, tail
        ``[V, D]`` time of each op, infinity where it cannot be; least time before it, and behind it.
    in_offsets, in_ops, in_delay
        CSR lists of the inputs: ``[V + 1]``, ``[E]``, and ``[E, D, D]`` by the devices of both ends.
    group
        ``[D]`` group of each device; the devices of a group are equal.
    least_time, least_tail
        ``[V]`` the least over the devices.
    by_tail
        ``[V]`` the ops, the longest tail first.
    """

    time: NDArray[np.float64]
    head: NDArray[np.float64]
    tail: NDArray[np.float64]
    in_offsets: NDArray[np.int64]
    in_ops: NDArray[np.int64]
    in_delay: NDArray[np.float64]
    group: NDArray[np.int64]
    least_time: NDArray[np.float64]
    least_tail: NDArray[np.float64]
    by_tail: NDArray[np.int64]


def chronology_of(tasks: Tasks, windows: Windows, limit_s: float) -> Chronology:
    """Return what the search needs, of schedules up to the limit that the windows are of.

    `tasks` has all devices; of a group of equal ones the windows have three, and on those alone schedules are longer.
    """
    time, head, tail = (times[:, tasks.group] / limit_s for times in windows.by_group())
    can = np.isfinite(time)
    by_receiver = np.argsort(tasks.receivers, kind="stable")
    least_tail = np.where(can, tail, np.inf).min(axis=1)
    return Chronology(
        time=np.ascontiguousarray(time),
        head=np.where(can, head, np.inf),
        tail=np.where(can, tail, np.inf),
        in_offsets=np.searchsorted(tasks.receivers[by_receiver], np.arange(tasks.num_ops + 1)),
        in_ops=tasks.senders[by_receiver],
        in_delay=np.ascontiguousarray(tasks.pair_delay_s()[by_receiver] / limit_s),
        group=tasks.group,
        least_time=time.min(axis=1),
        least_tail=least_tail,
        by_tail=np.argsort(-least_tail, kind="stable"),
    )


class Now(NamedTuple):
    """The state that is looked at, and room for what comes after it.

    Parameters
    ----------
    is_done, device, end
        ``[V]`` the ops that are done, where, and until when.
    arrival
        ``[V, D]`` when those inputs of an op that is left that are done are on each device; its head at least.
    start
        ``[V, D]`` when an op that is left can start on each device, at the earliest.
    has_run
        ``[D]`` the devices that have run something.
    free
        ``[D]`` when each device is free after the next op.
    begin
        ``[D]`` when something that is left can start on each device, at the earliest.
    """

    is_done: NDArray[np.bool_]
    device: NDArray[np.int64]
    end: NDArray[np.float64]
    arrival: NDArray[np.float64]
    start: NDArray[np.float64]
    has_run: NDArray[np.bool_]
    free: NDArray[np.float64]
    begin: NDArray[np.float64]


@inlined
def is_ready(chronology: Chronology, now: Now, v: int) -> bool:
    """Return True if all that `v` reads is done."""
    num_missing = 0
    for i in range(chronology.in_offsets[v], chronology.in_offsets[v + 1]):
        num_missing += not now.is_done[chronology.in_ops[i]]
    return num_missing == 0


@inlined
def least_makespan_behind(
    chronology: Chronology, now: Now, last: int, its_device: int, its_end: float, least: float, most: float
) -> float:
    """Return a bound on the makespan after `last` was started where `now.free` says; no more than is needed for `most`.

    `now` knows the state before: `last` is not yet done there.
    """
    num_ops, num_devices = chronology.time.shape
    now.begin[:] = np.inf
    for w in range(num_ops):
        if now.is_done[w] or w == last:
            continue
        for e in range(num_devices):
            now.start[w, e] = max(now.arrival[w, e], now.free[e])
        for i in range(chronology.in_offsets[w], chronology.in_offsets[w + 1]):
            u = chronology.in_ops[i]
            if now.is_done[u]:
                continue
            for e in range(num_devices):
                there = np.inf
                if u == last:
                    there = its_end + chronology.in_delay[i, its_device, e]
                else:
                    for g in range(num_devices):
                        end = now.start[u, g] + chronology.time[u, g]
                        there = min(there, end + chronology.in_delay[i, g, e])
                now.start[w, e] = max(now.start[w, e], there)
        best = np.inf
        for e in range(num_devices):
            now.begin[e] = min(now.begin[e], now.start[w, e])
            best = min(best, now.start[w, e] + chronology.time[w, e] + chronology.tail[w, e])
        least = max(least, best)
        if least >= most:
            return least
    for k in range(1, num_devices):  # sorted by insertion: Numba's own takes seconds to compile
        begin, j = now.begin[k], k
        while j > 0 and now.begin[j - 1] > begin:
            now.begin[j] = now.begin[j - 1]
            j -= 1
        now.begin[j] = begin
    work = 0.0
    for w in chronology.by_tail:
        if now.is_done[w] or w == last:
            continue
        work += chronology.least_time[w]
        total, end = work, np.inf
        for k in range(num_devices):
            total += now.begin[k]
            end = min(end, total / (k + 1))
        least = max(least, end + chronology.least_tail[w])
    return least

r"""The least makespan of a small problem, by the A* algorithm over the beginnings of its schedules.

A state is a set of ops that are done, with the time from which on every device is free and the end of every op. The
next op starts no earlier than any before it: on device d at :math:`\max(free_d, \max_u arrival(u, d))`, after which no
device is free earlier than that. Sorted by start, the ops of any schedule lead through such states, and each starts as
early as the ones before it allow. So the least bound of a state that has been seen but not extended bounds the
makespan at any moment, and once that state has done all ops, it is optimal.

What a state still takes, at least:

- *paths*: the ops that are left, in topological order, as early as devices and inputs allow, and their tails;
- *work*: the ops left with a tail of at least b take their least times on devices that begin when they are free and
  something can start there. With the k devices that begin first the last of these ops ends at
  :math:`\min_k (work + begin_1 + \ldots + begin_k) / k` at the earliest, and b follows.

Of two states of the same ops one is needless if, in the other, no device is free later and no op that is left can start
later on any device. Equal devices that have run nothing are the same.

Classes of several ops, memory and the bus are left out, so with them the result is a bound, and its schedule may break
a limit. How many states there are grows exponentially with the gap between the bound of the first one and the optimum.

References
----------
Hart, Nilsson, Raphael, "A formal basis for the heuristic determination of minimum cost paths", IEEE Trans. Systems
Science and Cybernetics 4(2), 1968. Shahul, Sinnen, "Scheduling task graphs optimally with A*", Journal of
Supercomputing 51, 2010, for schedules with transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined, njit
from placekit.makespan.heaps import pop, push
from placekit.solvers.makespan.bounds.windows import Windows
from placekit.solvers.makespan.exact.a_star_state import Chronology, Now, chronology_of, is_ready, least_makespan_behind
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["MAX_OPS_A_STAR", "ROUNDING", "least_makespan", "search_all_schedules"]

MAX_OPS_A_STAR = 64
"""Ops up to which a set of them fits into a word."""
MOST_COMPARED = 1_000
"""States of the same ops that one whose turn has come is compared with, the newest ones."""
ROUNDING = 1e-9
"""Of the limit: more than the search may be wrong by where it takes times for the same."""
FIRST_STATES, MOST_STATES = 16_384, 1_048_576
"""States of a search: four times as many in each, which takes hundredths of a second at first, and seconds at last."""
EXACT = 1e-12
"""Times that differ by less are the same, in units of the limit."""
TIMES_PER_STATE = 24
"""Times that may be remembered, for each state."""


def search_all_schedules(
    tasks: Tasks,
    windows: Windows,
    limit_s: float,
    time_limit_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[float, NDArray[np.int64] | None, NDArray[np.float64]]]:
    """Yield bounds on the makespan in seconds, each from a longer search than the one before.

    Parameters
    ----------
    tasks, windows
        The tasks with all devices, and their windows in schedules up to the limit; of at most `MAX_OPS_A_STAR` ops.
    limit_s
        A makespan that is known. No bound is larger.
    time_limit_s
        Seconds for all searches. One begins only if it can be expected to end by then.
    should_stop
        Asked before every search.

    Yields
    ------
    tuple
        The bound; the device of every op in a schedule shorter than the limit with that makespan, or None; and the
        ends of the ops in it.
    """
    chronology = chronology_of(tasks, windows, limit_s)
    since_s, num_states = perf_counter(), FIRST_STATES
    while num_states <= MOST_STATES and not should_stop():
        start_s = perf_counter()
        bound, is_exact, device, end = least_makespan(chronology, 1.0, num_states)
        yield (bound - ROUNDING) * limit_s, None if device[0] < 0 else device, end * limit_s
        num_states *= 4
        now_s = perf_counter()
        if is_exact or now_s - since_s + 4 * (now_s - start_s) > time_limit_s:
            return


class _Search(NamedTuple):
    """The states: ``[N]`` the one before, the last op, its device and end, what is done; ``[N, D]`` free devices."""

    before: NDArray[np.int64]
    op: NDArray[np.int64]
    device: NDArray[np.int64]
    end: NDArray[np.float64]
    done: NDArray[np.uint64]
    free: NDArray[np.float64]


class _Known(NamedTuple):
    """The states that were extended: ``[N]`` what is done, where their `times` begin, the one before of that place."""

    done: NDArray[np.uint64]
    offset: NDArray[np.int64]
    older: NDArray[np.int64]
    times: NDArray[np.float64]
    newest: NDArray[np.int64]


@njit(cache=True, nogil=True)
def least_makespan(
    chronology: Chronology, most: float, num_states: int
) -> tuple[float, bool, NDArray[np.int64], NDArray[np.float64]]:
    """Return a bound on the makespan, and True if it is the least makespan itself or `most`, with a schedule.

    Parameters
    ----------
    chronology
        The problem.
    most
        Makespan from which on nothing need be known.
    num_states
        How many states may be remembered: some 300 bytes each.

    Returns
    -------
    tuple
        The bound; whether it is exact; ``[V]`` the device of each op, and its end: of the best schedule, if its
        makespan is the bound, otherwise devices of -1.

    Notes
    -----
    O(V + E D) for each state whose turn comes, and O((V + E D) D) for each that is seen.
    """
    num_ops, num_devices = chronology.time.shape
    search, known = _room(num_states, num_devices)
    now = Now(
        np.zeros(num_ops, np.bool_),
        np.full(num_ops, -1),
        np.zeros(num_ops),
        np.zeros((num_ops, num_devices)),
        np.zeros((num_ops, num_devices)),
        np.zeros(num_devices, np.bool_),
        np.zeros(num_devices),
        np.zeros(num_devices),
    )
    cost, state = np.zeros(num_states), np.zeros(num_states, np.int64)
    num_seen, num_queued, num_known, num_times = 1, 1, 0, 0
    room = num_ops * num_devices
    one, everything = np.uint64(1), np.uint64(0)
    for v in range(num_ops):
        everything |= one << np.uint64(v)
    while num_queued > 0:
        bound, x = cost[0], state[0]
        if bound >= most:
            break
        _rebuild(chronology, search, now, x)
        if search.done[x] == everything:
            return bound, True, now.device, now.end
        if num_seen + room > num_states or num_times + room + num_devices > len(known.times):
            now.device[:] = -1
            return bound, False, now.device, now.end
        num_queued -= 1
        pop(cost, state, 0, num_queued)
        times_end = _describe(chronology, search, known, now, x, num_times)
        if not _is_new(known, search.done[x], num_known, num_times, times_end):
            continue
        num_known, num_times = num_known + 1, times_end
        for v in range(num_ops):
            if now.is_done[v] or not is_ready(chronology, now, v):
                continue
            for d in range(num_devices):
                if chronology.time[v, d] == np.inf or _is_like_an_earlier_one(
                    chronology.group, now.has_run, search.free[x], d
                ):
                    continue
                start = max(search.free[x, d], now.arrival[v, d])
                end = start + chronology.time[v, d]
                for e in range(num_devices):
                    now.free[e] = end if e == d else max(search.free[x, e], start)
                least = max(bound, end + chronology.tail[v, d])
                if least < most:
                    least = least_makespan_behind(chronology, now, v, d, end, least, most)
                if least >= most:
                    continue
                search.before[num_seen], search.op[num_seen], search.device[num_seen] = x, v, d
                search.end[num_seen], search.done[num_seen] = end, search.done[x] | (one << np.uint64(v))
                search.free[num_seen] = now.free
                push(cost, state, 0, num_queued, least, num_seen)
                num_seen, num_queued = num_seen + 1, num_queued + 1
    now.device[:] = -1
    return most, True, now.device, now.end


@inlined
def _room(num_states: int, num_devices: int) -> tuple[_Search, _Known]:
    """Return a search that has not begun; memory is taken as it is written to."""
    num_places = 1
    while num_places < num_states // 4:
        num_places *= 2
    search = _Search(
        np.empty(num_states, np.int64),
        np.empty(num_states, np.int64),
        np.empty(num_states, np.int64),
        np.empty(num_states),
        np.empty(num_states, np.uint64),
        np.empty((num_states, num_devices)),
    )
    search.before[0], search.done[0], search.free[0] = -1, 0, 0.0
    known = _Known(
        np.empty(num_states, np.uint64),
        np.empty(num_states, np.int64),
        np.empty(num_states, np.int64),
        np.empty(num_states * TIMES_PER_STATE),
        np.full(num_places, -1),
    )
    return search, known


@inlined
def _is_like_an_earlier_one(
    group: NDArray[np.int64], has_run: NDArray[np.bool_], free: NDArray[np.float64], d: int
) -> bool:
    """Return True if neither `d` nor an equal device of a lower number has run anything."""
    if not has_run[d]:
        for e in range(d):
            if group[e] == group[d] and not has_run[e] and free[e] == free[d]:
                return True
    return False


@inlined
def _rebuild(chronology: Chronology, search: _Search, now: Now, x: int) -> None:
    """Make `x` the state that is looked at."""
    num_ops, num_devices = chronology.time.shape
    now.is_done[:], now.has_run[:] = False, False
    y = x
    while y > 0:
        v = search.op[y]
        now.is_done[v], now.device[v], now.end[v] = True, search.device[y], search.end[y]
        now.has_run[search.device[y]] = True
        y = search.before[y]
    for v in range(num_ops):
        if now.is_done[v]:
            continue
        for d in range(num_devices):
            now.arrival[v, d] = chronology.head[v, d]
        for i in range(chronology.in_offsets[v], chronology.in_offsets[v + 1]):
            u = chronology.in_ops[i]
            if now.is_done[u]:
                for d in range(num_devices):
                    there = now.end[u] + chronology.in_delay[i, now.device[u], d]
                    now.arrival[v, d] = max(now.arrival[v, d], there)


@inlined
def _describe(chronology: Chronology, search: _Search, known: _Known, now: Now, x: int, at: int) -> int:
    """Write down, from `at` on, when the devices of `x` are free, and when what is left can start; return the end."""
    num_ops, num_devices = chronology.time.shape
    for d in range(num_devices):
        known.times[at] = search.free[x, d]
        at += 1
    for v in range(num_ops):
        if now.is_done[v]:
            continue
        has_input = False
        for i in range(chronology.in_offsets[v], chronology.in_offsets[v + 1]):
            if now.is_done[chronology.in_ops[i]]:
                has_input = True
                break
        if has_input:
            for d in range(num_devices):
                known.times[at] = max(now.arrival[v, d], search.free[x, d])
                at += 1
    return at


@inlined
def _is_new(known: _Known, done: np.uint64, c: int, at: int, end: int) -> bool:
    """Return False if a state that was extended makes the one described needless; else put it among them, as `c`."""
    mixed = done * np.uint64(0x9E3779B97F4A7C15)
    place = int((mixed >> np.uint64(24)) & np.uint64(len(known.newest) - 1))
    compared, i = 0, known.newest[place]
    while i >= 0 and compared < MOST_COMPARED:
        if known.done[i] == done:
            compared += 1
            is_ahead, offset = True, known.offset[i]
            for k in range(end - at):
                if known.times[offset + k] > known.times[at + k] + EXACT:
                    is_ahead = False
                    break
            if is_ahead:
                return False
        i = known.older[i]
    known.done[c], known.offset[c] = done, at
    known.older[c], known.newest[place] = known.newest[place], c
    return True

"""The least that is lost at the beginning of any schedule, by the A* algorithm: the search of both ends' bound.

States are beginnings of schedules (:mod:`placekit.solvers.makespan.bounds.both_ends` says what they lose): every device
is free
from some time on, and some ops are done. The next op is one that starts no earlier than any before it, so a device that
is free earlier idles until then.

A state is compared with others of the same ops when its turn comes, not when it is seen: few are ever extended, and
only these need remember when which op can start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined, njit
from placekit.makespan.heaps import pop, push
from placekit.solvers.makespan.bounds.both_ends_state import Now, Side, do, look, still_lost, undo, worth

__all__ = ["EXACT", "is_like_an_earlier_one", "least_loss"]

MOST_COMPARED = 300
"""States of the same ops that one whose turn has come is compared with, the newest ones."""
EXACT = 1e-12
"""Times that differ by less are the same, in units of the limit."""
IS_DONE = -1.0
"""In place of the moment when an op could start."""
NOTHING = -1
"""In place of an op: no other one starts before the horizon."""
SEEN, QUEUED, EXTENDED, USED = range(4)
"""Entries of `_Search.lengths`."""
BEFORE, OP, DEVICE, END = range(4)
"""Entries of a row of `_Search.last`."""


class _Search(NamedTuple):
    """What a search remembers, in arrays that are filled from their beginning; `lengths` say how far.

    Parameters
    ----------
    last
        ``[N, 4]`` of the states that were seen the one before, and what was done then: the op, its device, and its end.
        In one row, as the search goes from one to the one before all the time. The first state has done nothing.
    free
        ``[N, D]`` when every device is free.
    loss, owed
        ``[N]`` what is lost until then; and with what the ops on which nothing depends pay at most, had none of them
        been done yet: it is what states are compared by.
    key
        ``[N]`` the ops that are done.
    cost, state
        ``[N]`` heap of the states that can be extended, by the least that is lost behind them.
    known, known_key, offset, older
        ``[N]`` the states that were extended. States of the same ops are compared by when those that come next can
        start on each device: `times` from `offset` on. `older` is the one before of the same place of `newest`.
    times
        ``[M]``.
    newest
        ``[2**k]`` the last state that was extended, by the last k bits of its key.
    lengths
        ``[4]`` how many there are: seen, in the heap, extended (and one, as 0 is none in `newest`), and times.
    """

    last: NDArray[np.float64]
    free: NDArray[np.float64]
    loss: NDArray[np.float64]
    owed: NDArray[np.float64]
    key: NDArray[np.uint64]
    cost: NDArray[np.float64]
    state: NDArray[np.int64]
    known: NDArray[np.int64]
    known_key: NDArray[np.uint64]
    offset: NDArray[np.int64]
    older: NDArray[np.int64]
    times: NDArray[np.float64]
    newest: NDArray[np.int64]
    lengths: NDArray[np.int64]


@njit(cache=True, nogil=True)
def least_loss(side: Side, most: float, num_states: int, num_times: int) -> tuple[float, bool]:
    """Return a bound on what is lost until the horizon, and True if it is the least loss itself, or `most`.

    Parameters
    ----------
    side
        The graph, read from the end in question.
    most
        Losses from which on nothing need be known.
    num_states, num_times
        How much may be remembered: some 130 bytes for each state, and 8 for each time.

    Notes
    -----
    O(V + E D) for each state whose turn comes, O((ready ops + their edges) D**2) for each that is seen.
    """
    num_devices = side.time.shape[1]
    search, now = _room(num_states, num_times, num_devices), look(side)
    near, has_run, lengths = np.flatnonzero(now.is_near), np.zeros(num_devices, np.bool_), search.lengths
    paid = np.zeros(num_devices)
    while lengths[QUEUED] > 0:
        bound, x = search.cost[0], search.state[0]
        if bound >= most:
            break
        if x > 0 and search.last[x, OP] == NOTHING:
            return bound, True
        num_ready = _rebuild(side, search, now, near, has_run, x)
        if (
            lengths[SEEN] + 1 + num_ready * num_devices > num_states
            or lengths[USED] + (1 + len(near)) * num_devices > num_times
        ):
            return bound, False
        lengths[QUEUED] -= 1
        pop(search.cost, search.state, 0, lengths[QUEUED])
        if not _is_new(side, search, now, near, x):
            continue
        rest = 0.0
        for d in range(num_devices):
            paid[d] = worth(side, d, search.free[x, d])
            rest += max(now.in_all[d] - paid[d], 0.0)
        if search.loss[x] + rest < most:
            _remember(side, search, now, x, NOTHING, 0, search.loss[x] + rest, max(bound, search.loss[x] + rest))
        for r in range(num_ready):
            v = now.ready[r]
            for d in range(num_devices):
                if side.time[v, d] == np.inf or is_like_an_earlier_one(side.group, has_run, search.free[x], d):
                    continue
                start = max(search.free[x, d], now.arrival[v, d])
                if start >= side.horizon:
                    continue
                loss = search.loss[x] - side.least[v, d]
                for e in range(num_devices):
                    now.free[e] = start + side.time[v, d] if e == d else max(search.free[x, e], start)
                    now.paid[e] = worth(side, e, now.free[e])
                    loss += now.paid[e] - paid[e]
                if loss >= most:
                    continue
                then_ready = do(side, now, v, d, now.free[d], num_ready)
                cost = max(bound, loss + still_lost(side, now, then_ready))
                if cost < most:
                    _remember(side, search, now, x, v, d, loss, cost)
                undo(side, now, v)
    return most, True


@inlined
def _room(num_states: int, num_times: int, num_devices: int) -> _Search:
    """Return a search that has not begun; memory is taken as it is written to."""
    num_places = 1
    while num_places < num_states // 4:
        num_places *= 2
    search = _Search(
        np.empty((num_states, 4)),
        np.empty((num_states, num_devices)),
        np.empty(num_states),
        np.empty(num_states),
        np.empty(num_states, dtype=np.uint64),
        np.empty(num_states),
        np.empty(num_states, dtype=np.int64),
        np.empty(num_states, dtype=np.int64),
        np.empty(num_states, dtype=np.uint64),
        np.empty(num_states, dtype=np.int64),
        np.empty(num_states, dtype=np.int64),
        np.empty(num_times),
        np.zeros(num_places, dtype=np.int64),
        np.ones(4, dtype=np.int64),  # one has been seen, and can be extended; of those extended, 0 is none
    )
    search.last[0], search.free[0], search.loss[0], search.owed[0] = NOTHING, 0.0, 0.0, 0.0
    search.key[0], search.cost[0], search.state[0] = 0, 0.0, 0
    return search


@inlined
def is_like_an_earlier_one(
    group: NDArray[np.int64], has_run: NDArray[np.bool_], free: NDArray[np.float64], d: int
) -> bool:
    """Return True if neither `d` nor an equal device of a lower number has run anything."""
    if not has_run[d]:
        for e in range(d):
            if group[e] == group[d] and not has_run[e] and free[e] == free[d]:
                return True
    return False


@inlined
def _rebuild(side: Side, search: _Search, now: Now, near: NDArray[np.int64], has_run: NDArray[np.bool_], x: int) -> int:
    """Make `x` the beginning that is looked at; return how many ops are ready."""
    now.is_done[:], has_run[:] = False, False
    now.missing[:] = side.in_offsets[1:] - side.in_offsets[:-1]
    now.arrival[:] = side.early
    y = x
    while y > 0:
        v, d = int(search.last[y, OP]), int(search.last[y, DEVICE])
        has_run[d] = True
        do(side, now, v, d, search.last[y, END], 0)
        y = int(search.last[y, BEFORE])
    num_ready = 0
    for u in near:
        if now.missing[u] == 0 and not now.is_done[u]:
            now.ready[num_ready] = u
            num_ready += 1
    return num_ready


@inlined
def _remember(side: Side, search: _Search, now: Now, x: int, v: int, d: int, loss: float, cost: float) -> None:
    """Put what is looked at, `x` and then `v` on `d`, among the states that can be extended."""
    at = search.lengths[SEEN]
    search.last[at, BEFORE], search.last[at, OP], search.last[at, DEVICE] = x, v, d
    search.loss[at], search.owed[at], search.key[at] = loss, search.owed[x] + loss - search.loss[x], search.key[x]
    if v != NOTHING:
        search.key[at] ^= side.key[v]
        if side.out_offsets[v] == side.out_offsets[v + 1]:
            search.owed[at] += side.least[v].max()
        search.last[at, END] = now.free[d]
        for e in range(len(now.free)):
            search.free[at, e] = now.free[e]
    push(search.cost, search.state, 0, search.lengths[QUEUED], cost, at)
    search.lengths[SEEN] += 1
    search.lengths[QUEUED] += 1


@inlined
def _is_new(side: Side, search: _Search, now: Now, near: NDArray[np.int64], x: int) -> bool:
    """Return False if a state that was extended makes `x`, which is looked at, needless; else put it among them."""
    place = int(search.key[x] & np.uint64(len(search.newest) - 1))
    c, at = search.lengths[EXTENDED], search.lengths[USED]
    end = _describe(side, search, now, near, x, at)
    compared, i = 0, search.newest[place]
    while i > 0 and compared < MOST_COMPARED:
        if search.known_key[i] == search.key[x]:
            compared += 1
            is_ahead, offset = True, search.offset[i]
            for k in range(end - at):
                if search.times[offset + k] > search.times[at + k] + EXACT:
                    is_ahead = False
                    break
            if is_ahead and _has_lost_less(side, search, search.known[i], x):
                return False
        i = search.older[i]
    search.known[c], search.known_key[c], search.offset[c] = x, search.key[x], at
    search.older[c], search.newest[place] = search.newest[place], c
    search.lengths[EXTENDED], search.lengths[USED] = c + 1, end
    return True


@inlined
def _describe(side: Side, search: _Search, now: Now, near: NDArray[np.int64], x: int, at: int) -> int:
    """Write down when the devices of `x` are free, and each op that has an input done can start on each of them.

    For states of the same ops these are the same ops: those on which nothing depends stay in, with `IS_DONE`. From the
    horizon on all is the same. Returns the end of what was written from `at` on.
    """
    num_devices = len(now.free)
    for d in range(num_devices):
        search.times[at] = search.free[x, d]
        at += 1
    for u in near:
        is_last = side.out_offsets[u] == side.out_offsets[u + 1]
        num_in = side.in_offsets[u + 1] - side.in_offsets[u]
        if now.missing[u] == num_in and (num_in > 0 or not is_last):
            continue
        if now.is_done[u] and not is_last:
            continue
        for d in range(num_devices):
            when = IS_DONE if now.is_done[u] else max(search.free[x, d], now.arrival[u, d])
            search.times[at] = min(when, side.horizon)
            at += 1
    return at


@inlined
def _has_lost_less(side: Side, search: _Search, x: int, y: int) -> bool:
    """Return True if `x` loses no more than `y`, once its devices have waited for those of `y`, and does as `y` does.

    An op that only `x` has done it does not do again: it idles instead, and loses what `y` will be credited for the op,
    wherever that runs. In classes of several ops that depends on the device.
    """
    lost = search.owed[x]
    for d in range(search.free.shape[1]):
        lost += max(worth(side, d, search.free[y, d]) - worth(side, d, search.free[x, d]), 0.0)
    return bool(lost <= search.owed[y] + EXACT)

"""The least that is lost at the beginning of any schedule, by the A* algorithm: the search of both ends' bound.

States are beginnings of schedules (:mod:`placekit.solvers.makespan.endings` says what they lose): every device is free
from some time on, and some ops are done. The next op is one that starts no earlier than any before it, so a device that
is free earlier idles until then.

The estimate of what is still lost is the least idling, and paying too much, for the next op of every device, each op as
early as its inputs allow; devices may all choose the same.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import inlined, njit

__all__ = ["Side", "least_loss"]

MOST_COMPARED = 300
"""States of the same ops that a new one is compared with, the newest ones."""
EXACT = 1e-12
"""Times that differ by less are the same, in units of the limit."""
IS_DONE = -1.0
"""In place of the moment when an op could start."""
NOTHING = -1
"""In place of an op: no other one starts before the horizon."""


class Side(NamedTuple):
    """A graph read from one of its ends, times in units of a limit.

    Parameters
    ----------
    order
        ``[V]`` the ops, each behind its inputs.
    time, least
        ``[V, D]`` time of each op, infinity where it cannot be, and what it is credited for: never more than its
        seconds there are worth. The same on all devices, but for classes of several ops.
    early
        ``[V, D]`` earliest start; where an op is credited for a moment's worth, no earlier than that begins.
    in_offsets, in_ops, in_delay
        ``[V + 1]``, ``[E]`` and ``[E, D, D]``: the inputs of each op, and the delays by the devices of both ends.
    out_offsets, out_ops
        ``[V + 1]`` and ``[E]``.
    rate, since
        ``[D, R]`` what a moment is worth from a time on, the sum over R.
    group
        ``[D]`` group of equal devices.
    key
        ``[V]`` random numbers: their exclusive or stands for a set of ops. 0 for ops on which nothing depends.
    horizon
        The time up to which losses count.
    """

    order: NDArray[np.int64]
    time: NDArray[np.float64]
    least: NDArray[np.float64]
    early: NDArray[np.float64]
    in_offsets: NDArray[np.int64]
    in_ops: NDArray[np.int64]
    in_delay: NDArray[np.float64]
    out_offsets: NDArray[np.int64]
    out_ops: NDArray[np.int64]
    rate: NDArray[np.float64]
    since: NDArray[np.float64]
    group: NDArray[np.int64]
    key: NDArray[np.uint64]
    horizon: float


class _States(NamedTuple):
    """States ``[N]`` of a search, and the place of each in the lists of those of the same ops.

    State `before`, then op `op` on `device` until `finish`; `loss` until every device is free ``[N, D]``, and `numbers`
    from `offset` on: when the inputs of the ops that come next are known on each device. `owed` is the loss with what
    the ops on which nothing depends pay at most, had none of them been done yet: it is what states are compared by.
    """

    before: NDArray[np.int64]
    op: NDArray[np.int64]
    device: NDArray[np.int64]
    finish: NDArray[np.float64]
    loss: NDArray[np.float64]
    owed: NDArray[np.float64]
    free: NDArray[np.float64]
    key: NDArray[np.uint64]
    is_dropped: NDArray[np.bool_]
    offset: NDArray[np.int64]
    numbers: NDArray[np.float64]
    newest: NDArray[np.int64]
    older: NDArray[np.int64]


@inlined
def _worth(side: Side, d: int, until: float) -> float:
    """Return what device `d` is worth from the beginning until then."""
    total = 0.0
    for r in range(side.rate.shape[1]):
        total += side.rate[d, r] * max(until - side.since[d, r], 0.0)
    return total


@inlined
def _arrival(
    side: Side,
    u: int,
    d: int,
    at: float,
    is_done: NDArray[np.bool_],
    device: NDArray[np.int64],
    finish: NDArray[np.float64],
) -> float:
    """Return when the inputs of `u` that are done are on device `d`, or `at` if that is later."""
    for i in range(side.in_offsets[u], side.in_offsets[u + 1]):
        v = side.in_ops[i]
        if is_done[v]:
            at = max(at, finish[v] + side.in_delay[i, device[v], d])
    return at


@inlined
def _still_lost(
    side: Side,
    free: NDArray[np.float64],
    is_done: NDArray[np.bool_],
    device: NDArray[np.int64],
    finish: NDArray[np.float64],
    inputs_done: NDArray[np.int64],
    early: NDArray[np.float64],
    is_far: NDArray[np.bool_],
    least: NDArray[np.float64],
) -> float:
    """Return the least that is lost until every device has begun its next op, or until the horizon.

    `early` ``[V, D]``, `is_far` ``[V]`` and `least` ``[D]`` are room to work in.
    """
    num_devices = len(free)
    for d in range(num_devices):
        least[d] = max(_worth(side, d, side.horizon) - _worth(side, d, free[d]), 0.0)
    reach = side.horizon
    for has_all_inputs in (True, False):
        for u in side.order:
            is_ready = inputs_done[u] == side.in_offsets[u + 1] - side.in_offsets[u]
            if is_done[u] or is_ready != has_all_inputs:
                continue
            is_far[u] = False
            for i in range(side.in_offsets[u], side.in_offsets[u + 1]):
                is_far[u] = is_far[u] or (not is_done[side.in_ops[i]] and is_far[side.in_ops[i]])
            if is_far[u]:
                continue
            first = np.inf
            for d in range(num_devices):
                at = max(_arrival(side, u, d, free[d], is_done, device, finish), side.early[u, d])
                if not is_ready:
                    for i in range(side.in_offsets[u], side.in_offsets[u + 1]):
                        v = side.in_ops[i]
                        if not is_done[v]:
                            known = np.inf
                            for e in range(num_devices):
                                known = min(known, early[v, e] + side.time[v, e] + side.in_delay[i, e, d])
                            at = max(at, known)
                early[u, d] = at
                first = min(first, at)
                if at < reach and side.time[u, d] < np.inf:
                    lost = _worth(side, d, at + side.time[u, d]) - _worth(side, d, free[d]) - side.least[u, d]
                    least[d] = min(least[d], lost)
            is_far[u] = first >= reach
        if has_all_inputs:
            # later than this, idling alone costs more
            reach = 0.0
            for d in range(num_devices):
                rate = 0.0
                for r in range(side.rate.shape[1]):
                    if side.since[d, r] <= free[d]:
                        rate += side.rate[d, r]
                reach = max(reach, free[d] + least[d] / rate if rate > 0 else side.horizon)
            reach = min(reach, side.horizon)
    return float(least.sum())


@njit(cache=True, nogil=True)
def least_loss(side: Side, most: float, num_states: int, num_numbers: int) -> tuple[float, bool]:
    """Return a bound on what is lost until the horizon, and True if it is the least loss itself, or `most`.

    Parameters
    ----------
    side
        The graph, read from the end in question.
    most
        Losses from which on nothing need be known.
    num_states, num_numbers
        How much may be remembered.
    """
    num_ops, num_devices = side.time.shape
    mask = 1
    while mask < num_states:
        mask *= 2
    states = _States(
        np.full(num_states, -1, dtype=np.int64),
        np.full(num_states, NOTHING, dtype=np.int64),
        np.zeros(num_states, dtype=np.int64),
        np.zeros(num_states),
        np.zeros(num_states),
        np.zeros(num_states),
        np.zeros((num_states, num_devices)),
        np.zeros(num_states, dtype=np.uint64),
        np.zeros(num_states, dtype=np.bool_),
        np.zeros(num_states, dtype=np.int64),
        np.empty(num_numbers),
        np.full(mask, -1, dtype=np.int64),
        np.full(num_states, -1, dtype=np.int64),
    )
    is_done, device, finish = np.zeros(num_ops, np.bool_), np.zeros(num_ops, np.int64), np.zeros(num_ops)
    inputs_done, has_run = np.zeros(num_ops, np.int64), np.zeros(num_devices, np.bool_)
    free, early, least = np.zeros(num_devices), np.zeros((num_ops, num_devices)), np.zeros(num_devices)
    is_far = np.zeros(num_ops, np.bool_)
    size, used = 1, 0
    queue = [(0.0, 0)]
    while len(queue) > 0:
        bound, x = heapq.heappop(queue)
        if states.is_dropped[x]:
            continue
        if x > 0 and states.op[x] == NOTHING:
            return bound, True
        is_done[:], inputs_done[:], has_run[:] = False, 0, False
        y = x
        while y > 0:
            v = states.op[y]
            is_done[v], device[v], finish[v] = True, states.device[y], states.finish[y]
            has_run[states.device[y]] = True
            for i in range(side.out_offsets[v], side.out_offsets[v + 1]):
                inputs_done[side.out_ops[i]] += 1
            y = states.before[y]
        rest = 0.0
        for d in range(num_devices):
            rest += max(_worth(side, d, side.horizon) - _worth(side, d, states.free[x, d]), 0.0)
        if states.loss[x] + rest < most:
            if size == num_states:
                return bound, False
            states.before[size], states.loss[size] = x, states.loss[x] + rest
            heapq.heappush(queue, (max(bound, states.loss[size]), size))
            size += 1
        for v in range(num_ops):
            if is_done[v] or inputs_done[v] < side.in_offsets[v + 1] - side.in_offsets[v]:
                continue
            for d in range(num_devices):
                if side.time[v, d] == np.inf or _is_like_an_earlier_one(side.group, has_run, states.free[x], d):
                    continue
                start = _arrival(side, v, d, max(states.free[x, d], side.early[v, d]), is_done, device, finish)
                if start >= side.horizon:
                    continue
                loss = states.loss[x] - side.least[v, d]
                for e in range(num_devices):
                    free[e] = start + side.time[v, d] if e == d else max(states.free[x, e], start)
                    loss += _worth(side, e, free[e]) - _worth(side, e, states.free[x, e])
                if loss >= most:
                    continue
                is_done[v], device[v], finish[v] = True, d, free[d]
                for i in range(side.out_offsets[v], side.out_offsets[v + 1]):
                    inputs_done[side.out_ops[i]] += 1
                lost = _still_lost(side, free, is_done, device, finish, inputs_done, early, is_far, least)
                cost = max(bound, loss + lost)
                if cost < most:
                    if size == num_states or used + num_ops * num_devices > num_numbers:
                        return bound, False
                    states.loss[size], states.free[size], states.offset[size] = loss, free, used
                    states.owed[size] = states.owed[x] + loss - states.loss[x]
                    if side.out_offsets[v] == side.out_offsets[v + 1]:
                        states.owed[size] += side.least[v].max()
                    states.key[size] = states.key[x] ^ side.key[v]
                    count = _describe(side, states, used, free, is_done, device, finish, inputs_done)
                    place = int(states.key[size] & np.uint64(mask - 1))
                    if _is_ahead(side, states, size, place, count):
                        states.before[size], states.op[size], states.device[size] = x, v, d
                        states.finish[size] = free[d]
                        states.older[size], states.newest[place] = states.newest[place], size
                        heapq.heappush(queue, (cost, size))
                        size, used = size + 1, used + count
                for i in range(side.out_offsets[v], side.out_offsets[v + 1]):
                    inputs_done[side.out_ops[i]] -= 1
                is_done[v] = False
    return most, True


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
def _describe(
    side: Side,
    states: _States,
    at: int,
    free: NDArray[np.float64],
    is_done: NDArray[np.bool_],
    device: NDArray[np.int64],
    finish: NDArray[np.float64],
    inputs_done: NDArray[np.int64],
) -> int:
    """Write down when each op that has an input done could start on each device; return how many numbers that is.

    For states of the same ops these are the same ops: those on which nothing depends stay in, with `IS_DONE`.
    """
    count = 0
    for u in range(len(is_done)):
        is_last = side.out_offsets[u] == side.out_offsets[u + 1]
        if inputs_done[u] == 0 and (side.in_offsets[u] < side.in_offsets[u + 1] or not is_last):
            continue
        if is_done[u] and not is_last:
            continue
        for d in range(len(free)):
            when = IS_DONE if is_done[u] else _arrival(side, u, d, free[d], is_done, device, finish)
            states.numbers[at + count] = when
            count += 1
    return count


@inlined
def _is_ahead(side: Side, states: _States, x: int, place: int, num_numbers: int) -> bool:
    """Return False if another state makes `x` needless, which is not in the lists yet; drop those that `x` does."""
    num_devices, compared = states.free.shape[1], 0
    y = states.newest[place]
    while y >= 0 and compared < MOST_COMPARED:
        if states.key[y] == states.key[x] and not states.is_dropped[y]:
            compared += 1
            x_is_ahead, y_is_ahead = True, True
            for d in range(num_devices):
                later = states.free[x, d] - states.free[y, d]
                x_is_ahead, y_is_ahead = x_is_ahead and later <= EXACT, y_is_ahead and later >= -EXACT
            if x_is_ahead or y_is_ahead:
                for i in range(num_numbers):
                    later = states.numbers[states.offset[x] + i] - states.numbers[states.offset[y] + i]
                    x_is_ahead, y_is_ahead = x_is_ahead and later <= EXACT, y_is_ahead and later >= -EXACT
                    if not (x_is_ahead or y_is_ahead):
                        break
            if y_is_ahead and _has_lost_less(side, states, y, x):
                return False
            if x_is_ahead and _has_lost_less(side, states, x, y):
                states.is_dropped[y] = True
        y = states.older[y]
    return True


@inlined
def _has_lost_less(side: Side, states: _States, x: int, y: int) -> bool:
    """Return True if `x` loses no more than `y`, once its devices have waited for those of `y`, and does as `y` does.

    An op that only `x` has done it does not do again: it idles instead, and loses what `y` will be credited for the op,
    wherever that runs. In classes of several ops that depends on the device.
    """
    lost = states.owed[x]
    for d in range(states.free.shape[1]):
        lost += max(_worth(side, d, states.free[y, d]) - _worth(side, d, states.free[x, d]), 0.0)
    return bool(lost <= states.owed[y] + EXACT)

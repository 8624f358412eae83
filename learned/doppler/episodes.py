"""Compiled episodes: op after op, the one that SELECT picks among the ready ones, on the device that PLACE picks.

Messages along the graph are passed once per episode, so what is left for a step are the scores of the ready ops, which
do not change, and one hidden layer per device, whose inputs are sums. The kernel computes both as
:mod:`placekit.learned.doppler.network` does, without gradients, and writes down the states that it came through; the
network then says how likely each decision was, with gradients, for all of them at once.

What PLACE sees of an op on a device, `FEATURES` columns; times are in units of the mean op, and enter as
``log(1 + t)`` above the least of the devices where the op may go:

= ==================================================================
0 seconds of the op
1 earliest start, in a gap of the schedule so far or behind it
2 end, after that start
3 arrival of the last input
4 seconds that all its inputs from other devices need (itself, not above the least)
5 end beyond the end of the schedule so far (itself)
6 share of the fullest device's load
7 share of the inputs that are there
8 share of the device's memory that is left with the op; 1 without a limit
= ==================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.solvers.makespan.lists.insertion import earliest_gap, endless_gaps, fill_gap
from placekit.solvers.makespan.lists.state import begin_list, settle

FEATURES = 9
"""Columns of what PLACE sees of an op on a device."""

SAMPLES, FOLLOWS, GREEDY = 0, 1, 2
"""How an episode goes on: with a draw from the policies, as the teacher says, or with what is most probable."""

_LOGARITHMIC = 6  # columns before this one are seconds
_SHIFTED = 4  # columns before this one count from the least of the devices
_TIE = 1e-9  # ends that differ by less, relatively, are equally good for the teacher


class Policies(NamedTuple):
    """Weights and scores of SELECT, PLACE and the teacher, for V ops on D devices and H hidden units."""

    score: NDArray[np.float64]  # ``[V]`` of SELECT
    # own, joins: ``[V, H]`` what an op adds to the hidden layer of PLACE: where it is placed, and, in the mean over the
    # ops that are on a device, for that device
    own: NDArray[np.float64]
    joins: NDArray[np.float64]
    # sees, says: ``[FEATURES, H]`` and ``[H]`` weights of the features, and of the hidden layer
    sees: NDArray[np.float64]
    says: NDArray[np.float64]
    prior: NDArray[np.float64]  # ``[V, D]`` is added to what PLACE says
    urgency: NDArray[np.float64]  # ``[V]`` the teacher picks the ready op of the largest; ties by topological position


class Script(NamedTuple):
    """Course of B episodes."""

    taught: NDArray[np.int64]  # ``[B, V]`` the teacher's device of every op; -1 for the one where it ends first
    mode: NDArray[np.int64]  # ``[B]`` `SAMPLES`, `FOLLOWS` or `GREEDY`
    drawn: NDArray[np.float64]  # ``[B, V, 2]`` uniform numbers for the two policies


class Played(NamedTuple):
    """Record of B episodes."""

    op_of_step: NDArray[np.int64]  # ``[B, V]``
    ready_from: NDArray[np.int64]  # ``[B, V]`` step from which every op was ready
    device_of_op: NDArray[np.int64]  # ``[B, V]``
    # start_s, finish_s: ``[B, V]`` of every op
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    # seen, may: ``[B, V, D, FEATURES]`` what PLACE saw at every step, and ``[B, V, D]`` where it might place
    seen: NDArray[np.float64]
    may: NDArray[np.bool_]
    # right_op, is_right: ``[B, V]`` the teacher's op of every step, and ``[B, V, D]`` the devices right for the teacher
    right_op: NDArray[np.int64]
    is_right: NDArray[np.bool_]


class Room(NamedTuple):
    """Room for one step: of ready ops and their weights, and of what devices offer."""

    weight: NDArray[np.float64]  # ``[V]`` exponential of the score
    ready: NDArray[np.int64]  # ``[V]``
    # gap, begin, end, logit: ``[D]``
    gap: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    logit: NDArray[np.float64]
    # load, num_ops, there: ``[D]`` seconds and ops of every device, and ``[D, H]`` sums of what its ops join
    load: NDArray[np.float64]
    num_ops: NDArray[np.float64]
    there: NDArray[np.float64]
    layer: NDArray[np.float64]  # ``[H]``


@njit
def play(instance: MakespanInstance, unit_s: float, policies: Policies, script: Script) -> Played:
    """Play episodes; `unit_s` are the seconds of the mean op.

    Notes
    -----
    O(B V (ready ops + D (H FEATURES + inputs + gaps))).
    """
    (num_rows, num_ops), num_devices = script.taught.shape, len(instance.kind)
    hidden = len(policies.says)
    played = Played(
        np.empty((num_rows, num_ops), dtype=np.int64),
        np.zeros((num_rows, num_ops), dtype=np.int64),
        np.empty((num_rows, num_ops), dtype=np.int64),
        np.zeros((num_rows, num_ops)),
        np.zeros((num_rows, num_ops)),
        np.zeros((num_rows, num_ops, num_devices, FEATURES)),
        np.zeros((num_rows, num_ops, num_devices), dtype=np.bool_),
        np.empty((num_rows, num_ops), dtype=np.int64),
        np.zeros((num_rows, num_ops, num_devices), dtype=np.bool_),
    )
    room = Room(
        np.exp(policies.score - policies.score.max()),
        np.empty(num_ops, dtype=np.int64),
        np.empty(num_devices, dtype=np.int64),
        np.empty(num_devices),
        np.empty(num_devices),
        np.empty(num_devices),
        np.empty(num_devices),
        np.empty(num_devices),
        np.empty((num_devices, hidden)),
        np.empty(hidden),
    )
    for row in range(num_rows):
        room.load[:], room.num_ops[:], room.there[:] = 0.0, 0.0, 0.0
        state, gaps = begin_list(instance), endless_gaps(num_devices, num_ops)
        _play_one(
            by_reference(instance), unit_s, by_reference(policies), by_reference(script), by_reference(played),
            by_reference(room), by_reference(state), by_reference(gaps), row,
        )  # fmt: skip
        played.device_of_op[row] = state.device
        played.start_s[row], played.finish_s[row] = state.start, state.finish
    return played


@njit(inner=True, allocates=False)
def _play_one(
    instance: Any, unit_s: Any, policies: Any, script: Any, played: Any, room: Any, state: Any, gaps: Any, row: Any
) -> Any:
    """Play one episode."""
    num_ops, mode, ready, num_ready = len(state.device), script.mode[row], room.ready, 0
    num_gaps, makespan = len(instance.kind), 0.0
    for position in range(num_ops):
        op = instance.order[position]
        if state.missing[op] == 0:
            ready[num_ready] = op
            num_ready += 1
    for step in range(num_ops):
        picked, wanted = _select(instance, policies, room, num_ready, mode, script.drawn[row, step, 0])
        played.right_op[row, step] = ready[wanted]
        op = ready[picked]
        num_ready -= 1
        ready[picked] = ready[num_ready]
        played.op_of_step[row, step] = op

        seen, allowed, is_right = played.seen[row, step], played.may[row, step], played.is_right[row, step]
        _mark_allowed(instance, state, op, allowed)
        first_end = _look(instance, state, gaps, room, op, makespan, unit_s, seen, allowed)
        _scale(seen, allowed, unit_s)
        lesson = script.taught[row, op]
        for d in range(len(allowed)):
            if lesson >= 0 and allowed[lesson]:
                is_right[d] = d == lesson
            else:
                is_right[d] = allowed[d] and room.end[d] <= first_end * (1 + _TIE)
        chosen = _say(policies, room, op, seen, allowed)
        if mode == FOLLOWS:
            chosen = int(np.argmax(is_right))
        elif mode == SAMPLES:
            chosen = _draw(room.logit, allowed, room.logit[chosen], script.drawn[row, step, 1])

        begin, end = room.begin[chosen], room.end[chosen]
        settle(instance, state, op, chosen, begin, end)
        makespan = max(makespan, end)
        room.load[chosen] += end - begin
        room.num_ops[chosen] += 1
        for k in range(len(room.layer)):
            room.there[chosen, k] += policies.joins[op, k]
        num_gaps = fill_gap(room.gap[chosen], begin, end, gaps, num_gaps)
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader = instance.edge_readers[j]
            state.missing[reader] -= 1
            if state.missing[reader] == 0:
                ready[num_ready] = reader
                played.ready_from[row, reader] = step + 1
                num_ready += 1


@njit(inner=True, allocates=False)
def _select(instance: Any, policies: Any, room: Any, num_ready: Any, mode: Any, drawn: Any) -> Any:
    """Return the places among the ready ops of the op that is picked, and of the one that the teacher would pick."""
    score, weight, urgency, rank, ready = policies.score, room.weight, policies.urgency, instance.rank, room.ready
    likeliest, wanted, total = 0, 0, 0.0
    for i in range(num_ready):
        op = ready[i]
        total += weight[op]
        if score[op] > score[ready[likeliest]]:
            likeliest = i
        ahead = urgency[op] - urgency[ready[wanted]]
        if ahead > 0 or (ahead == 0 and rank[op] < rank[ready[wanted]]):
            wanted = i
    if mode == FOLLOWS:
        return wanted, wanted
    if mode == GREEDY:
        return likeliest, wanted
    passed = 0.0
    for i in range(num_ready):
        passed += weight[ready[i]]
        if passed > drawn * total:
            return i, wanted
    return num_ready - 1, wanted


@njit(inner=True, allocates=False)
def _mark_allowed(instance: Any, state: Any, op: Any, allowed: Any) -> Any:
    """Write where `op` may go: with its class, else where all of it fits, or lacks the least."""
    c = instance.class_of_op[op]
    home, size = state.class_device[c], state.class_bytes[c]
    if home >= 0:
        allowed[home] = True
        return
    least, least_over, has_room = 0, np.inf, False
    for d in range(len(instance.kind)):
        if instance.allowed[op, d]:
            over = state.used[d] + size - instance.limit_bytes[d]
            allowed[d] = over <= 0
            has_room = has_room or over <= 0
            if over < least_over:
                least, least_over = d, over
    if not has_room:
        allowed[least] = True


@njit(inner=True, allocates=False)
def _inputs_on(instance: Any, state: Any, op: Any, d: Any) -> Any:
    """Return when the last input of `op` arrives on `d`, seconds of all transfers, and how many inputs are there."""
    arrival, moved, near = 0.0, 0.0, 0
    for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
        tensor = instance.in_tensors[i]
        producer = instance.producer[tensor]
        at = state.finish[producer]
        if state.device[producer] == d:
            near += 1
        else:
            takes = instance.transfer_s[tensor, instance.kind[state.device[producer]]]
            takes += instance.transfer_s[tensor, instance.kind[d]]
            moved += takes
            at += takes
        arrival = max(arrival, at)
    return arrival, moved, near


@njit(inner=True, allocates=False)
def _look(
    instance: Any, state: Any, gaps: Any, room: Any, op: Any, makespan: Any, unit_s: Any, seen: Any, allowed: Any
) -> Any:
    """Write what PLACE sees of `op` on every device that is allowed; return the earliest end."""
    c, limit = instance.class_of_op[op], instance.limit_bytes
    num_inputs = instance.in_offsets[op + 1] - instance.in_offsets[op]
    extra = state.class_bytes[c] if state.class_device[c] < 0 else 0.0
    first_end, fullest = np.inf, 0.0
    for d in range(len(allowed)):
        fullest = max(fullest, room.load[d])
    for d in range(len(allowed)):
        if not allowed[d]:
            continue
        room.gap[d], begin = earliest_gap(instance, state, gaps, op, d, True)
        time = instance.op_time_s[op, instance.kind[d]]
        end = begin + time
        room.begin[d], room.end[d] = begin, end
        first_end = min(first_end, end)
        arrival, moved, near = _inputs_on(instance, state, op, d)
        seen[d, 0], seen[d, 1], seen[d, 2], seen[d, 3] = time, begin, end, arrival
        seen[d, 4], seen[d, 5] = moved, max(end - makespan, 0.0)
        seen[d, 6] = room.load[d] / max(fullest, unit_s)
        seen[d, 7] = near / max(num_inputs, 1)
        seen[d, 8] = 1.0
        if limit[d] < np.inf and limit[d] > 0:
            seen[d, 8] = max(1 - (state.used[d] + extra) / limit[d], 0.0)
    return first_end


@njit(inner=True, allocates=False)
def _scale(seen: Any, allowed: Any, unit_s: Any) -> Any:
    """Turn seconds in `seen` ``[D, FEATURES]`` into logarithms, of the first columns above the least device."""
    for column in range(_LOGARITHMIC):
        lowest = 0.0
        if column < _SHIFTED:
            lowest = np.inf
            for d in range(len(allowed)):
                if allowed[d]:
                    lowest = min(lowest, seen[d, column])
        for d in range(len(allowed)):
            if allowed[d]:
                seen[d, column] = np.log1p((seen[d, column] - lowest) / unit_s)


@njit(inner=True, allocates=False)
def _say(policies: Any, room: Any, op: Any, seen: Any, allowed: Any) -> Any:
    """Write what PLACE says of every device; return the most probable one."""
    own, sees, says, layer, logit = policies.own, policies.sees, policies.says, room.layer, room.logit
    highest, chosen = -np.inf, 0
    for d in range(len(allowed)):
        if not allowed[d]:
            continue
        for k in range(len(layer)):
            layer[k] = own[op, k] + room.there[d, k] / max(room.num_ops[d], 1.0)
        for f in range(FEATURES):
            for k in range(len(layer)):
                layer[k] += seen[d, f] * sees[f, k]
        logit[d] = policies.prior[op, d]
        for k in range(len(layer)):
            logit[d] += max(layer[k], 0.0) * says[k]
        if logit[d] > highest:
            highest, chosen = logit[d], d
    return chosen


@njit(inner=True, allocates=False)
def _draw(logit: Any, allowed: Any, highest: Any, drawn: Any) -> Any:
    """Return a device by the softmax of `logit` and a uniform number."""
    total = 0.0
    for d in range(len(allowed)):
        if allowed[d]:
            total += np.exp(logit[d] - highest)
    passed, chosen = 0.0, 0
    for d in range(len(allowed)):
        if allowed[d]:
            chosen = d
            passed += np.exp(logit[d] - highest)
            if passed > drawn * total:
                break
    return chosen

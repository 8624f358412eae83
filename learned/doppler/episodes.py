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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.solvers.makespan.lists.insertion import earliest_gap, fill_gap

FEATURES = 9
"""Columns of what PLACE sees of an op on a device."""

SAMPLES, FOLLOWS, GREEDY = 0, 1, 2
"""How an episode goes on: with a draw from the policies, as the teacher says, or with what is most probable."""

_LOGARITHMIC = 6  # columns before this one are seconds
_SHIFTED = 4  # columns before this one count from the least of the devices
_TIE = 1e-9  # ends that differ by less, relatively, are equally good for the teacher


@njit(inner=True)
def _select(score: Any, weight: Any, urgency: Any, rank: Any, ready: Any, num_ready: Any, mode: Any, drawn: Any) -> Any:
    """Return the places in `ready` of the op that is picked, and of the one that the teacher would pick."""
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


@njit(inline=True)
def _mark_allowed(
    instance: MakespanInstance, op: int, home: int, size: float, used: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> None:
    """Write where `op` may go: with its class at `home`, else where `size` bytes fit, or lack the least."""
    if home >= 0:
        allowed[home] = True
        return
    least, least_over, has_room = 0, np.inf, False
    for d in range(len(instance.kind)):
        if instance.allowed[op, d]:
            over = used[d] + size - instance.limit_bytes[d]
            allowed[d] = over <= 0
            has_room = has_room or over <= 0
            if over < least_over:
                least, least_over = d, over
    if not has_room:
        allowed[least] = True


@njit(inline=True)
def _inputs_on(
    instance: MakespanInstance, op: int, d: int, device: NDArray[np.int64], finish: NDArray[np.float64]
) -> tuple[float, float, int]:
    """Return when the last input of `op` arrives on `d`, seconds of all transfers, and how many inputs are there."""
    arrival, moved, near = 0.0, 0.0, 0
    for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
        tensor = instance.in_tensors[i]
        producer = instance.producer[tensor]
        at = finish[producer]
        if device[producer] == d:
            near += 1
        else:
            takes = instance.transfer_s[tensor, instance.kind[device[producer]]]
            takes += instance.transfer_s[tensor, instance.kind[d]]
            moved += takes
            at += takes
        arrival = max(arrival, at)
    return arrival, moved, near


@njit(inner=True)
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


@njit(inner=True)
def _say(
    own: Any, there: Any, count: Any, sees: Any, says: Any, prior: Any, seen: Any, allowed: Any, layer: Any, logit: Any
) -> Any:
    """Write what PLACE says of every device; return the most probable one."""
    highest, chosen = -np.inf, 0
    for d in range(len(allowed)):
        if not allowed[d]:
            continue
        for k in range(len(layer)):
            layer[k] = own[k] + there[d, k] / max(count[d], 1.0)
        for f in range(FEATURES):
            for k in range(len(layer)):
                layer[k] += seen[d, f] * sees[f, k]
        logit[d] = prior[d]
        for k in range(len(layer)):
            logit[d] += max(layer[k], 0.0) * says[k]
        if logit[d] > highest:
            highest, chosen = logit[d], d
    return chosen


@njit(inner=True)
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


@njit
def play(  # type: ignore[no-untyped-def]  # compiled
    instance, unit_s, score, own, joins, sees, says, prior, urgency, taught, mode, drawn
):
    """Play episodes.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    unit_s : float
        Seconds of the mean op.
    score : float64[V]
        What SELECT says of every op.
    own, joins : float64[V, H]
        What an op adds to the hidden layer of PLACE: where it is placed, and, in the mean over the ops that are on a
        device, for that device.
    sees, says : float64[FEATURES, H], float64[H]
        Weights of the features, and of the hidden layer.
    prior : float64[V, D]
        What is added to what PLACE says.
    urgency : float64[V]
        The teacher picks the ready op of the largest; ties by topological position.
    taught : int64[B, V]
        The teacher's device of every op; -1 for the one where it ends first.
    mode : int64[B]
        `SAMPLES`, `FOLLOWS` or `GREEDY`.
    drawn : float64[B, V, 2]
        Uniform numbers for the two policies.

    Returns
    -------
    tuple
        int64[B, V] op of every step; int64[B, V] step from which every op was ready; int64[B, V] device of every op;
        float64[B, V] its start, and its end; float64[B, V, D, FEATURES] what PLACE saw at every step; bool[B, V, D]
        where it might place; int64[B, V] the op that the teacher would have picked; bool[B, V, D] the devices that are
        right for the teacher.

    Notes
    -----
    O(B V (ready ops + D (H FEATURES + inputs + gaps))).
    """
    num_rows, num_ops, num_devices, hidden = len(mode), len(score), len(instance.kind), own.shape[1]
    op_of_step = np.empty((num_rows, num_ops), dtype=np.int64)
    ready_from = np.zeros((num_rows, num_ops), dtype=np.int64)
    device_of_op = np.full((num_rows, num_ops), -1, dtype=np.int64)
    start_s, finish_s = np.zeros((num_rows, num_ops)), np.zeros((num_rows, num_ops))
    features = np.zeros((num_rows, num_ops, num_devices, FEATURES))
    may = np.zeros((num_rows, num_ops, num_devices), dtype=np.bool_)
    right_op = np.empty((num_rows, num_ops), dtype=np.int64)
    is_right = np.zeros((num_rows, num_ops, num_devices), dtype=np.bool_)

    num_classes = instance.class_of_op.max() + 1
    class_bytes = np.zeros(num_classes)
    for op in range(num_ops):
        class_bytes[instance.class_of_op[op]] += instance.memory_bytes[op]
    weight = np.exp(score - score.max())
    gap_begin, gap_end = np.empty(num_devices + num_ops), np.empty(num_devices + num_ops)
    before = np.empty(num_devices + num_ops, dtype=np.int64)
    after = np.empty(num_devices + num_ops, dtype=np.int64)
    missing, ready = np.empty(num_ops, dtype=np.int64), np.empty(num_ops, dtype=np.int64)
    gap, begin, end, logit = (
        np.empty(num_devices, dtype=np.int64),
        np.empty(num_devices),
        np.empty(num_devices),
        np.empty(num_devices),
    )
    layer = np.empty(hidden)

    for row in range(num_rows):
        class_device = np.full(num_classes, -1, dtype=np.int64)
        used, load, count = np.zeros(num_devices), np.zeros(num_devices), np.zeros(num_devices)
        there = np.zeros((num_devices, hidden))
        device, start, finish = device_of_op[row], start_s[row], finish_s[row]
        gap_begin[:], gap_end[:], before[:], after[:] = 0.0, np.inf, -1, -1
        num_gaps, num_ready, makespan = num_devices, 0, 0.0
        for position in range(num_ops):
            op = instance.order[position]
            missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
            if missing[op] == 0:
                ready[num_ready] = op
                num_ready += 1
        for step in range(num_ops):
            picked, wanted = _select(
                score, weight, urgency, instance.rank, ready, num_ready, mode[row], drawn[row, step, 0]
            )
            right_op[row, step] = ready[wanted]
            op = ready[picked]
            num_ready -= 1
            ready[picked] = ready[num_ready]
            op_of_step[row, step] = op

            c = instance.class_of_op[op]
            seen, allowed = features[row, step], may[row, step]
            num_inputs = instance.in_offsets[op + 1] - instance.in_offsets[op]
            _mark_allowed(instance, op, class_device[c], class_bytes[c], used, allowed)

            # what PLACE sees
            first_end = np.inf
            for d in range(num_devices):
                if not allowed[d]:
                    continue
                gap[d], begin[d] = earliest_gap(instance, op, d, device, finish, gap_begin, gap_end, before, True)
                time = instance.op_time_s[op, instance.kind[d]]
                end[d] = begin[d] + time
                first_end = min(first_end, end[d])
                arrival, moved, near = _inputs_on(instance, op, d, device, finish)
                seen[d, 0], seen[d, 1], seen[d, 2], seen[d, 3] = time, begin[d], end[d], arrival
                seen[d, 4], seen[d, 5] = moved, max(end[d] - makespan, 0.0)
                seen[d, 6] = load[d] / max(load.max(), unit_s)
                seen[d, 7] = near / max(num_inputs, 1)
                seen[d, 8] = 1.0
                if instance.limit_bytes[d] < np.inf and instance.limit_bytes[d] > 0:
                    extra = class_bytes[c] if class_device[c] < 0 else 0.0
                    seen[d, 8] = max(1 - (used[d] + extra) / instance.limit_bytes[d], 0.0)
            _scale(seen, allowed, unit_s)

            # the teacher
            lesson = taught[row, op]
            for d in range(num_devices):
                if lesson >= 0 and allowed[lesson]:
                    is_right[row, step, d] = d == lesson
                else:
                    is_right[row, step, d] = allowed[d] and end[d] <= first_end * (1 + _TIE)

            chosen = _say(own[op], there, count, sees, says, prior[op], seen, allowed, layer, logit)
            if mode[row] == FOLLOWS:
                chosen = int(np.argmax(is_right[row, step]))
            elif mode[row] == SAMPLES:
                chosen = _draw(logit, allowed, logit[chosen], drawn[row, step, 1])

            # the next state
            if class_device[c] < 0:
                class_device[c] = chosen
                used[chosen] += class_bytes[c]
            device[op], start[op], finish[op] = chosen, begin[chosen], end[chosen]
            makespan = max(makespan, end[chosen])
            load[chosen] += end[chosen] - begin[chosen]
            count[chosen] += 1
            for k in range(hidden):
                there[chosen, k] += joins[op, k]
            num_gaps = fill_gap(gap[chosen], begin[chosen], end[chosen], gap_begin, gap_end, before, after, num_gaps)
            for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
                reader = instance.edge_readers[j]
                missing[reader] -= 1
                if missing[reader] == 0:
                    ready[num_ready] = reader
                    ready_from[row, reader] = step + 1
                    num_ready += 1
    return op_of_step, ready_from, device_of_op, start_s, finish_s, features, may, right_op, is_right

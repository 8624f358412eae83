"""State of the makespan search and its critical path, with the log that undoes proposals.

A proposal changes the devices of any number of classes, and rearranges at most one stretch of the sequence
(:mod:`placekit.solvers.makespan.search.moves`). Both are logged, so that `undo` reverts the whole proposal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.solvers.makespan.schedule.sequence import (
    SequenceProblem,
    Timeline,
    decode,
    empty_timeline,
    link,
    time_to_end,
)

NUM_CHANGED, SEGMENT_START, SEGMENT_END, STAMP, PATH_LENGTH = range(5)
"""Entries of `Walk.counters`."""
SAME_DEVICE, TRANSFER, MACHINE, NOTHING = range(4)
"""Why an op of the critical path starts when it does: an input made here, one that came over, the op before, none."""


class Walk(NamedTuple):
    """State of the search, with the log of the last proposal.

    Parameters
    ----------
    device
        ``[V]`` device of every op.
    sequence, position
        ``[V]`` the topological order, and its inverse.
    timeline
        The schedule; during a trial, the finish times of the trial.
    finish_s, arrival_s
        ``[V]``, ``[T, D]`` copies of these times without the trial.
    to_end_s
        ``[V]`` seconds from the start of each op to the end of the schedule, without the trial; not kept with
        contention.
    then_s
        ``[D]`` scratch: the same from the next op of each device.
    used_bytes
        ``[D]`` bytes occupied.
    changed, changed_from
        ``[C]`` stack of the classes that the proposal moved, and their devices before.
    segment, kept
        ``[V]`` scratch: the stretch of the sequence before the proposal, and the ops that stay in it.
    mark
        ``[V]`` stamps.
    path, why
        ``[V]`` critical path from its last op to its first, and why each op starts when it does.
    counters
        Lengths and limits of the above, by the constants of this module.
    """

    device: NDArray[np.int64]
    sequence: NDArray[np.int64]
    position: NDArray[np.int64]
    timeline: Timeline
    finish_s: NDArray[np.float64]
    arrival_s: NDArray[np.float64]
    to_end_s: NDArray[np.float64]
    then_s: NDArray[np.float64]
    used_bytes: NDArray[np.float64]
    changed: NDArray[np.int64]
    changed_from: NDArray[np.int64]
    segment: NDArray[np.int64]
    kept: NDArray[np.int64]
    mark: NDArray[np.int64]
    path: NDArray[np.int64]
    why: NDArray[np.int64]
    counters: NDArray[np.int64]


def empty_walk(flat: SequenceProblem) -> Walk:
    """Return arrays of the right shapes, to be filled by `load`."""
    num_ops, num_devices = flat.time_s.shape
    timeline = empty_timeline(flat)
    return Walk(
        device=np.zeros(num_ops, dtype=np.int64),
        sequence=np.zeros(num_ops, dtype=np.int64),
        position=np.zeros(num_ops, dtype=np.int64),
        timeline=timeline,
        finish_s=np.zeros(num_ops),
        arrival_s=np.zeros_like(timeline.arrival_s),
        to_end_s=np.zeros(num_ops),
        then_s=np.zeros(num_devices),
        used_bytes=np.zeros(num_devices),
        changed=np.zeros(len(flat.class_bytes), dtype=np.int64),
        changed_from=np.zeros(len(flat.class_bytes), dtype=np.int64),
        segment=np.zeros(num_ops, dtype=np.int64),
        kept=np.zeros(num_ops, dtype=np.int64),
        mark=np.zeros(num_ops, dtype=np.int64),
        path=np.zeros(num_ops, dtype=np.int64),
        why=np.zeros(num_ops, dtype=np.int64),
        counters=np.zeros(5, dtype=np.int64),
    )


@njit(allocates=False)
def load(flat: SequenceProblem, walk: Walk, device: NDArray[np.int64], sequence: NDArray[np.int64]) -> float:
    """Set `walk` to a placement ``[V]`` and a topological order ``[V]``; return its makespan in seconds."""
    flat, walk = by_reference(flat), by_reference(walk)
    for i in range(len(sequence)):
        walk.device[i] = device[i]
        walk.sequence[i] = sequence[i]
        walk.position[sequence[i]] = i
    for d in range(len(walk.used_bytes)):
        walk.used_bytes[d] = 0.0
    for c in range(len(flat.class_bytes)):
        walk.used_bytes[device[flat.class_ops[flat.class_offsets[c]]]] += flat.class_bytes[c]
    forget(walk)
    return settle(flat, walk, 0, len(sequence))


@njit(inner=True, allocates=False)
def settle(flat: SequenceProblem, walk: Walk, first: int, end: int) -> float:
    """Accept the proposal, which changed only positions from `first` to before `end`.

    Returns the new makespan. O(ops + edges).
    """
    value = decode(flat, walk.device, walk.sequence, walk.timeline, first)
    for v in range(len(walk.finish_s)):
        walk.finish_s[v] = walk.timeline.finish_s[v]
    if flat.has_contention:
        for t in range(len(walk.arrival_s)):
            for d in range(len(walk.used_bytes)):
                walk.arrival_s[t, d] = walk.timeline.arrival_s[t, d]
    else:
        time_to_end(flat, walk.device, walk.sequence, walk.to_end_s, walk.then_s, end)
    return value


@njit(inline=True, allocates=False)
def touched(flat: SequenceProblem, walk: Walk, first: int) -> int:
    """Return the end of the positions that the proposal changes, which begins at `first`."""
    end = max(first, walk.counters[SEGMENT_END])
    for k in range(walk.counters[NUM_CHANGED]):
        c = walk.changed[k]
        for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
            end = max(end, walk.position[flat.class_ops[i]] + 1)
    return int(end)


@njit(inline=True, allocates=False)
def forget(walk: Walk) -> None:
    """Begin a new proposal: clear the log of the last one."""
    walk.counters[NUM_CHANGED] = 0
    walk.counters[SEGMENT_START] = 0
    walk.counters[SEGMENT_END] = 0


@njit(inline=True, allocates=False)
def undo(flat: SequenceProblem, walk: Walk) -> None:
    """Undo the proposal, except for the finish times."""
    for k in range(walk.counters[NUM_CHANGED] - 1, -1, -1):
        place(flat, walk, walk.changed[k], walk.changed_from[k])
    low, high = walk.counters[SEGMENT_START], walk.counters[SEGMENT_END]
    for i in range(low, high):
        walk.sequence[i] = walk.segment[i - low]
        walk.position[walk.sequence[i]] = i
    forget(walk)


@njit(inline=True, allocates=False)
def place(flat: SequenceProblem, walk: Walk, c: int, d: int) -> None:
    """Put class `c` on device `d`, and count its bytes there."""
    begin, end = flat.class_offsets[c], flat.class_offsets[c + 1]
    walk.used_bytes[walk.device[flat.class_ops[begin]]] -= flat.class_bytes[c]
    walk.used_bytes[d] += flat.class_bytes[c]
    for i in range(begin, end):
        walk.device[flat.class_ops[i]] = d


@njit(inner=True, allocates=False)
def trace(flat: SequenceProblem, walk: Walk) -> None:
    """Fill `path` and `why` with one critical path of the state. O(ops + edges on it)."""
    timeline, device = walk.timeline, walk.device
    v, latest = -1, 0.0
    for u in range(len(device)):
        end = timeline.finish_s[u] + flat.after_s[u, device[u]]
        if end > latest:
            v, latest = u, end
    for d in range(len(flat.then_s)):
        if flat.then_s[d] > 0.0:
            u = _last_on(walk, d)
            free = timeline.finish_s[u] if u >= 0 else flat.free_s[d]
            if free + flat.then_s[d] > latest:
                v, latest = u, free + flat.then_s[d]
    length = 0
    while v >= 0:
        start, d = timeline.start_s[v], device[v]
        previous, why = -1, NOTHING
        before = timeline.before[v]
        if start > 0.0 and before >= 0 and timeline.finish_s[before] == start:
            previous, why = before, MACHINE
        for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
            if start <= 0.0 or why == TRANSFER:
                break
            u = flat.instance.producer[flat.instance.in_tensors[j]]
            if device[u] == d:
                if timeline.finish_s[u] == start:
                    previous, why = u, SAME_DEVICE
            elif why == NOTHING and _is_last(flat, walk, v, j, start):
                previous, why = u, TRANSFER
        walk.path[length], walk.why[length] = v, why
        length += 1
        v = previous
    walk.counters[PATH_LENGTH] = length


@njit(inline=True, allocates=False)
def _last_on(walk: Walk, d: int) -> int:
    """Return the last op on device `d`, or -1. O(ops) at worst."""
    for i in range(len(walk.sequence) - 1, -1, -1):
        if walk.device[walk.sequence[i]] == d:
            return int(walk.sequence[i])
    return -1


@njit(inline=True, allocates=False)
def _is_last(flat: SequenceProblem, walk: Walk, v: int, j: int, start: float) -> bool:
    """Return True if the `j`-th input of op `v` arrives exactly when `v` starts."""
    t, d = flat.instance.in_tensors[j], walk.device[v]
    if flat.has_contention:
        return bool(walk.timeline.arrival_s[t, d] == start)
    u = flat.instance.producer[t]
    return bool(walk.timeline.finish_s[u] + link(flat, t, walk.device[u], d) == start)

"""Trial of a proposal: whether its cost is at most a limit.

Proposals that change only the order of ops on different devices have no effect, and are not kept. Without contention a
trial has three parts, and most trials end in the first two:

1. Schedule the positions that the proposal changes. The trial fails as soon as the end of an op plus the time that must
   follow exceeds the limit.
2. Later devices and orders have not changed, and the walk knows the time from the start of each later op to the end. So
   the longest path through the changed positions is known. It is the new makespan, unless another path is longer; no
   other path is longer than the makespan before.
3. Only if this does not decide, or if the mean finish counts, schedule the rest.

So a proposal costs O(ops and edges that it touches). With contention the order of later transfers changes, and
everything is scheduled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.makespan.schedule.sequence import (
    SequenceProblem,
    begin_at,
    link,
    makespan,
    next_on,
    ready_time,
    send,
)
from placekit.solvers.makespan.search.walk import NUM_CHANGED, Walk


@njit(inner=True, allocates=False)
def keeps(
    flat: SequenceProblem, walk: Walk, first: int, end: int, limit_s: float, value_s: float, weight: float
) -> tuple[bool, int]:
    """Try the proposal, which changes positions from `first` to before `end`.

    Returns
    -------
    tuple[bool, int]
        True if the proposal changes a device, or the order on one, and costs at most `limit_s`; and the position after
        the last op that was scheduled.
    """
    num_ops = flat.time_s.shape[0]
    device, timeline = walk.device, walk.timeline
    free, bus = timeline.now_free_s, timeline.now_bus_s
    begin_at(flat, device, walk.sequence, timeline, first)
    if flat.has_contention:
        end = num_ops
    total = 0.0
    is_same = walk.counters[NUM_CHANGED] == 0
    for i in range(first, end):
        v = walk.sequence[i]
        d = device[v]
        is_same &= timeline.before[v] == timeline.now_last[d]
        timeline.now_last[d] = v
        ready = ready_time(flat, device, timeline.finish_s, timeline.arrival_s, v, d)
        finish = max(ready, free[d]) + flat.time_s[v, d]
        if finish + max(flat.tail_s[v], flat.after_s[v, d]) > limit_s:
            return False, i
        total += finish - walk.finish_s[v]
        timeline.finish_s[v] = finish
        free[d] = finish
        if flat.has_contention:
            send(flat, device, v, finish, bus, timeline.arrival_s)
    if is_same:
        return False, end
    if not flat.has_contention:
        if leaves(flat, walk, first, end, free) > limit_s:
            return False, end
        if weight == 0.0 and value_s <= limit_s:
            return True, end
    for i in range(end, num_ops):
        v = walk.sequence[i]
        d = device[v]
        ready = ready_time(flat, device, timeline.finish_s, timeline.arrival_s, v, d)
        finish = max(ready, free[d]) + flat.time_s[v, d]
        total += finish - walk.finish_s[v]
        timeline.finish_s[v] = finish
        free[d] = finish
    value = makespan(flat, device, timeline.finish_s, free)
    return value + weight * max(total, 0.0) / num_ops <= limit_s, num_ops


@njit(inner=True, allocates=False)
def leaves(flat: SequenceProblem, walk: Walk, first: int, end: int, free_s: NDArray[np.float64]) -> float:
    """Return the longest path through the positions from `first` to before `end`, which have been scheduled.

    Later positions have not changed. No other path is longer than the makespan of the state.
    """
    instance = flat.instance
    longest = 0.0
    for i in range(first, end):
        v = walk.sequence[i]
        d = walk.device[v]
        for j in range(instance.out_offsets[v], instance.out_offsets[v + 1]):
            t = instance.out_tensors[j]
            for k in range(instance.reader_offsets[t], instance.reader_offsets[t + 1]):
                w = instance.readers[k]
                if walk.position[w] >= end:
                    e = walk.device[w]
                    over = link(flat, t, d, e) if e != d else 0.0
                    longest = max(longest, walk.timeline.finish_s[v] + over + walk.to_end_s[w])
    next_on(flat, walk.device, walk.sequence, walk.to_end_s, walk.then_s, end)
    for d in range(len(free_s)):
        longest = max(longest, free_s[d] + walk.then_s[d])
    return longest


@njit(inline=True, allocates=False)
def restore(flat: SequenceProblem, walk: Walk, first: int, end: int) -> None:
    """Set the finish times of the trial back to those of the state."""
    for i in range(first, end):
        v = walk.sequence[i]
        walk.timeline.finish_s[v] = walk.finish_s[v]
        if flat.has_contention:
            for j in range(flat.instance.out_offsets[v], flat.instance.out_offsets[v + 1]):
                t = flat.instance.out_tensors[j]
                for d in range(len(walk.used_bytes)):
                    walk.timeline.arrival_s[t, d] = walk.arrival_s[t, d]

"""List scheduling with insertion, compiled: ops by priority, each to its best device.

Idle time of a device is a linked list of gaps, which includes the endless gap after the last op. So a device without
other gaps costs one look, however many ops it has run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.heaps import pop, push
from placekit.solvers.makespan.lists.state import ListState, begin_list, ready_s, settle


@njit
def schedule_by_priority(instance, priority, lookahead_s, wanted, has_insertion):  # type: ignore[no-untyped-def]
    """Place the ready op of the largest priority, again and again, without contention.

    1. Of the ready ops take the one of largest `priority`, ties by topological position.
    2. If the class of the op has a device, use it. Otherwise the candidates are the devices that may run the class and
       have room for all of it. On each of them the op starts in the earliest gap that is long enough, or after all
       other ops without `has_insertion`. Take the device with the earliest end plus `lookahead_s`; ties by device
       index.
    3. If no device has room, take the device that exceeds its limit least.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    priority : float64[V]
        Larger first.
    lookahead_s : float64[V, K]
        Seconds that are added to the end of an op on each kind.
    wanted : int64[V]
        Preferred device of a class, used if it is allowed and has room (read at its first op); -1 for none.
    has_insertion : bool
        See above.

    Returns
    -------
    tuple[int64[V], float64[V], float64[V], bool]
        Device, start and finish of every op; and False if a memory limit is broken.

    Notes
    -----
    O(V log V + E D + gaps looked at), where an op looks at the gaps of a device that end after its inputs arrive.
    """
    num_ops = len(priority)
    state, gaps = begin_list(instance), endless_gaps(len(instance.kind), num_ops)
    ready = np.empty(num_ops), np.empty(num_ops, dtype=np.int64)
    fits = _place_all(
        by_reference(instance), by_reference(state), by_reference(gaps), ready, priority, lookahead_s, wanted,
        has_insertion,
    )  # fmt: skip
    return state.device, state.start, state.finish, fits


@njit(inner=True, allocates=False)
def _place_all(
    instance: Any, state: Any, gaps: Any, ready: Any, priority: Any, lookahead_s: Any, wanted: Any, has_insertion: Any
) -> Any:
    """Place all ops; return False if a memory limit is broken."""
    urgency, rank = ready  # a heap
    num_ready, num_gaps, fits_all = 0, len(instance.kind), True
    for op in range(len(priority)):
        if state.missing[op] == 0:
            push(urgency, rank, 0, num_ready, -priority[op], instance.rank[op])
            num_ready += 1
    while num_ready > 0:
        op = instance.order[rank[0]]
        num_ready -= 1
        pop(urgency, rank, 0, num_ready)
        best, gap, begin, fits = _best_device(instance, state, gaps, op, lookahead_s, wanted[op], has_insertion)
        fits_all = fits_all and fits
        end = begin + instance.op_time_s[op, instance.kind[best]]
        settle(instance, state, op, best, begin, end)
        num_gaps = fill_gap(gap, begin, end, gaps, num_gaps)
        for j in range(instance.edge_offsets[op], instance.edge_offsets[op + 1]):
            reader = instance.edge_readers[j]
            state.missing[reader] -= 1
            if state.missing[reader] == 0:
                push(urgency, rank, 0, num_ready, -priority[reader], instance.rank[reader])
                num_ready += 1
    return fits_all


class Gaps(NamedTuple):
    """Idle time of the devices; gap d below the number of devices is the endless one of device d."""

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    # before, after: neighbours on the device; -1 for none
    before: NDArray[np.int64]
    after: NDArray[np.int64]


@njit(inline=True)
def endless_gaps(num_devices: int, num_ops: int) -> Gaps:
    """Return the gaps of idle devices, with room for one more gap per op."""
    size = num_devices + num_ops
    nothing = np.full(size, -1, dtype=np.int64)
    return Gaps(np.zeros(size), np.full(size, np.inf), nothing, nothing.copy())


@njit(inline=True, allocates=False)
def _best_device(
    instance: MakespanInstance,
    state: ListState,
    gaps: Gaps,
    op: int,
    lookahead_s: NDArray[np.float64],
    wanted: int,
    has_insertion: bool,
) -> tuple[int, int, float, bool]:
    """Return where `op` goes: device, gap and start; and False if a memory limit is broken."""
    c = instance.class_of_op[op]
    used, class_bytes, limit = state.used, state.class_bytes[c], instance.limit_bytes
    first, last = 0, len(instance.kind)
    if state.class_device[c] >= 0:
        first, last = state.class_device[c], state.class_device[c] + 1
    elif wanted >= 0 and instance.allowed[op, wanted] and used[wanted] + class_bytes <= limit[wanted]:
        first, last = wanted, wanted + 1
    best, best_gap, best_value, best_begin = -1, -1, np.inf, 0.0
    least, least_over = -1, np.inf
    for d in range(first, last):
        if state.class_device[c] < 0:
            if not instance.allowed[op, d]:
                continue
            over = used[d] + class_bytes - limit[d]
            if over > 0:
                if over < least_over:
                    least, least_over = d, over
                continue
        gap, begin = earliest_gap(instance, state, gaps, op, d, has_insertion)
        value = begin + instance.op_time_s[op, instance.kind[d]] + lookahead_s[op, instance.kind[d]]
        if best < 0 or value < best_value:
            best, best_gap, best_value, best_begin = d, gap, value, begin
    if best >= 0:
        return best, best_gap, best_begin, True
    best = max(least, 0)  # a class that no device may take is no case of this function; it stays defined
    best_gap, best_begin = earliest_gap(instance, state, gaps, op, best, has_insertion)
    return best, best_gap, best_begin, False


@njit(inline=True, allocates=False)
def earliest_gap(
    instance: MakespanInstance, state: ListState, gaps: Gaps, op: int, d: int, has_insertion: bool
) -> tuple[int, float]:
    """Return the earliest gap of device `d` that is long enough for `op` after its inputs, and the start there."""
    ready = ready_s(instance, state, op, d)
    gap, begin = d, max(ready, gaps.begin[d])
    if has_insertion:
        time = instance.op_time_s[op, instance.kind[d]]
        other = gaps.before[d]
        while other >= 0 and gaps.end[other] >= ready + time:
            if max(ready, gaps.begin[other]) + time <= gaps.end[other]:
                gap, begin = other, max(ready, gaps.begin[other])
            other = gaps.before[other]
    return gap, begin


@njit(inline=True, allocates=False)
def fill_gap(gap: int, begin: float, end: float, gaps: Gaps, num_gaps: int) -> int:
    """Take the time from `begin` to `end` out of a gap; return the number of gaps ever made."""
    before, after = gaps.before, gaps.after
    left, right = begin > gaps.begin[gap], end < gaps.end[gap]
    if left and right:  # the new gap is the left part, so that the endless one stays the last
        new = num_gaps
        num_gaps += 1
        gaps.begin[new], gaps.end[new] = gaps.begin[gap], begin
        before[new], after[new] = before[gap], gap
        if before[gap] >= 0:
            after[before[gap]] = new
        before[gap] = new
        gaps.begin[gap] = end
    elif right:
        gaps.begin[gap] = end
    elif left:
        gaps.end[gap] = begin
    else:
        if before[gap] >= 0:
            after[before[gap]] = after[gap]
        before[after[gap]] = before[gap]
    return num_gaps

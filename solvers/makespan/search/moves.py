"""Moves of the makespan search, made in place and logged in the walk so that they can be undone.

Memory limits, supported devices, pins and topological order hold at every moment.
"""

from __future__ import annotations

from placekit.kernels import njit
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, ready_time
from placekit.solvers.makespan.search.walk import NUM_CHANGED, SEGMENT_END, SEGMENT_START, STAMP, Walk, place, undo


@njit(inner=True, allocates=False)
def _log_and_place(flat: SequenceProblem, walk: Walk, c: int, d: int) -> int:
    """Move class `c` to `d` without a check of its memory; return the first position touched."""
    begin, end = flat.class_offsets[c], flat.class_offsets[c + 1]
    k = walk.counters[NUM_CHANGED]
    walk.changed[k], walk.changed_from[k] = c, walk.device[flat.class_ops[begin]]
    walk.counters[NUM_CHANGED] = k + 1
    place(flat, walk, c, d)
    first = len(walk.sequence)
    for i in range(begin, end):
        v = flat.class_ops[i]
        first = min(first, walk.position[v])
        if flat.has_contention:  # the senders of its inputs put other transfers on their buses
            for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
                first = min(first, walk.position[flat.instance.producer[flat.instance.in_tensors[j]]])
    return first


@njit(inline=True, allocates=False)
def move_class(flat: SequenceProblem, walk: Walk, c: int, d: int) -> int:
    """Move class `c` to device `d`; return the first position touched, or -1 if that is not allowed."""
    source = walk.device[flat.class_ops[flat.class_offsets[c]]]
    if source == d or not flat.allowed[c, d] or walk.used_bytes[d] + flat.class_bytes[c] > flat.instance.limit_bytes[d]:
        return -1
    return _log_and_place(flat, walk, c, d)


@njit(inner=True, allocates=False)
def exchange(flat: SequenceProblem, walk: Walk, v: int, d: int, num_back: int) -> int:
    """Move the class of op `v` to device `d`, and the classes of some ops on `d` to the former device of `v`.

    These ops are the first `num_back` of `walk.kept`, and all of them are allowed there. Returns the first position
    touched, or -1 (nothing changed) if a device has no room or `v` is on `d` already.
    """
    source, first = walk.device[v], len(walk.sequence)
    if source == d:
        return -1
    for k in range(num_back):
        if walk.device[walk.kept[k]] == d:  # else its class went with another op
            first = min(first, _log_and_place(flat, walk, flat.instance.class_of_op[walk.kept[k]], source))
    first = min(first, _log_and_place(flat, walk, flat.instance.class_of_op[v], d))
    limit_bytes = flat.instance.limit_bytes
    if walk.used_bytes[source] > limit_bytes[source] or walk.used_bytes[d] > limit_bytes[d]:
        undo(flat, walk)
        return -1
    return first


@njit(inner=True, allocates=False)
def move_group(flat: SequenceProblem, walk: Walk, v: int, d: int, size: int) -> int:
    """Move op `v` and up to `size` ops connected with `v` on the same device to `d`.

    Returns the first position touched, or -1 if nothing moved. Breadth first from `v`; O(edges of the group).
    """
    instance, source, queue = flat.instance, walk.device[v], walk.kept
    walk.counters[STAMP] += 1
    stamp = walk.counters[STAMP]
    queue[0], walk.mark[v] = v, stamp
    count, at, first = 1, 0, -1
    while at < count:
        x = queue[at]
        at += 1
        if walk.device[x] == source:
            moved = move_class(flat, walk, instance.class_of_op[x], d)
            if moved >= 0:
                first = moved if first < 0 else min(first, moved)
        for j in range(instance.in_offsets[x], instance.in_offsets[x + 1]):
            count = _join(walk, instance.producer[instance.in_tensors[j]], source, stamp, count, size)
        for j in range(instance.out_offsets[x], instance.out_offsets[x + 1]):
            t = instance.out_tensors[j]
            for i in range(instance.reader_offsets[t], instance.reader_offsets[t + 1]):
                count = _join(walk, instance.readers[i], source, stamp, count, size)
    return first


@njit(inline=True, allocates=False)
def _join(walk: Walk, u: int, source: int, stamp: int, count: int, size: int) -> int:
    """Add op `u` to the queue in `walk.kept` if it is new, on `source`, and fits; return the new length."""
    if count >= size or walk.mark[u] == stamp or walk.device[u] != source:
        return count
    walk.mark[u] = stamp
    walk.kept[count] = u
    return count + 1


@njit(inline=True, allocates=False)
def _save(walk: Walk, low: int, high: int) -> None:
    for i in range(low, high):
        walk.segment[i - low] = walk.sequence[i]
    walk.counters[SEGMENT_START], walk.counters[SEGMENT_END] = low, high


@njit(inner=True, allocates=False)
def window(flat: SequenceProblem, walk: Walk, v: int) -> tuple[int, int]:
    """Return the first and the last position that op `v` can take while the others keep their order."""
    low, high = 0, len(walk.sequence) - 1
    for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
        low = max(low, walk.position[flat.instance.producer[flat.instance.in_tensors[j]]] + 1)
    for j in range(flat.instance.out_offsets[v], flat.instance.out_offsets[v + 1]):
        t = flat.instance.out_tensors[j]
        for i in range(flat.instance.reader_offsets[t], flat.instance.reader_offsets[t + 1]):
            high = min(high, walk.position[flat.instance.readers[i]] - 1)
    return low, high


@njit(inline=True, allocates=False)
def shift(walk: Walk, v: int, to: int) -> int:
    """Move op `v` to position `to` inside its window, the ops between by one; return the first position touched."""
    i = int(walk.position[v])
    if i == to:
        return -1
    _save(walk, min(i, to), max(i, to) + 1)
    step = 1 if to > i else -1
    for k in range(i, to, step):
        walk.sequence[k] = walk.sequence[k + step]
        walk.position[walk.sequence[k]] = k
    walk.sequence[to] = v
    walk.position[v] = to
    return min(i, to)


@njit(inner=True, allocates=False)
def place_in_time(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Move op `v`, just sent to a new device, behind the arrival of its inputs; return the first position touched."""
    low, high = window(flat, walk, v)
    ready = ready_time(flat, walk.device, walk.finish_s, walk.arrival_s, v, walk.device[v])
    to = low
    while to < high and walk.timeline.start_s[walk.sequence[to]] < ready:
        to += 1
    if to > walk.position[v]:  # those between come one position forward
        to -= 1
    return shift(walk, v, to)


@njit(inner=True, allocates=False)
def pull(flat: SequenceProblem, walk: Walk, v: int, u: int) -> int:
    """Move op `v` and its predecessors before the earlier op `u`; return the first position touched.

    Returns -1 if `v` needs `u`. O(edges between the two positions).
    """
    low, high = int(walk.position[u]), int(walk.position[v]) + 1
    walk.counters[STAMP] += 1
    stamp = walk.counters[STAMP]
    walk.mark[v] = stamp
    for i in range(high - 1, low, -1):
        x = walk.sequence[i]
        if walk.mark[x] == stamp:
            for j in range(flat.instance.in_offsets[x], flat.instance.in_offsets[x + 1]):
                walk.mark[flat.instance.producer[flat.instance.in_tensors[j]]] = stamp
    if walk.mark[u] == stamp:
        return -1
    _save(walk, low, high)
    _partition(walk, low, high, stamp, True)
    return low


@njit(inner=True, allocates=False)
def push(flat: SequenceProblem, walk: Walk, u: int, v: int) -> int:
    """Move op `u` and its successors behind the later op `v`; return the first position touched, or -1."""
    low, high = int(walk.position[u]), int(walk.position[v]) + 1
    walk.counters[STAMP] += 1
    stamp = walk.counters[STAMP]
    walk.mark[u] = stamp
    for i in range(low, high - 1):
        x = walk.sequence[i]
        if walk.mark[x] == stamp:
            for j in range(flat.instance.out_offsets[x], flat.instance.out_offsets[x + 1]):
                t = flat.instance.out_tensors[j]
                for k in range(flat.instance.reader_offsets[t], flat.instance.reader_offsets[t + 1]):
                    walk.mark[flat.instance.readers[k]] = stamp
    if walk.mark[v] == stamp:
        return -1
    _save(walk, low, high)
    _partition(walk, low, high, stamp, False)
    return low


@njit(inner=True, allocates=False)
def _partition(walk: Walk, low: int, high: int, stamp: int, marked_first: bool) -> None:
    """Partition a stretch of the sequence by mark, stably."""
    at, num_kept = low, 0
    for i in range(low, high):
        v = walk.sequence[i]
        if (walk.mark[v] == stamp) == marked_first:
            walk.sequence[at] = v
            at += 1
        else:
            walk.kept[num_kept] = v
            num_kept += 1
    for k in range(num_kept):
        walk.sequence[at + k] = walk.kept[k]
    for i in range(low, high):
        walk.position[walk.sequence[i]] = i

"""Schedules made from their beginning, one decision after the other: the states of a search in the order of time.

The device that is free first takes an op whose inputs are known by then, or waits until the next device is free. They
are free together then, and the one of the lower number goes first: not every schedule can be made in this way.

Weights, and other short ops without inputs, are *loose*: any device could take any of them at any time. They are
offered only where they are cheap and an op that reads them is near; otherwise they run on the device of their first
reader, just before it.

Shapes
------
``V`` ops, ``C`` classes, ``D`` devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import kernel
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, link

__all__ = [
    "NOTHING",
    "WAIT",
    "Decisions",
    "Known",
    "Partial",
    "bytes_needed",
    "decide",
    "find_ready",
    "is_offered",
    "next_free",
    "rebuild",
    "what_is_paid",
    "when_ready",
]

WAIT, NOTHING = -1, -2
"""Decisions that a device idles until the next one is free, and that nothing happens."""
EAGER = 0.3
"""A loose op is offered where it costs so much more than on its cheapest device, relatively, at most."""
LATER, NEXT, READY = 0, 1, 2
"""Inputs of an op: neither done nor all ready; not all done, but ready; done or loose."""


class Known(NamedTuple):
    """What is known of the ops and devices beside their times.

    Parameters
    ----------
    weight
        ``[D]`` what idling costs for a second; 1 in all.
    price_s, least_s
        ``[V, D]`` price of each op on each device, infinity where it cannot be, and ``[V]`` the least of them.
    is_loose
        ``[V]`` True for loose ops; each has one tensor, which is read.
    by_tail
        ``[V]`` ops by falling time that must follow.
    key
        ``[V]`` random numbers: their exclusive or stands for a set of ops.
    """

    weight: NDArray[np.float64]
    price_s: NDArray[np.float64]
    least_s: NDArray[np.float64]
    is_loose: NDArray[np.bool_]
    by_tail: NDArray[np.int64]
    key: NDArray[np.uint64]


class Decisions(NamedTuple):
    """Decisions ``[N]``: behind the decision `before`, op `op`, or `WAIT`, keeps `device` busy until `finish_s`."""

    before: NDArray[np.int32]
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    finish_s: NDArray[np.float64]


class Partial(NamedTuple):
    """A partial schedule.

    Parameters
    ----------
    is_done, device, finish_s
        ``[V]``; device and finish of the ops that are done.
    stage
        ``[V]`` `LATER`, `NEXT` or `READY`.
    device_of_class
        ``[C]``, or -1.
    free_s, busy_s, used_bytes
        ``[D]`` when each device is free, how long it ran ops until then, and the memory of its classes.
    """

    is_done: NDArray[np.bool_]
    device: NDArray[np.int64]
    finish_s: NDArray[np.float64]
    stage: NDArray[np.int64]
    device_of_class: NDArray[np.int64]
    free_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]
    used_bytes: NDArray[np.float64]


@kernel
def rebuild(flat: SequenceProblem, partial: Partial, decisions: Decisions, last: int) -> None:
    """Load the partial schedule that ends with decision `last`; the empty one for -1. O(V + C + D)."""
    partial.is_done[:] = False
    partial.device_of_class[:] = -1
    partial.free_s[:] = 0.0
    partial.busy_s[:] = 0.0
    partial.used_bytes[:] = 0.0
    while last >= 0:
        v, d, finish_s = decisions.op[last], decisions.device[last], decisions.finish_s[last]
        if v == WAIT:
            partial.free_s[d] = max(partial.free_s[d], finish_s)
        else:
            _put(flat, partial, v, d, finish_s)
        last = decisions.before[last]


@kernel
def decide(flat: SequenceProblem, partial: Partial, decisions: Decisions, at: int, before: int, v: int, d: int) -> int:
    """Take a decision behind `before`, write it down at `at`, and return where the next one goes.

    The loose inputs of op `v` that are not done run just before it, each as a decision of its own.
    """
    if v == NOTHING:
        return at
    if v == WAIT:
        partial.free_s[d] = next_free(partial, d)
        return _write(decisions, at, before, v, d, partial.free_s[d])
    for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
        u = flat.instance.producer[flat.instance.in_tensors[j]]
        if not partial.is_done[u]:
            _put(flat, partial, u, d, partial.free_s[d] + flat.time_s[u, d])
            at = _write(decisions, at, before, u, d, partial.finish_s[u])
            before = at - 1
    _put(flat, partial, v, d, when_ready(flat, partial, v, d, partial.free_s[d]) + flat.time_s[v, d])
    return _write(decisions, at, before, v, d, partial.finish_s[v])


@kernel
def _put(flat: SequenceProblem, partial: Partial, v: int, d: int, finish_s: float) -> None:
    c = flat.instance.class_of_op[v]
    if partial.device_of_class[c] < 0:
        partial.device_of_class[c] = d
        partial.used_bytes[d] += flat.class_bytes[c]
    partial.is_done[v] = True
    partial.device[v], partial.finish_s[v] = d, finish_s
    partial.busy_s[d] += flat.time_s[v, d]
    partial.free_s[d] = max(partial.free_s[d], finish_s)


@kernel
def _write(decisions: Decisions, at: int, before: int, v: int, d: int, finish_s: float) -> int:
    decisions.before[at], decisions.op[at] = before, v
    decisions.device[at], decisions.finish_s[at] = d, finish_s
    return at + 1


@kernel
def next_free(partial: Partial, d: int) -> float:
    """Return when the next device after `d` is free; infinity if none is."""
    least = np.inf
    for e in range(len(partial.free_s)):
        if partial.free_s[d] < partial.free_s[e] < least:
            least = partial.free_s[e]
    return float(least)


@kernel
def when_ready(flat: SequenceProblem, partial: Partial, v: int, d: int, at_s: float) -> float:
    """Return when those inputs of `v` that are done are on device `d`, or `at_s` if that is later."""
    for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
        t = flat.instance.in_tensors[j]
        u = flat.instance.producer[t]
        if partial.is_done[u]:
            a = partial.device[u]
            at_s = max(at_s, partial.finish_s[u] + (link(flat, t, a, d) if a != d else 0.0))
    return at_s


@kernel
def bytes_needed(flat: SequenceProblem, partial: Partial, v: int, d: int, more_bytes: float) -> float:
    """Return the bytes that op `v` adds to device `d`, which takes `more_bytes` already; -1 if it cannot be there."""
    c = flat.instance.class_of_op[v]
    if partial.device_of_class[c] >= 0:
        return 0.0 if partial.device_of_class[c] == d else -1.0
    needed = float(flat.class_bytes[c])
    fits = partial.used_bytes[d] + more_bytes + needed <= flat.instance.limit_bytes[d]
    return needed if flat.allowed[c, d] and fits else -1.0


@kernel
def find_ready(flat: SequenceProblem, known: Known, partial: Partial) -> None:
    """Fill in the stages. O(V + E)."""
    for v in flat.instance.order:
        stage = READY
        for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
            u = flat.instance.producer[flat.instance.in_tensors[j]]
            if not partial.is_done[u] and not known.is_loose[u]:
                stage = min(stage, NEXT if partial.stage[u] == READY else LATER)
        partial.stage[v] = stage


@kernel
def is_offered(flat: SequenceProblem, known: Known, partial: Partial, v: int, d: int) -> bool:
    """Return True if op `v` is one that device `d` may take next if it can be there: by inputs and cost."""
    if partial.is_done[v] or partial.stage[v] != READY:
        return False
    if not known.is_loose[v]:
        return True
    if known.price_s[v, d] > (1 + EAGER) * known.least_s[v]:
        return False
    t = flat.instance.out_tensors[flat.instance.out_offsets[v]]
    for i in range(flat.instance.reader_offsets[t], flat.instance.reader_offsets[t + 1]):
        w = flat.instance.readers[i]
        if not partial.is_done[w] and partial.stage[w] != LATER:
            return True
    return False


@kernel
def what_is_paid(flat: SequenceProblem, known: Known, partial: Partial) -> tuple[float, float]:
    """Return what the makespan costs at least, and the weighted time that is over, in seconds. O(V + D).

    The cost is what is paid for ops that are done, for idling until now, and at least for the others; and where much
    must follow some of the others, all of them must end so much earlier.
    """
    cost_s, now_s, later_s = 0.0, 0.0, 0.0
    for d in range(len(partial.free_s)):
        now_s += known.weight[d] * partial.free_s[d]
        cost_s += known.weight[d] * (partial.free_s[d] - partial.busy_s[d])
    for v in range(len(partial.is_done)):
        cost_s += known.price_s[v, partial.device[v]] if partial.is_done[v] else known.least_s[v]
    for v in known.by_tail:
        if not partial.is_done[v]:
            later_s += known.least_s[v]
            cost_s = max(cost_s, now_s + later_s + flat.tail_s[v])
    return cost_s, now_s

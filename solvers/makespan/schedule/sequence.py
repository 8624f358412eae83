r"""Placement and order as one topological sequence, and its schedule in linear time.

A sequence is a topological order of the ops. Every device runs its ops in the order of the sequence, each as soon as
the device is free and the inputs have arrived. This is the strict dispatch of :class:`~placekit.objectives.Makespan`
with the position as the step, and it never deadlocks.

Claim: some sequence gives an optimal schedule. Reason: sorted by start time (ties in topological order), the ops of any
schedule form a sequence whose schedule ends no op later. Non-delay schedules alone need not contain the optimum.

One pass over the sequence computes the schedule, without an event queue:
:math:`s_v = \max(free_{d(v)}, \max_u arrival(u, d(v)))`.

With contention the bus of a device takes the tensors in the order in which their producers stand in the sequence, and
sends each to its receivers in the order of :mod:`placekit.objectives.makespan.objective`.

Shapes
------
``V`` ops, ``T`` tensors, ``C`` classes, ``D`` devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.kernels import njit
from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.ranks import upward_rank


class SequenceProblem(NamedTuple):
    """Makespan problem as arrays for the search kernels."""

    instance: MakespanInstance  # graph, ranks and limits
    time_s: NDArray[np.float64]  # ``[V, D]`` seconds of each op on each device
    link_s: NDArray[np.float64]  # ``[T, D]`` seconds of each tensor on the own link of each device
    # ``[V]`` seconds that must follow the end of each op: its longest path with every op on its fastest device
    tail_s: NDArray[np.float64]
    # class_offsets, class_ops: CSR lists of the ops of each class
    class_offsets: NDArray[np.int64]
    class_ops: NDArray[np.int64]
    class_bytes: NDArray[np.float64]  # ``[C]`` bytes
    allowed: NDArray[np.bool_]  # ``[C, D]`` devices that each class may use, and fits on alone
    has_contention: bool  # True if a device sends one transfer at a time
    # True if devices have direct links. It is tested first, so that the search without links loses no time.
    has_links: bool
    # release_s, after_s: ``[V, D]`` seconds before which an op cannot start on a device, and seconds that follow its
    # end; zeros but for a part of a schedule (:mod:`placekit.solvers.makespan.decomposition.stretch`)
    release_s: NDArray[np.float64]
    after_s: NDArray[np.float64]
    # free_s, then_s: ``[D]`` the same of devices: busy until, and what follows their last op
    free_s: NDArray[np.float64]
    then_s: NDArray[np.float64]


class Timeline(NamedTuple):
    """The schedule of a sequence."""

    finish_s: NDArray[np.float64]  # ``[V]`` end of each op
    start_s: NDArray[np.float64]  # ``[V]`` start of each op
    before: NDArray[np.int64]  # ``[V]`` op that the device ran just before each op, or -1
    # ``[T, D]`` arrival of each tensor at each device that reads it; kept only with contention, else ``[0, D]``
    arrival_s: NDArray[np.float64]
    # free_s, bus_s: ``[V // STRIDE + 1, D]`` when device and bus are free before every `STRIDE`-th position
    free_s: NDArray[np.float64]
    bus_s: NDArray[np.float64]
    # ``[V // STRIDE + 1, D]`` op that each device ran last before every `STRIDE`-th position, or -1
    last: NDArray[np.int64]
    # now_free_s, now_bus_s, now_last: ``[D]`` scratch: the same at the position that is looked at
    now_free_s: NDArray[np.float64]
    now_bus_s: NDArray[np.float64]
    now_last: NDArray[np.int64]


STRIDE = 32
"""Positions between two snapshots of the devices: what a partial evaluation repeats at most."""


def sequence_problem(problem: Problem, *, has_contention: bool) -> SequenceProblem:
    """Return the arrays of `problem`. O((ops + edges) log edges + (ops + tensors) * devices)."""
    instance = instance_of(problem)
    classes, num_classes = instance.class_of_op, problem.num_classes
    class_bytes = sum_by(classes, instance.memory_bytes, num_classes)
    first = np.unique(classes, return_index=True)[1]
    fastest_s = np.where(instance.is_supported, instance.op_time_s, np.inf).min(axis=1)
    fastest_s = np.where(np.isfinite(fastest_s), fastest_s, 0.0)
    path_s = upward_rank(instance, fastest_s, np.zeros(len(instance.producer)))
    return SequenceProblem(
        instance=instance,
        time_s=np.ascontiguousarray(instance.op_time_s[:, instance.kind]),
        link_s=np.ascontiguousarray(instance.transfer_s[:, instance.kind]),
        tail_s=path_s - fastest_s,
        class_offsets=np.searchsorted(np.sort(classes), np.arange(num_classes + 1)).astype(np.int64),
        class_ops=np.argsort(classes, kind="stable").astype(np.int64),
        class_bytes=class_bytes,
        allowed=instance.allowed[first] & (class_bytes[:, None] <= instance.limit_bytes),
        has_contention=has_contention,
        has_links=problem.has_direct_links,
        release_s=np.zeros((problem.graph.num_ops, problem.platform.num_devices)),
        after_s=np.zeros((problem.graph.num_ops, problem.platform.num_devices)),
        free_s=np.zeros(problem.platform.num_devices),
        then_s=np.zeros(problem.platform.num_devices),
    )


def empty_timeline(flat: SequenceProblem) -> Timeline:
    """Return arrays of the right shapes, to be filled by `decode`."""
    num_ops, num_devices = flat.time_s.shape
    num_rows = num_ops // STRIDE + 1
    return Timeline(
        finish_s=np.zeros(num_ops),
        start_s=np.zeros(num_ops),
        before=np.full(num_ops, -1, dtype=np.int64),
        arrival_s=np.zeros((len(flat.instance.producer) if flat.has_contention else 0, num_devices)),
        free_s=np.zeros((num_rows, num_devices)),
        bus_s=np.zeros((num_rows, num_devices)),
        last=np.full((num_rows, num_devices), -1, dtype=np.int64),
        now_free_s=np.zeros(num_devices),
        now_bus_s=np.zeros(num_devices),
        now_last=np.full(num_devices, -1, dtype=np.int64),
    )


@njit(inline=True, allocates=False)
def ready_time(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    finish_s: NDArray[np.float64],
    arrival_s: NDArray[np.float64],
    v: int,
    d: int,
) -> float:
    """Return when the inputs of op `v` would be on device `d`, in seconds.

    With contention the arrivals known are those of tensors that some op on `d` reads; of the others the transfer
    alone counts.
    """
    ready = float(flat.release_s[v, d])
    for j in range(flat.instance.in_offsets[v], flat.instance.in_offsets[v + 1]):
        t = flat.instance.in_tensors[j]
        u = flat.instance.producer[t]
        a = device[u]
        at = finish_s[u]
        if a != d:
            at = arrival_s[t, d] if flat.has_contention and arrival_s[t, d] >= 0.0 else at + (link(flat, t, a, d))
        ready = max(ready, at)
    return ready


@njit(inline=True, allocates=False)
def link(flat: SequenceProblem, t: int, a: int, b: int) -> float:
    """Return the seconds of tensor `t` from device `a` to another device `b`."""
    instance = flat.instance
    if flat.has_links:
        direct = instance.link[instance.group[a], instance.group[b]]
        if direct >= 0:
            return float(instance.direct_s[t, direct])
    return float(flat.link_s[t, a] + flat.link_s[t, b])


@njit(inline=True, allocates=False)
def send(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    v: int,
    finish: float,
    bus: NDArray[np.float64],
    arrival_s: NDArray[np.float64],
) -> None:
    """Put what op `v` wrote on the bus of its device: tensors by index, receivers by rank; -1 = not sent there."""
    a = device[v]
    for j in range(flat.instance.out_offsets[v], flat.instance.out_offsets[v + 1]):
        t = flat.instance.out_tensors[j]
        arrival_s[t] = -1.0
        for i in range(flat.instance.reader_offsets[t], flat.instance.reader_offsets[t + 1]):
            d = device[flat.instance.readers_in_turn[i]]
            if d == a:
                arrival_s[t, d] = 0.0
            elif arrival_s[t, d] < 0.0:
                bus[a] = max(bus[a], finish) + link(flat, t, a, d)
                arrival_s[t, d] = bus[a]


@njit(inner=True, allocates=False)
def decode(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    timeline: Timeline,
    first: int,
) -> float:
    """Fill `timeline` from position `first` on; return the makespan in seconds. O(ops + edges) behind `first`.

    Parameters
    ----------
    device
        ``[V]`` device of every op.
    sequence
        ``[V]`` a topological order.
    first
        Nothing before this position has changed since `timeline` was filled.
    """
    begin_at(flat, device, sequence, timeline, first)
    free, bus, last = timeline.now_free_s, timeline.now_bus_s, timeline.now_last
    for i in range(first, len(sequence)):
        if i % STRIDE == 0:
            for d in range(len(free)):
                timeline.free_s[i // STRIDE, d] = free[d]
                timeline.bus_s[i // STRIDE, d] = bus[d]
                timeline.last[i // STRIDE, d] = last[d]
        v = sequence[i]
        d = device[v]
        ready = ready_time(flat, device, timeline.finish_s, timeline.arrival_s, v, d)
        start = max(ready, free[d])
        timeline.start_s[v] = start
        timeline.finish_s[v] = start + flat.time_s[v, d]
        timeline.before[v] = last[d]
        free[d] = timeline.finish_s[v]
        last[d] = v
        if flat.has_contention:
            send(flat, device, v, free[d], bus, timeline.arrival_s)
    return makespan(flat, device, timeline.finish_s, free)


@njit(inner=True, allocates=False)
def begin_at(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    timeline: Timeline,
    first: int,
) -> None:
    """Set the scratch of `timeline` to what holds before position `first`, where nothing has changed."""
    row = first // STRIDE
    free, bus, last = timeline.now_free_s, timeline.now_bus_s, timeline.now_last
    for d in range(len(free)):
        free[d] = flat.free_s[d] if row == 0 else timeline.free_s[row, d]
        bus[d] = 0.0 if row == 0 else timeline.bus_s[row, d]
        last[d] = -1 if row == 0 else timeline.last[row, d]
    for i in range(row * STRIDE, first):
        v = sequence[i]
        free[device[v]] = timeline.finish_s[v]
        last[device[v]] = v
        if flat.has_contention:
            send(flat, device, v, timeline.finish_s[v], bus, timeline.arrival_s)


@njit(inline=True, allocates=False)
def makespan(
    flat: SequenceProblem, device: NDArray[np.int64], finish_s: NDArray[np.float64], free: NDArray[np.float64]
) -> float:
    """Return the makespan in seconds from when the ops end and when the devices are free. O(ops)."""
    value = 0.0
    for d in range(len(free)):
        value = max(value, float(free[d] + flat.then_s[d]))
    for v in range(len(device)):
        value = max(value, finish_s[v] + flat.after_s[v, device[v]])
    return value


@njit(allocates=False)
def time_to_end(
    flat: SequenceProblem,
    # device, sequence: ``[V]`` a schedule, without contention
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    to_end_s: NDArray[np.float64],
    then_s: NDArray[np.float64],  # ``[D]`` scratch
    end: int,  # nothing behind this position has changed since `to_end_s` was filled
) -> None:
    """Fill `to_end_s` ``[V]`` for the positions before `end`: seconds from the start of an op to the end of all.

    That is the longest time along transfers, and along the order of every device. O(ops + edges) before `end`.
    """
    instance = flat.instance
    next_on(flat, device, sequence, to_end_s, then_s, end)
    for i in range(end - 1, -1, -1):
        v = sequence[i]
        d = device[v]
        behind = max(then_s[d], flat.after_s[v, d])
        for j in range(instance.out_offsets[v], instance.out_offsets[v + 1]):
            t = instance.out_tensors[j]
            for k in range(instance.reader_offsets[t], instance.reader_offsets[t + 1]):
                w = instance.readers[k]
                e = device[w]
                behind = max(behind, to_end_s[w] + (link(flat, t, d, e) if e != d else 0.0))
        to_end_s[v] = flat.time_s[v, d] + behind
        then_s[d] = to_end_s[v]


@njit(inline=True, allocates=False)
def next_on(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    to_end_s: NDArray[np.float64],
    then_s: NDArray[np.float64],
    end: int,
) -> None:
    """Fill `then_s` ``[D]`` with the time to the end from the first op of each device at or behind position `end`."""
    num_left = len(then_s)
    for d in range(num_left):
        then_s[d] = -1.0
    for i in range(end, len(sequence)):
        v = sequence[i]
        d = device[v]
        if then_s[d] < 0.0:
            then_s[d] = to_end_s[v]
            num_left -= 1
            if num_left == 0:
                return
    for d in range(len(then_s)):
        if then_s[d] < 0.0:
            then_s[d] = flat.then_s[d]

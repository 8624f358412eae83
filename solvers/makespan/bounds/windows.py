r"""Earliest starts, latest ends and possible devices of every op, if the makespan is at most a given T.

**Head** :math:`r_{vd}`: no schedule starts op v on device d earlier. Ops are taken in topological order. For one
(v, d), let :math:`B(u, g)` be the least time from the end of an ancestor u on device g to the start of v on d. Along
every path from u to v the ops take their times, and every change of device costs its delay, so

.. math:: B(u, g) = \max_{u \to w} \min_f \bigl( c_{uw}(g, f) + p_{wf} + B(w, f) \bigr), \qquad
          u \to v \text{ contributes } c_{uv}(g, d).

1. For every ancestor u, v on d starts no earlier than :math:`\min_g (r_{ug} + p_{ug} + B(u, g))`.
2. Let :math:`R_u` be the same minimum over :math:`g \ne d`. If v starts before :math:`R_u`, then u runs on d.
3. So the ancestors with :math:`R_u > \tau` either delay v beyond :math:`\tau`, or all of them run on d before v, one
   after another and none before its head.
4. With the ancestors sorted by falling R, v starts no earlier than

.. math:: \min_k \max \bigl( R_{(k+1)},\; \text{one-machine makespan of } \{(1), \ldots, (k)\} \text{ on } d \bigr),

because the one-machine makespan of more jobs is no smaller. Ancestors in the class of v have :math:`R = \infty`.
This is the bound of Papadimitriou and Yannakakis for unlimited duplication, extended to ops that run once, on unequal
devices. **Tails** are the heads of the reversed graph: a schedule read backwards is a schedule of that graph.

**Propagation** with a limit T. An op cannot run on d if head + time + tail exceeds T. All ops of a class run on one
device. So d is closed for the class if the preemptive one-machine bound of these ops (heads, times, tails) exceeds T.
All of this holds in every schedule of makespan at most T, and may be repeated. A class without a device proves that
there is no such schedule.

Notes
-----
One head costs O(ancestors + edges between them * devices**2). At most the `MAX_ANCESTORS` nearest ancestors are used,
and so few that all heads together cost about `MAX_LOOKS`; fewer ancestors only weaken the bound. In all:
O(ops * devices * min(edges, limit) * devices**2), with at most three devices of each group
(:func:`~placekit.solvers.makespan.schedule.tasks.representatives`).

References
----------
Papadimitriou and Yannakakis, "Towards an architecture-independent analysis of parallel algorithms", SIAM J. Computing
19(2), 1990. Carlier, "The one-machine sequencing problem", EJOR 11, 1982.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, csr_lists
from placekit.kernels import njit
from placekit.objectives.makespan.heaps import pop, push
from placekit.solve.stop import is_wanted
from placekit.solvers.makespan.schedule.tasks import Tasks, representatives

MAX_ANCESTORS = 400
"""Ancestors of an op that its head looks at, nearest first."""
MAX_LOOKS = 40_000_000
"""Triples of devices at ancestors, of all ops together, a second or two: nothing looks at the clock between them."""
MAX_ROUNDS = 20
"""Propagation rounds at most; the fixed point is rarely further away."""
SLACK = 1e-9
"""Relative; sums of the proof and of the judge are rounded differently, so a limit is exceeded only beyond this."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Heads, tails and open devices of ops in schedules of makespan at most a limit."""

    # the tasks on representative devices (:func:`~placekit.solvers.makespan.schedule.tasks.representatives`), devices
    # closed as the limit demands
    tasks: Tasks
    # head_s, tail_s: ``[V, D]`` least seconds before the start, and after the end, of each op on each representative
    # device; infinity where the op cannot run
    head_s: NDArray[np.float64]
    tail_s: NDArray[np.float64]

    @property
    def path_s(self) -> float:
        """Longest ``head + time + tail``, each op on its best device: no makespan is shorter."""
        through = self.head_s + self.tasks.time_s + self.tail_s
        return float(through.min(axis=1).max())

    def by_group(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return times, heads and tails ``[V, groups]``, the least over the devices of each group."""
        groups = [self.tasks.group == g for g in range(len(self.tasks.group_size))]
        time_s, head_s, tail_s = (
            np.stack([times[:, group].min(axis=1) for group in groups], axis=1)
            for times in (self.tasks.time_s, self.head_s, self.tail_s)
        )
        return time_s, head_s, tail_s


def narrow(
    tasks: Tasks,  # the tasks, with all devices or with representatives
    limit_s: float = np.inf,  # makespan T; infinity for the windows of all schedules
) -> Windows | None:
    """Propagate a limit on the makespan until nothing changes, or until the solve has to end.

    Returns
    -------
    Windows | None
        None if no schedule has a makespan of at most `limit_s`.
    """
    tasks = representatives(tasks)
    most_s = limit_s * (1 + SLACK)
    delay = tasks.pair_delay_s()
    along = _Lists.of(tasks.senders, tasks.receivers, delay, tasks.num_ops)
    last = tasks.num_ops - 1  # read backwards, op i becomes op last - i, and receivers send
    against = _Lists.of(last - tasks.receivers, last - tasks.senders, delay.transpose(0, 2, 1), tasks.num_ops)
    most = min(MAX_ANCESTORS, max(1, MAX_LOOKS // max(1, tasks.num_ops * tasks.num_devices**3)))
    for _ in range(MAX_ROUNDS):
        time_s, label = tasks.time_s, tasks.class_of_op
        head = _heads(along, time_s, label, most)
        tail = np.zeros_like(head)  # what a solve that has to end is left with: less is known, and all of it holds
        if is_wanted():
            turned = time_s[::-1].copy(), label[::-1].copy()
            tail = np.ascontiguousarray(_heads(against, *turned, most)[::-1])
        if np.isfinite(limit_s):
            tasks = _close(tasks, np.isfinite(time_s) & (head + time_s + tail <= most_s), head, tail, most_s)
        is_open = np.isfinite(tasks.time_s)
        if not is_open.any(axis=1).all():
            return None
        head, tail = np.where(is_open, head, np.inf), np.where(is_open, tail, np.inf)
        if (is_open == np.isfinite(time_s)).all() or not is_wanted():
            break
    return Windows(tasks, head, tail)


def _close(
    tasks: Tasks, is_open: NDArray[np.bool_], head: NDArray[np.float64], tail: NDArray[np.float64], most_s: float
) -> Tasks:
    """Close the devices on which an op of a class, or the whole class, is too late or does not fit."""
    class_bytes = np.bincount(tasks.class_of_op, weights=tasks.memory_bytes, minlength=tasks.num_classes)
    class_open = (class_bytes[:, None] <= tasks.limit_bytes) & all_by(tasks.class_of_op, is_open, tasks.num_classes)
    offsets, by_class = csr_lists(tasks.class_of_op, np.arange(len(tasks.class_of_op)), tasks.num_classes)
    for c in np.flatnonzero(np.diff(offsets) > 1).tolist():
        ops = by_class[offsets[c] : offsets[c + 1]]
        for d in np.flatnonzero(class_open[c]).tolist():
            class_open[c, d] = _one_machine(head[ops, d], tasks.time_s[ops, d], tail[ops, d]) <= most_s
    return replace(tasks, time_s=np.where(class_open[tasks.class_of_op], tasks.time_s, np.inf))


class _Lists(NamedTuple):
    """Edges in both directions: lists of predecessors and successors with the delay of every pair of devices."""

    in_offsets: NDArray[np.int64]
    before: NDArray[np.int64]
    out_offsets: NDArray[np.int64]
    after: NDArray[np.int64]
    delay_s: NDArray[np.float64]
    """``[E, D, D]`` in the order of `after`."""

    @classmethod
    def of(
        cls, senders: NDArray[np.int64], receivers: NDArray[np.int64], delay_s: NDArray[np.float64], num_ops: int
    ) -> _Lists:
        in_offsets, before = csr_lists(receivers, senders, num_ops)
        out_offsets, by_sender = csr_lists(senders, np.arange(len(senders)), num_ops)
        return cls(in_offsets, before, out_offsets, receivers[by_sender], np.ascontiguousarray(delay_s[by_sender]))


@njit(inner=True)
def _argsort(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the indices that sort the first `count` values. Numba's own argsort takes seconds to compile."""
    keys, heap = np.empty(count), np.empty(count, dtype=np.int64)
    for i in range(count):
        push(keys, heap, 0, i, values[i], i)
    order = np.empty(count, dtype=np.int64)
    for i in range(count):
        order[i] = heap[0]
        pop(keys, heap, 0, count - 1 - i)
    return order


@njit
def _one_machine(head: NDArray[np.float64], time: NDArray[np.float64], tail: NDArray[np.float64]) -> float:
    """Return the least makespan of jobs on one machine if they may be preempted (Jackson's rule): O(n**2)."""
    num_jobs = len(head)
    order = _argsort(head, num_jobs)
    left = time.copy()
    is_in = np.zeros(num_jobs, dtype=np.bool_)
    now, worst, at, done = 0.0, 0.0, 0, 0
    while done < num_jobs:
        best = -1
        while at < num_jobs and head[order[at]] <= now:
            is_in[order[at]] = True
            at += 1
        for j in range(num_jobs):
            if is_in[j] and (best < 0 or tail[j] > tail[best]):
                best = j
        if best < 0:
            now = head[order[at]]
            continue
        run = left[best]
        if at < num_jobs:
            run = min(run, head[order[at]] - now)
        if run >= left[best]:
            is_in[best] = False
            done += 1
            now += left[best]
            worst = max(worst, now + tail[best])
        else:
            left[best] -= run
            now = head[order[at]]
    return worst


@njit
def _heads(
    lists: _Lists, time_s: NDArray[np.float64], label: NDArray[np.int64], max_ancestors: int
) -> NDArray[np.float64]:
    """Return the heads that the module docstring defines."""
    num_ops, num_devices = time_s.shape
    head = np.full((num_ops, num_devices), np.inf)
    reach = np.full((num_ops, num_devices), -np.inf)  # B
    stamp = np.full(num_ops, -1)
    ancestors = np.empty(num_ops, dtype=np.int64)
    near = np.empty(num_ops, dtype=np.int64)
    remote, local, value = np.empty(num_ops), np.empty(num_ops), np.empty(num_ops)
    place = np.empty(num_ops, dtype=np.int64)
    for v in range(num_ops):
        # ancestors, nearest first; then in falling topological order
        count, at = 0, -1
        stamp[v] = v
        while at < count < max_ancestors:
            x = v if at < 0 else ancestors[at]
            for i in range(lists.in_offsets[x], lists.in_offsets[x + 1]):
                u = lists.before[i]
                if stamp[u] != v and count < max_ancestors:
                    stamp[u] = v
                    ancestors[count] = u
                    count += 1
            at += 1
        for i in range(count):
            value[i] = -ancestors[i]
        by_place = _argsort(value, count)
        for i in range(count):
            near[i] = ancestors[by_place[i]]
        for d in range(num_devices):
            if not np.isfinite(time_s[v, d]):
                continue
            path = 0.0
            for i in range(count):
                u = near[i]
                remote[i] = np.inf
                here = np.inf
                for g in range(num_devices):
                    reach[u, g] = -np.inf
                    if not np.isfinite(time_s[u, g]):
                        continue
                    least = -np.inf
                    for e in range(lists.out_offsets[u], lists.out_offsets[u + 1]):
                        w = lists.after[e]
                        if stamp[w] != v:
                            continue
                        if w == v:
                            most = lists.delay_s[e, g, d]
                        else:
                            most = np.inf
                            for f in range(num_devices):
                                if (
                                    np.isfinite(time_s[w, f])
                                    and (f == g or label[w] != label[u])
                                    and (f == d or label[w] != label[v])
                                ):
                                    most = min(most, lists.delay_s[e, g, f] + time_s[w, f] + reach[w, f])
                        least = max(least, most)
                    reach[u, g] = least
                    arrival = head[u, g] + time_s[u, g] + least
                    if g == d:
                        here = arrival
                    elif label[u] != label[v]:
                        remote[i] = min(remote[i], arrival)
                path = max(path, min(here, remote[i]))
            for i in range(count):
                value[i] = -remote[i]
            by_remote = _argsort(value, count)
            for k in range(count):
                place[by_remote[k]] = k
            for i in range(count):
                local[i] = head[near[i], d]
            by_head = _argsort(local, count)
            # the first k whose one-machine makespan is not below the next R
            low, high = 0, count
            serial_low, serial_high = 0.0, np.inf
            while low <= high:
                k = (low + high) // 2
                busy = 0.0
                for j in range(count):
                    i = by_head[j]
                    if place[i] < k:
                        busy = max(busy, local[i]) + time_s[near[i], d]
                if k == count or busy >= remote[by_remote[k]]:
                    serial_high = busy
                    high = k - 1
                else:
                    serial_low = remote[by_remote[k]]
                    low = k + 1
            split = serial_high if low == 0 else min(serial_low, serial_high)
            head[v, d] = max(path, split)
    return head

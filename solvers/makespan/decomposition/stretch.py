r"""A stretch of the sequence as a problem of its own: the ops before and after the stretch stay fixed.

The ops at the positions from `low` to `high` may change device and order; all others keep both. Let :math:`H_w` be the
longest time from the start of a later op w to the end of the schedule, along transfers and the order of every device.
Then a change is judged by the stretch alone:

.. math::

   s_v \ge \max_{u \text{ before}} \bigl( f_u + c_{uv}(d_u, d_v) \bigr), \qquad
   T = \max \Bigl( \max_{v, w} \bigl( f_v + c_{vw}(d_v, d_w) + H_w \bigr),\;
                   \max_d \bigl( free_d + H_{next(d)} \bigr) \Bigr)

with v in the stretch, u and w outside, :math:`free_d` the time at which device d is done with the stretch, and next(d)
the op that d runs next. This T is exactly the length of the longest path through the stretch, and other paths do not
change. A critical path lasts from the beginning to the end. So it passes every stretch of a schedule that is sorted by
time, unless a transfer spans the stretch. What a stretch gains the schedule gains, up to the next longest path.

A proposal costs O(ops and edges of the stretch). Problems with contention have no stretches: a transfer of an op in the
stretch could delay the transfer of a later op.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first, sum_by
from placekit.kernels import njit
from placekit.objectives.makespan.arrays import csr_offsets, frozen
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, link, time_to_end


class Stretch(NamedTuple):
    """Free ops, and their problem."""

    ops: NDArray[np.int64]  # ``[W]`` the free ops, in the order of the sequence; op i of `flat` is ``ops[i]``
    flat: SequenceProblem  # their problem


def cut_stretch(
    flat: SequenceProblem,  # the whole problem, without contention
    # device, sequence, finish_s: ``[V]`` a schedule of it
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    finish_s: NDArray[np.float64],
    low: int,
    high: int,
) -> Stretch:
    """Return the problem of the positions from `low` to `high` (exclusive).

    A class that has ops outside keeps its device. Memory limits are reduced by the bytes outside. O(ops + tensors +
    edges).
    """
    instance = flat.instance
    num_ops, num_devices = flat.time_s.shape
    ops = sequence[low:high]
    number = np.full(num_ops, -1, dtype=np.int64)
    number[ops] = np.arange(len(ops))
    to_end_s = np.zeros(num_ops)
    time_to_end(flat, device, sequence, to_end_s, np.zeros(num_devices), num_ops)
    release_s, after_s, free_s, then_s = _borders(flat, device, sequence, finish_s, to_end_s, low, high)

    reader_tensor = instance.tensor_of_reader
    inside = (number[instance.producer[reader_tensor]] >= 0) & (number[instance.readers] >= 0)
    tensors, of_tensor = np.unique(reader_tensor[inside], return_inverse=True)
    readers = number[instance.readers[inside]]
    producer = number[instance.producer[tensors]]
    by_reader = np.lexsort((of_tensor, readers))

    class_of_op = number_by_first(instance.class_of_op[ops])
    num_classes = int(class_of_op.max()) + 1
    first = np.unique(class_of_op, return_index=True)[1]
    sizes = np.bincount(instance.class_of_op, minlength=len(flat.class_bytes))[instance.class_of_op[ops[first]]]
    allowed = flat.allowed[instance.class_of_op[ops[first]]]
    is_split = np.bincount(class_of_op) < sizes
    allowed[is_split] = np.arange(num_devices) == device[ops[first[is_split]], None]
    memory_bytes = instance.memory_bytes[ops]
    elsewhere = np.bincount(device, weights=np.where(number < 0, instance.memory_bytes, 0.0), minlength=num_devices)
    return Stretch(
        ops,
        SequenceProblem(
            instance=frozen(
                instance._replace(
                    op_time_s=instance.op_time_s[ops],
                    is_supported=instance.is_supported[ops],
                    allowed=instance.allowed[ops],
                    class_of_op=class_of_op,
                    memory_bytes=memory_bytes,
                    limit_bytes=instance.limit_bytes - elsewhere,
                    out_offsets=csr_offsets(producer, len(ops)),
                    out_tensors=np.argsort(producer, kind="stable"),
                    in_offsets=csr_offsets(readers, len(ops)),
                    in_tensors=of_tensor[by_reader],
                    producer=producer,
                    reader_offsets=csr_offsets(of_tensor, len(tensors)),
                    readers=readers,
                    readers_in_turn=readers,  # a stretch knows no contention
                    transfer_s=instance.transfer_s[tensors],
                    direct_s=instance.direct_s[tensors],
                )
            ),
            time_s=flat.time_s[ops],
            link_s=flat.link_s[tensors],
            tail_s=flat.tail_s[ops],
            class_offsets=csr_offsets(class_of_op, num_classes),
            class_ops=np.argsort(class_of_op, kind="stable"),
            class_bytes=sum_by(class_of_op, memory_bytes, num_classes),
            allowed=allowed,
            has_contention=False,
            has_links=flat.has_links,
            release_s=release_s,
            after_s=after_s,
            free_s=free_s,
            then_s=then_s,
        ),
    )


@njit
def _borders(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    sequence: NDArray[np.int64],
    finish_s: NDArray[np.float64],
    to_end_s: NDArray[np.float64],
    low: int,
    high: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return what the schedule before and after the stretch asks of its ops and of its devices, in seconds.

    1. ``[W, D]`` when the inputs from earlier ops are on each device, ops in the order of the sequence.
    2. ``[W, D]`` least time after the end of an op there.
    3. ``[D]`` when each device is done with earlier ops.
    4. ``[D]`` least time after the last op of the stretch on each device.
    """
    num_devices = flat.time_s.shape[1]
    instance = flat.instance
    release, after = np.zeros((high - low, num_devices)), np.zeros((high - low, num_devices))
    free, then = np.zeros(num_devices), np.zeros(num_devices)
    is_inside = np.zeros(len(sequence), dtype=np.bool_)
    is_inside[sequence[low:high]] = True
    for i in range(low):
        free[device[sequence[i]]] = finish_s[sequence[i]]
    for i in range(len(sequence) - 1, high - 1, -1):
        then[device[sequence[i]]] = to_end_s[sequence[i]]
    for i in range(high - low):
        v = sequence[low + i]
        for j in range(instance.in_offsets[v], instance.in_offsets[v + 1]):
            t = instance.in_tensors[j]
            u = instance.producer[t]
            if not is_inside[u]:
                for d in range(num_devices):
                    arrival = finish_s[u] + (link(flat, t, device[u], d) if device[u] != d else 0.0)
                    release[i, d] = max(release[i, d], arrival)
        for j in range(instance.out_offsets[v], instance.out_offsets[v + 1]):
            t = instance.out_tensors[j]
            for k in range(instance.reader_offsets[t], instance.reader_offsets[t + 1]):
                w = instance.readers[k]
                if not is_inside[w]:
                    for d in range(num_devices):
                        follows = to_end_s[w] + (link(flat, t, d, device[w]) if device[w] != d else 0.0)
                        after[i, d] = max(after[i, d], follows)
    return release, after, free, then

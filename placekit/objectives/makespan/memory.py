"""Bytes on every device over time: the ops' own memory, and the tensors that are alive."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.simulate import Timeline, Transfers


class MemoryUse(NamedTuple):
    """Memory of every device over time."""

    device: NDArray[np.int64]  # ``[N]`` device whose use changes; ascending
    time_s: NDArray[np.float64]  # ``[N]`` seconds at which it changes; ascending per device, the first 0
    num_bytes: NDArray[np.float64]  # ``[N]`` bytes from then on
    # ``[D]`` largest use of every device, moments included that a tensor is alive for no time at all
    peak_bytes: NDArray[np.float64]


def memory_use(
    instance: MakespanInstance,
    tensor_bytes: NDArray[np.float64],
    device_of_op: NDArray[np.int64],
    run: Timeline,
    transfers: Transfers,
) -> MemoryUse:
    """Return what a run keeps in memory.

    A device holds the memory of its ops all the time. A tensor is alive on its producer's device from the start of the
    producer (it is written from then on) to the end of the last op that reads it there and of the last transfer that
    sends it; and on a device that receives it from the start of the transfer to the end of the last op that reads it
    there. What ends at a moment is gone before what begins then. O((V + E) log E).
    """
    num_devices, num_tensors = instance.num_devices, len(instance.producer)
    moved, target = transfers.tensor, transfers.target
    read = instance.tensor_of_reader
    # one row per (tensor, device) where it is ever alive, several if there are several reasons
    tensor = np.concatenate([np.arange(num_tensors), read, moved, moved])
    device = np.concatenate(
        [
            device_of_op[instance.producer],
            device_of_op[instance.readers],
            device_of_op[instance.producer[moved]],
            target,
        ]
    )
    never = np.full(len(read), np.inf)
    begins = np.concatenate([run.start_s[instance.producer], never, transfers.start_s, transfers.start_s])
    ends = np.concatenate(
        [run.finish_s[instance.producer], run.finish_s[instance.readers], transfers.finish_s, transfers.finish_s]
    )
    rows, at = np.unique(tensor * num_devices + device, return_inverse=True)
    begin, end = np.full(len(rows), np.inf), np.zeros(len(rows))
    np.minimum.at(begin, at, begins)
    np.maximum.at(end, at, ends)
    tensor, device = np.divmod(rows, num_devices)
    size = tensor_bytes[tensor]

    resident = sum_by(device_of_op, instance.memory_bytes, num_devices)
    changed = np.concatenate([np.arange(num_devices), device, device])
    time_s = np.concatenate([np.zeros(num_devices), begin, end])
    change = np.concatenate([resident, size, -size])
    # at one moment: what ends, what begins, and what begins and ends there
    turn = np.concatenate([np.full(num_devices, -1), np.ones(len(rows)), np.where(end > begin, 0, 2)])
    order = np.lexsort((turn, time_s, changed))
    changed, time_s = changed[order], time_s[order]
    total = np.cumsum(change[order])
    first = np.searchsorted(changed, np.arange(num_devices))
    before = np.concatenate([[0.0], total])[first]  # sums run through: take off what the devices before left behind
    use = np.maximum(total - before[changed], 0.0)  # rounding of large sums must not make less than nothing
    is_last = np.append((np.diff(changed) != 0) | (np.diff(time_s) != 0), True)
    return MemoryUse(changed[is_last], time_s[is_last], use[is_last], np.maximum.reduceat(use, first))

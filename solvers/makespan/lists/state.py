"""State of a list scheduler: the schedule so far, what its classes take, and the inputs that are missing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.moves import move_s


class ListState(NamedTuple):
    """Schedule so far of V ops in C classes on D devices; device -1 where there is none yet."""

    device: NDArray[np.int64]  # ``[V]``
    # start, finish: ``[V]`` seconds
    start: NDArray[np.float64]
    finish: NDArray[np.float64]
    missing: NDArray[np.int64]  # ``[V]`` inputs that are not there yet
    class_device: NDArray[np.int64]  # ``[C]``
    class_bytes: NDArray[np.float64]  # ``[C]``
    used: NDArray[np.float64]  # ``[D]`` bytes


@njit(inline=True)
def begin_list(instance: MakespanInstance) -> ListState:
    """Return the state in which no op has a device."""
    num_ops = len(instance.class_of_op)
    num_classes = instance.class_of_op.max() + 1
    class_bytes = np.zeros(num_classes)
    missing = np.empty(num_ops, dtype=np.int64)
    for op in range(num_ops):
        class_bytes[instance.class_of_op[op]] += instance.memory_bytes[op]
        missing[op] = instance.in_offsets[op + 1] - instance.in_offsets[op]
    return ListState(
        np.full(num_ops, -1, dtype=np.int64),
        np.zeros(num_ops),
        np.zeros(num_ops),
        missing,
        np.full(num_classes, -1, dtype=np.int64),
        class_bytes,
        np.zeros(len(instance.kind)),
    )


@njit(inline=True, allocates=False)
def settle(instance: MakespanInstance, state: ListState, op: int, d: int, begin: float, end: float) -> None:
    """Place `op` on device `d`, and its class with it."""
    c = instance.class_of_op[op]
    if state.class_device[c] < 0:
        state.class_device[c] = d
        state.used[d] += state.class_bytes[c]
    state.device[op], state.start[op], state.finish[op] = d, begin, end


@njit(inline=True, allocates=False)
def ready_s(instance: MakespanInstance, state: ListState, op: int, d: int) -> float:
    """Return the time at which the inputs of `op`, all of them produced, have arrived on device `d`."""
    ready = 0.0
    for i in range(instance.in_offsets[op], instance.in_offsets[op + 1]):
        tensor = instance.in_tensors[i]
        producer = instance.producer[tensor]
        source = state.device[producer]
        at = state.finish[producer]
        if source != d:
            at += move_s(instance, tensor, source, d)
        ready = max(ready, at)
    return ready

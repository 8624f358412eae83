r"""The loads of a placement, kept up to date move by move.

Moving class :math:`c` from device :math:`a` to :math:`b` changes the loads of these two only: a net that touches a
third device reaches :math:`c` outside it before and after, so it stays cut there. With :math:`s` the number of pins of
a net and :math:`n_d` those on device :math:`d`, device :math:`a` pays before the move iff :math:`n_a < s` and after it
iff :math:`n_a > 1`; device :math:`b` before iff :math:`n_b > 0` and after iff :math:`n_b + 1 < s`. A move therefore
costs O(nets of the class), whatever the sizes of the nets.

Two load vectors that differ in two devices compare lexicographically (sorted, largest first) as the two sorted pairs
do, since common entries of two multisets do not change their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.assignment.flat import FlatProblem


class State(NamedTuple):
    """A placement of classes and what follows from it."""

    device: NDArray[np.int64]  # ``[C]`` device of every class
    # work_s, moved_s: ``[D, P]`` seconds of ops and of transfers
    work_s: NDArray[np.float64]
    moved_s: NDArray[np.float64]
    used_bytes: NDArray[np.float64]  # ``[D]`` bytes occupied
    pins_on: NDArray[np.int32]  # ``[N, D]`` pins of every net on every device
    quotient: NDArray[np.int64]  # ``[D, D]`` order edges from device to device; kept only where the problem is ordered
    # edges, waiting, ready: ``[D, D]``, ``[D]`` and ``[D]`` scratch of `is_acyclic_after`
    edges: NDArray[np.int64]
    waiting: NDArray[np.int64]
    ready: NDArray[np.int64]


def empty_state(flat: FlatProblem) -> State:
    """Return arrays of the right shapes, to be filled by `load_state`."""
    num_devices, num_passes = len(flat.kind), flat.time_s.shape[2]
    return State(
        device=np.zeros(len(flat.memory_bytes), dtype=np.int64),
        work_s=np.zeros((num_devices, num_passes)),
        moved_s=np.zeros((num_devices, num_passes)),
        used_bytes=np.zeros(num_devices),
        pins_on=np.zeros((len(flat.net_offsets) - 1, num_devices), dtype=np.int32),
        quotient=np.zeros((num_devices, num_devices), dtype=np.int64),
        edges=np.zeros((num_devices, num_devices), dtype=np.int64),
        waiting=np.zeros(num_devices, dtype=np.int64),
        ready=np.zeros(num_devices, dtype=np.int64),
    )


@njit
def load_state(flat: FlatProblem, state: State, device: NDArray[np.int64]) -> None:
    """Set `state` to the placement ``[C]`` `device`, computed from scratch. O(pins + nets * devices)."""
    num_devices, num_passes = state.work_s.shape
    for d in range(num_devices):
        state.used_bytes[d] = 0.0
        for p in range(num_passes):
            state.work_s[d, p] = state.moved_s[d, p] = 0.0
        for n in range(len(state.pins_on)):
            state.pins_on[n, d] = 0
        for other in range(num_devices):
            state.quotient[d, other] = 0
    for c in range(len(device)):
        d = device[c]
        state.device[c] = d
        state.used_bytes[d] += flat.memory_bytes[c]
        for p in range(num_passes):
            state.work_s[d, p] += flat.time_s[c, flat.kind[d], p]
        for i in range(flat.next_offsets[c], flat.next_offsets[c + 1]):
            state.quotient[d, device[flat.next_classes[i]]] += 1
    for n in range(len(flat.net_offsets) - 1):
        size = flat.net_offsets[n + 1] - flat.net_offsets[n]
        for i in range(flat.net_offsets[n], flat.net_offsets[n + 1]):
            state.pins_on[n, device[flat.net_pins[i]]] += 1
        for d in range(num_devices):
            if 0 < state.pins_on[n, d] < size:
                for p in range(num_passes):
                    state.moved_s[d, p] += flat.net_time_s[n, flat.kind[d], p]


@njit(inline=True, allocates=False)
def transfer_change(
    flat: FlatProblem, state: State, c: int, target: int, source_s: NDArray[np.float64], target_s: NDArray[np.float64]
) -> None:
    """Write to ``[P]`` `source_s` and `target_s` how the transfers of the two devices change if `c` moves."""
    source = state.device[c]
    source_kind, target_kind = flat.kind[source], flat.kind[target]
    for p in range(len(source_s)):
        source_s[p] = target_s[p] = 0.0
    for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
        n = flat.class_nets[i]
        size = flat.net_offsets[n + 1] - flat.net_offsets[n]
        here, there = state.pins_on[n, source], state.pins_on[n, target]
        at_source = (1 if here > 1 else 0) - (1 if here < size else 0)
        at_target = (1 if there + 1 < size else 0) - (1 if there > 0 else 0)
        if at_source != 0:
            for p in range(len(source_s)):
                source_s[p] += at_source * flat.net_time_s[n, source_kind, p]
        if at_target != 0:
            for p in range(len(target_s)):
                target_s[p] += at_target * flat.net_time_s[n, target_kind, p]


@njit(inline=True, allocates=False)
def move(
    flat: FlatProblem, state: State, c: int, target: int, source_s: NDArray[np.float64], target_s: NDArray[np.float64]
) -> None:
    """Move class `c`; `source_s` and `target_s` are what `transfer_change` said of this move."""
    source = state.device[c]
    for p in range(len(source_s)):
        state.work_s[source, p] -= flat.time_s[c, flat.kind[source], p]
        state.work_s[target, p] += flat.time_s[c, flat.kind[target], p]
        state.moved_s[source, p] += source_s[p]
        state.moved_s[target, p] += target_s[p]
    state.used_bytes[source] -= flat.memory_bytes[c]
    state.used_bytes[target] += flat.memory_bytes[c]
    for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
        n = flat.class_nets[i]
        state.pins_on[n, source] -= 1
        state.pins_on[n, target] += 1
    for i in range(flat.next_offsets[c], flat.next_offsets[c + 1]):
        d = state.device[flat.next_classes[i]]
        state.quotient[source, d] -= 1
        state.quotient[target, d] += 1
    for i in range(flat.previous_offsets[c], flat.previous_offsets[c + 1]):
        d = state.device[flat.previous_classes[i]]
        state.quotient[d, source] -= 1
        state.quotient[d, target] += 1
    state.device[c] = target


@njit(inline=True, allocates=False)
def is_acyclic_after(flat: FlatProblem, state: State, c: int, target: int) -> bool:
    """Return True if the quotient has no cycle after moving `c`. O(edges of the class + devices squared)."""
    source = state.device[c]
    edges, waiting, ready = state.edges, state.waiting, state.ready
    num_devices = len(edges)
    for a in range(num_devices):
        waiting[a] = 0
        for b in range(num_devices):
            edges[a, b] = state.quotient[a, b]
    for i in range(flat.next_offsets[c], flat.next_offsets[c + 1]):
        d = state.device[flat.next_classes[i]]
        edges[source, d] -= 1
        edges[target, d] += 1
    for i in range(flat.previous_offsets[c], flat.previous_offsets[c + 1]):
        d = state.device[flat.previous_classes[i]]
        edges[d, source] -= 1
        edges[d, target] += 1
    for a in range(num_devices):
        for b in range(num_devices):
            if a != b and edges[a, b] > 0:
                waiting[b] += 1
    num_ready = 0
    for d in range(num_devices):
        if waiting[d] == 0:
            ready[num_ready] = d
            num_ready += 1
    at = 0
    while at < num_ready:
        a = ready[at]
        at += 1
        for b in range(num_devices):
            if a != b and edges[a, b] > 0:
                waiting[b] -= 1
                if waiting[b] == 0:
                    ready[num_ready] = b
                    num_ready += 1
    return num_ready == num_devices


@njit(inline=True, allocates=False)
def objective(flat: FlatProblem, state: State) -> float:
    """Return the throughput objective in seconds: the sum over the passes of the largest load."""
    total = 0.0
    for p in range(state.work_s.shape[1]):
        largest = 0.0
        for d in range(len(state.work_s)):
            work, moved = state.work_s[d, p], state.moved_s[d, p]
            largest = max(largest, max(work, moved) if flat.has_overlap else work + moved)
        total += largest
    return total


@njit(inline=True, allocates=False)
def overflow(flat: FlatProblem, state: State) -> float:
    """Return the bytes by which devices exceed their limits, summed."""
    total = 0.0
    for d in range(len(flat.limit_bytes)):
        total += max(0.0, state.used_bytes[d] - flat.limit_bytes[d])
    return total

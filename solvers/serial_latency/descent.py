"""Descent by single moves of classes that reduce work and transfers and fit the memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.assignment.flat import FlatProblem


def descend(
    flat: FlatProblem,  # the problem; its order is ignored
    # ``[C]`` allowed devices to start from. An overfull device takes nothing more, and every move away from it counts
    # as an improvement.
    device: NDArray[np.int64],
    max_sweeps: int = 20,  # largest number of sweeps over the classes
) -> NDArray[np.int64]:
    """Return ``[C]`` devices that no single move improves, or the devices after `max_sweeps` sweeps.

    O(devices * pins) per sweep.
    """
    result = device.copy()
    time, net_time = flat.time_s.sum(axis=2), flat.net_time_s.sum(axis=2)
    _descend(result, flat, np.ascontiguousarray(time), np.ascontiguousarray(net_time), max_sweeps)
    return result


@njit
def _descend(
    device: NDArray[np.int64],
    flat: FlatProblem,
    time: NDArray[np.float64],
    net_time: NDArray[np.float64],
    max_sweeps: int,
) -> None:
    size, allowed, kind, limit = flat.memory_bytes, flat.allowed, flat.kind, flat.limit_bytes
    net_offsets, net_pins = flat.net_offsets, flat.net_pins
    class_offsets, class_nets = flat.class_offsets, flat.class_nets
    num_devices = len(kind)
    count = np.zeros((len(net_time), num_devices), dtype=np.int64)
    for net in range(len(net_time)):
        for at in range(net_offsets[net], net_offsets[net + 1]):
            count[net, device[net_pins[at]]] += 1
    used = np.zeros(num_devices)
    for c in range(len(device)):
        used[device[c]] += size[c]
    for _ in range(max_sweeps):
        has_moved = False
        for c in range(len(device)):
            here = device[c]
            best, best_gain = here, 0.0
            must_leave = used[here] > limit[here] and size[c] > 0
            if must_leave:
                best_gain = -np.inf
            for there in range(num_devices):
                if there == here or not allowed[c, there] or used[there] + size[c] > limit[there]:
                    continue
                gain = time[c, kind[here]] - time[c, kind[there]]
                worth = abs(time[c, kind[here]]) + abs(time[c, kind[there]])
                for at in range(class_offsets[c], class_offsets[c + 1]):
                    net = class_nets[at]
                    pins = net_offsets[net + 1] - net_offsets[net]
                    ends = net_time[net, kind[here]], net_time[net, kind[there]]
                    worth += ends[0] + ends[1]
                    if count[net, here] == pins:
                        gain -= ends[0] + ends[1]
                    elif count[net, there] + 1 == pins:
                        gain += ends[0] + ends[1]
                    else:
                        if count[net, here] == 1:
                            gain += ends[0]
                        if count[net, there] == 0:
                            gain -= ends[1]
                # a gain below the rounding of the sums could move a class back and forth forever
                if gain > best_gain and (must_leave or gain > 1e-12 * worth):
                    best, best_gain = there, gain
            if best != here:
                has_moved = True
                device[c] = best
                used[here] -= size[c]
                used[best] += size[c]
                for at in range(class_offsets[c], class_offsets[c + 1]):
                    count[class_nets[at], here] -= 1
                    count[class_nets[at], best] += 1
        if not has_moved:
            return

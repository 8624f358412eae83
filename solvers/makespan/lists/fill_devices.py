"""Fill device after device in topological order: the placement of m-TOPO."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.model.graph import sum_by
from placekit.objectives.makespan.instance import MakespanInstance

__all__ = ["fill_devices"]


def fill_devices(instance: MakespanInstance, time_s: NDArray[np.float64]) -> tuple[NDArray[np.int64], bool]:
    """Place classes in the order of their first ops, one device after the other.

    A device is full once the next class would lift it above its share: the mean over the devices plus the largest
    class, both in bytes, and at most the device's limit. The last device has no share, only its limit. A class that
    may not go to the current device goes to the next one, in a circle, that may take it and has room; if none has, to
    the one that ends up least above its limit.

    Parameters
    ----------
    instance
        The problem.
    time_s
        ``[V]`` seconds of every op, to share out instead where no op has any bytes.

    Returns
    -------
    tuple[NDArray[np.int64], bool]
        ``[V]`` device of every op, and False if a limit is broken. O(V + classes * devices).
    """
    num_devices, class_of_op = instance.num_devices, instance.class_of_op
    num_classes = int(class_of_op.max()) + 1
    size = sum_by(class_of_op, instance.memory_bytes, num_classes)
    weight = size if size.any() else sum_by(class_of_op, time_s, num_classes)
    share = np.full(num_devices, weight.sum() / num_devices + weight.max())
    share[-1] = np.inf
    ordered = class_of_op[instance.order]
    classes, first = np.unique(ordered, return_index=True)
    device_of_class = np.zeros(num_classes, dtype=np.int64)
    carried, used = np.zeros(num_devices), np.zeros(num_devices)
    limit, fits, at = instance.limit_bytes, True, 0
    leader = instance.order[first]
    for c in classes[np.argsort(first)].tolist():
        allowed = instance.allowed[leader[c]]
        while allowed[at] and (carried[at] + weight[c] > share[at] or used[at] + size[c] > limit[at]):
            if at == num_devices - 1:
                break
            at += 1
        circle = (at + np.arange(num_devices)) % num_devices
        room = allowed & (used + size[c] <= limit)
        if room[circle].any():
            d = int(circle[np.argmax(room[circle])])
        else:
            fits = False
            d = int(np.argmin(np.where(allowed, used + size[c] - limit, np.inf)))
        device_of_class[c] = d
        carried[d] += weight[c]
        used[d] += size[c]
    return device_of_class[class_of_op], fits

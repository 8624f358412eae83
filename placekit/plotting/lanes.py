"""Events that overlap, side by side: which of them share a line of a chart."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray


def assign_lanes(
    device: NDArray[np.int64], start_s: NDArray[np.float64], finish_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """``[N]`` smallest lane of each event's device that is free when the event starts.

    Events of one device that do not overlap all get lane 0. O(N log N).

    Examples
    --------
    >>> assign_lanes(np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 2.0, 0.0]), np.array([2.0, 3.0, 4.0, 1.0])).tolist()
    [0, 1, 0, 0]
    """
    lane = np.zeros(len(device), dtype=np.int64)
    busy: dict[int, list[tuple[float, int]]] = {}  # (until when, lane), per device
    idle: dict[int, list[int]] = {}
    for event in np.lexsort((finish_s, start_s)).tolist():
        d, start = int(device[event]), float(start_s[event])
        running, free = busy.setdefault(d, []), idle.setdefault(d, [])
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        lane[event] = heapq.heappop(free) if free else len(running)
        heapq.heappush(running, (float(finish_s[event]), int(lane[event])))
    return lane

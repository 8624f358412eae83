"""Predicted schedules as Chrome traces, for Perfetto (https://ui.perfetto.dev) and ``chrome://tracing``.

Every device is a process: its threads are what it computes, what it sends and what it receives, several of a sort
where events overlap; arrows lead from a transfer's sender to its receiver, and counters show the bytes in memory. Times
are in microseconds, as the format has it.

References
----------
"Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import write_json
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.objectives.base import Schedule
from placekit.solve.result import Result

_MAX_LANES = 10**6
"""Thread ids of a sort: the first is this number times the sort."""


def write_trace(result: Result, path: str | Path) -> None:
    """Write the schedule of `result` to `path` as a Chrome trace. The write is atomic."""
    write_json(path, trace_to_dict(result))


def trace_to_dict(result: Result) -> dict[str, Any]:
    """Return the schedule of `result` as a trace: one complete (X) event per op and per end of a transfer."""
    schedule, placement = result.schedule, result.placement
    if schedule is None or placement is None:
        why = (
            f"status {result.status}"
            if placement is None
            else f"objective {result.objective_name!r}, without clock or with too many events"
        )
        raise InvalidProblemError(f"result of {result.problem_name!r} has {why}: no schedule to trace")
    events: list[dict[str, Any]] = []
    for pid, name in enumerate(placement.device_names):
        events += named("process", pid, 0, name, pid)
    crosses = schedule.is_transfer & (schedule.peer >= 0)  # other transfers keep the device itself busy, as ops do
    for sort, (word, chosen, device_of) in enumerate(
        (
            ("compute", ~crosses, schedule.device),
            ("send", crosses, schedule.device),
            ("receive", crosses, schedule.peer),
        )
    ):
        found = np.flatnonzero(chosen)
        lanes = assign_lanes(device_of[found], schedule.start_s[found], schedule.finish_s[found]).tolist()
        places = list(zip(device_of[found].tolist(), lanes, strict=True))
        for pid, lane in sorted(set(places)):
            tid, name = sort * _MAX_LANES + lane, word + (f" {lane + 1}" if lane else "")
            events += named("thread", pid, tid, name, tid)
        for event, (pid, lane) in zip(found.tolist(), places, strict=True):
            events += _slices(placement, schedule, event, {"pid": pid, "tid": sort * _MAX_LANES + lane}, word)
    for device, time_s, num_bytes in [] if schedule.memory is None else schedule.memory.tolist():
        counter = {"pid": int(device), "ts": time_s * 1e6, "args": {"bytes": num_bytes}}
        events.append({"ph": "C", "name": "memory", **counter})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "model": result.problem_name,
            "method": result.method,
            "objective_name": result.objective_name,
            "objective_s": result.objective,
        },
    }


def named(what: Literal["process", "thread"], pid: int, tid: int, name: str, rank: int) -> list[dict[str, Any]]:
    """Return the events that give a process or a thread its name, and its place among others."""
    at = {"ph": "M", "pid": pid, "tid": tid}
    return [
        at | {"name": f"{what}_name", "args": {"name": name}},
        at | {"name": f"{what}_sort_index", "args": {"sort_index": rank}},
    ]


def _slices(
    placement: Placement, schedule: Schedule, event: int, place: dict[str, int], word: str
) -> Iterator[dict[str, Any]]:
    """Yield the slice of an event of the schedule, and the end of its arrow if it crosses devices."""
    name, peer = placement.op_names[schedule.op[event]], int(schedule.peer[event])
    at = place | {"ts": float(schedule.start_s[event]) * 1e6}
    is_transfer, devices = bool(schedule.is_transfer[event]), placement.device_names
    told = {"producer": name, "from": devices[schedule.device[event]]} if is_transfer else {"op": name}
    if peer >= 0:
        told["to"] = devices[peer]
    dur = float(schedule.finish_s[event] - schedule.start_s[event]) * 1e6
    yield {"ph": "X", "name": name, "cat": "transfer" if is_transfer else "op", **at, "dur": dur, "args": told}
    if word != "compute":
        arrow = {"ph": "s"} if word == "send" else {"ph": "f", "bp": "e"}
        yield {**arrow, "name": "transfer", "cat": "transfer", "id": event, **at}


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

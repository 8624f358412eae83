"""Predicted schedules as Chrome traces, for Perfetto (https://ui.perfetto.dev) and ``chrome://tracing``.

Every device is a process: its threads are what it computes, what it sends and what it receives, several of a sort
where events overlap; arrows lead from a transfer's sender to its receiver, and counters show the bytes in memory. Times
are in microseconds, as the format has it.

References
----------
"Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import write_json
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.objectives.base import Schedule
from placekit.plotting.lanes import assign_lanes
from placekit.solve.result import Result

_THREADS = ("compute", "send", "receive")
_COMPUTE, _SEND, _RECEIVE = range(3)
_MAX_LANES = 10**6
"""Thread ids of a sort: the first is this number times the sort."""


def write_trace(result: Result, path: str | Path) -> None:
    """Write the schedule of `result` to `path` as a Chrome trace. The write is atomic.

    Raises
    ------
    InvalidProblemError
        The result has no schedule.
    PlacekitError
        The file cannot be written.
    """
    write_json(path, trace_to_dict(result))


def trace_to_dict(result: Result) -> dict[str, Any]:
    """Return the schedule of `result` as a trace: one complete (X) event per op and per end of a transfer.

    Raises
    ------
    InvalidProblemError
        The result has no schedule: it has no placement, or its execution model has no clock.
    """
    schedule, placement = result.schedule, result.placement
    if schedule is None or placement is None:
        why = (
            f"status {result.status}"
            if placement is None
            else f"objective {result.objective_name!r}, without clock or with too many events"
        )
        raise InvalidProblemError(f"result of {result.problem_name!r} has {why}: no schedule to trace")
    parts = _slices_of(schedule)
    events = [*_metadata(placement, parts), *_events(placement, schedule, parts), *_counters(schedule)]
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


class _Slices(NamedTuple):
    """Complete events: the event of the schedule, and where its slice stands."""

    event: NDArray[np.int64]
    device: NDArray[np.int64]
    sort: int
    lane: NDArray[np.int64]


def _slices_of(schedule: Schedule) -> list[_Slices]:
    """Return what stands on the threads of each sort."""
    crosses = schedule.is_transfer & (schedule.peer >= 0)  # other transfers keep the device itself busy, as ops do
    parts = []
    for sort, chosen, device in (
        (_COMPUTE, ~crosses, schedule.device),
        (_SEND, crosses, schedule.device),
        (_RECEIVE, crosses, schedule.peer),
    ):
        event = np.flatnonzero(chosen)
        lane = assign_lanes(device[event], schedule.start_s[event], schedule.finish_s[event])
        parts.append(_Slices(event, device[event], sort, lane))
    return parts


def _metadata(placement: Placement, parts: list[_Slices]) -> Iterator[dict[str, Any]]:
    for pid, name in enumerate(placement.device_names):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for part in parts:
        for pid, lane in sorted(set(zip(part.device.tolist(), part.lane.tolist(), strict=True))):
            tid, name = part.sort * _MAX_LANES + lane, _THREADS[part.sort] + (f" {lane + 1}" if lane else "")
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _events(placement: Placement, schedule: Schedule, parts: list[_Slices]) -> Iterator[dict[str, Any]]:
    ops, devices = placement.op_names, placement.device_names
    for part in parts:
        for event, pid, lane in zip(part.event.tolist(), part.device.tolist(), part.lane.tolist(), strict=True):
            name, peer = ops[schedule.op[event]], int(schedule.peer[event])
            at = {"pid": pid, "tid": part.sort * _MAX_LANES + lane, "ts": float(schedule.start_s[event]) * 1e6}
            dur = float(schedule.finish_s[event] - schedule.start_s[event]) * 1e6
            is_transfer = bool(schedule.is_transfer[event])
            told = {"producer": name, "from": devices[schedule.device[event]]} if is_transfer else {"op": name}
            if peer >= 0:
                told["to"] = devices[peer]
            category = "transfer" if is_transfer else "op"
            yield {"ph": "X", "name": name, "cat": category, **at, "dur": dur, "args": told}
            if part.sort == _SEND:
                yield {"ph": "s", "name": "transfer", "cat": "transfer", "id": event, **at}
            elif part.sort == _RECEIVE:
                yield {"ph": "f", "bp": "e", "name": "transfer", "cat": "transfer", "id": event, **at}


def _counters(schedule: Schedule) -> Iterator[dict[str, Any]]:
    if schedule.memory is not None:
        for device, time_s, num_bytes in schedule.memory.tolist():
            yield {"ph": "C", "name": "memory", "pid": int(device), "ts": time_s * 1e6, "args": {"bytes": num_bytes}}

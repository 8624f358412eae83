"""Chrome traces say what the schedule says."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from names_written import PROGRAMS, Written

import placekit as pk
from placekit.io.trace import trace_to_dict, write_trace
from placekit.model.errors import InvalidProblemError
from placekit.runtime.timing.trace import timing_trace


@pytest.fixture
def result(diamond: pk.Problem) -> pk.Result:
    """Return the diamond on two accelerators: a, b, d on one, c on the other; 11 s."""
    problem = diamond.replace(objective=pk.Makespan(), contiguity="none").pin(
        {"a": "acc.0", "b": "acc.0", "c": "acc.1", "d": "acc.0"}
    )
    return pk.solve(problem, method="heft")


def events(result: pk.Result, phase: str) -> list[dict[str, Any]]:
    """Return the events of one phase."""
    return [event for event in trace_to_dict(result)["traceEvents"] if event["ph"] == phase]


def test_complete_events_are_the_ops_in_microseconds(result: pk.Result) -> None:
    """One slice per op, on the process of its device."""
    ops = [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events(result, "X") if e["cat"] == "op"]
    assert ops == [("a", 1, 0, 0.0, 1e6), ("b", 1, 0, 1e6, 1e6), ("c", 2, 0, 5e6, 1e6), ("d", 1, 0, 10e6, 1e6)]
    processes = [e["args"]["name"] for e in events(result, "M") if e["name"] == "process_name"]
    assert processes == ["cpu.0", "acc.0", "acc.1"]


def test_arrows_lead_from_sender_to_receiver(result: pk.Result) -> None:
    """Each flow starts in a slice of the sender and ends in a slice of the receiver that begin where it does."""
    starts, ends = events(result, "s"), events(result, "f")
    assert [(s["pid"], f["pid"], s["id"] == f["id"]) for s, f in zip(starts, ends, strict=True)] == [
        (1, 2, True),
        (2, 1, True),
    ]
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events(result, "X")}
    assert {(e["pid"], e["tid"], e["ts"]) for e in starts + ends} <= slices


def require_format(trace: dict[str, Any]) -> set[str]:
    """Raise unless all keys and words of a trace are of the format; return the keys."""
    names, told = Written(), PROGRAMS["trace-events"]
    events = trace["traceEvents"]
    free = [event | {"args": {}, "name": "", "cat": ""} for event in events if event["ph"] != "M"]
    named = [event | {"args": dict.fromkeys(event["args"], 0)} for event in events if event["ph"] == "M"]
    names.read_keys({**trace, "otherData": {}, "traceEvents": free + named})
    allowed = {(key, word) for key, words in told["settings"].items() for word in ["", *words]}
    assert names.settings - allowed - {("cat", "")} == set()
    assert names.keys - set(told["keys"]) == set()
    return names.keys | {f"{key} {word}" for key, word in names.settings if word}


def test_traces_have_the_keys_of_their_format(result: pk.Result) -> None:
    """No viewer tells of an event that it passes over; each name of the table is written."""
    told = PROGRAMS["trace-events"]
    settings = {f"{key} {word}" for key, words in told["settings"].items() for word in words}
    assert require_format(trace_to_dict(result)) == set(told["keys"]) | settings
    times = np.array([[[0.0, 1.0]], [[1.0, 2.0]]]), np.zeros((2, 1), dtype=np.int64)
    measured = require_format(timing_trace(["a"], [["cpu"]], times, times))
    written = "traceEvents,displayTimeUnit,ph X,ph M,dur,name process_name,name thread_name"
    assert measured.issuperset(written.split(","))


def test_counters_are_the_memory(result: pk.Result) -> None:
    """The counters' peaks are the peaks of the schedule."""
    assert result.schedule is not None
    assert result.schedule.peak_memory_bytes is not None
    peaks: dict[int, float] = defaultdict(float)
    for event in events(result, "C"):
        peaks[event["pid"]] = max(peaks[event["pid"]], event["args"]["bytes"])
    assert [peaks[device] for device in range(3)] == result.schedule.peak_memory_bytes.tolist() == [0.0, 11.0, 9.0]


def test_slices_of_a_thread_never_overlap() -> None:
    """Transfers that travel side by side, and host ops at graph width, stand on threads of their own."""
    graph = pk.OpGraph.from_edges(list("abcdef"), [("a", other) for other in "bcdef"])
    costs = pk.CostTable(("acc",), np.full((6, 1), 1.0), np.full((1, 1), 2.0), np.zeros(6))
    problem = pk.Problem(graph, pk.Platform.of(acc=6), costs, pk.Makespan()).pin(
        {op: f"acc.{d}" for d, op in enumerate("abcdef")}
    )
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events(pk.solve(problem, method="heft"), "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len([key for key in threads if key[0] == 0]) == 1 + 5
    for slices in threads.values():
        slices.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(slices))


def test_file_is_json_with_the_objective(result: pk.Result, tmp_path: Path) -> None:
    """The file reads back as the same document and says what was minimised."""
    write_trace(result, tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document == trace_to_dict(result)
    assert document["otherData"]["objective_s"] == 11.0


def test_result_without_schedule_is_refused(diamond: pk.Problem) -> None:
    """No clock, no trace; no placement, no trace."""
    with pytest.raises(
        InvalidProblemError, match="'throughput', without clock or with too many events: no schedule to trace"
    ):
        trace_to_dict(pk.solve(diamond, method="single"))
    supported = np.zeros((4, 2), dtype=bool)
    impossible = pk.solve(diamond.replace(costs=diamond.costs.replace(supported=supported)), method="single")
    with pytest.raises(InvalidProblemError, match="status infeasible: no schedule to trace"):
        trace_to_dict(impossible)

"""Workload files of Tarnawski et al.: hand-made cases, the published files, round trips, named errors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, workload_problems

from placekit.io.files.workload_json import milliseconds, read_workload, workload_to_dict, write_workload
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidFileError, UnsupportedProblemError
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem
from placekit.objectives import SerialLatency

SHARED = Path(__file__).resolve().parents[2] / "../shared/workloads/msr"
PUBLISHED = sorted(path for part in ("throughput", "latency") for path in SHARED.glob(f"{part}/*.json"))
needs_published = pytest.mark.usefixtures("workloads")


def node(number: int, **changes: Any) -> dict[str, Any]:
    """Return a node of a workload file."""
    return {
        "name": f"n{number}",
        "id": number,
        "supportedOnFpga": 1,
        "cpuLatency": 10.0,
        "fpgaLatency": 1.0,
        "isBackwardNode": 0,
        "size": 8,
    } | changes


def workload(**changes: Any) -> dict[str, Any]:
    """Return a diamond 7 -> {8, 9} -> 10 on two accelerators and a CPU; 8 and 9 are of one colour."""
    return {
        "maxSizePerFPGA": 100,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [node(7), node(8, colorClass=0), node(9, colorClass=0, supportedOnFpga=False), node(10)],
        "edges": [
            {"sourceId": 7, "destId": 8, "cost": 0.5, "size": 4},
            {"sourceId": 7, "destId": 9, "cost": 0.5, "size": 6},
            {"sourceId": 8, "destId": 10, "cost": 2},
            {"sourceId": 9, "destId": 10, "cost": 3},
        ],
    } | changes


def write(folder: Path, data: Any, name: str = "diamond.json") -> Path:
    """Write a JSON value as it is, NaN included."""
    path = folder / name
    path.write_text(json.dumps(data))
    return path


def test_diamond_is_read_as_the_paper_means_it(tmp_path: Path) -> None:
    """Devices, seconds, one tensor per producer, colours, support, memory."""
    problem = read_workload(write(tmp_path, workload()), contiguity="convex", objective=SerialLatency())
    assert problem.name == "diamond"
    assert problem.graph.op_names == ("n7", "n8", "n9", "n10")
    assert problem.platform.device_names == ("ACC.0", "ACC.1", "CPU.0")
    assert [device.memory_bytes for device in problem.platform.devices] == [100, 100, None]
    assert [device.is_host for device in problem.platform.devices] == [False, False, True]
    assert problem.graph.tensor_producer.tolist() == [0, 1, 2]
    assert problem.graph.tensor_bytes.tolist() == [6, 0, 0]
    np.testing.assert_array_equal(problem.costs.transfer_time_s, [[0.5e-3, 0], [2e-3, 0], [3e-3, 0]])
    assert problem.costs.op_time_s[0].tolist() == [1e-3, 10e-3]
    assert problem.costs.supported.tolist() == [[True, True], [True, True], [False, True], [True, True]]
    assert problem.op_class.tolist() == [0, 1, 1, 2]
    assert problem.costs.op_memory_bytes.tolist() == [8] * 4
    assert problem.contiguity is Contiguity.CONVEX
    assert problem.objective == SerialLatency()


def test_whole_numbers_may_be_written_as_floats(tmp_path: Path) -> None:
    """A file of a program that writes every number as a float is the same problem."""

    def as_floats(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: as_floats(each) for key, each in value.items()}
        if isinstance(value, list):
            return [as_floats(each) for each in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    plain = read_workload(write(tmp_path, workload()))
    assert read_workload(write(tmp_path, as_floats(workload()))) == plain


def test_ops_are_called_by_id_where_names_repeat(tmp_path: Path) -> None:
    """One repeated or missing name, and every op goes by its id."""
    data = workload()
    data["nodes"][0]["name"] = "n8"
    assert read_workload(write(tmp_path, data)).graph.op_names == ("7", "8", "9", "10")
    del data["nodes"][0]["name"]
    assert read_workload(write(tmp_path, data)).graph.op_names == ("7", "8", "9", "10")


def test_node_without_colour_never_shares_a_given_one(tmp_path: Path) -> None:
    """Fresh labels avoid the labels that the file uses."""
    data = workload(nodes=[node(7), node(8, colorClass=0), node(9, colorClass=1), node(10, colorClass=0)])
    assert read_workload(write(tmp_path, data)).op_class.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(("fpgas", "cpus", "kinds"), [(0, 2, ("cpu",)), (2, 0, ("accelerator",))])
def test_one_kind_of_device_is_enough(tmp_path: Path, fpgas: int, cpus: int, kinds: tuple[str, ...]) -> None:
    """One of maxFPGAs and maxCPUs may be 0, and the file still comes back equal."""
    problem = read_workload(write(tmp_path, workload(maxFPGAs=fpgas, maxCPUs=cpus)))
    assert problem.platform.kinds == kinds
    write_workload(problem, tmp_path / "diamond.json")
    assert read_workload(tmp_path / "diamond.json") == problem


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """Return the diamond with the value at `path` replaced, or removed if it is `...`."""
    data: Any = copy.deepcopy(workload())
    place = data
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    elif path[-1] == "append":
        place.append(value)
    else:
        place[path[-1]] = value
    return dict(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["maxFPGAs"], ..., r"diamond\.json: maxFPGAs is missing"),
        (["maxFPGAs"], -1, "maxFPGAs is -1; it should be greater than or equal to 0"),
        (["maxFPGAs"], 10**9, "maxFPGAs is 1000000000; it should be less than or equal to 4096"),
        (["maxFPGAs"], "2", "maxFPGAs is '2'; it should be a valid integer"),
        (["maxFPGAs"], 2.5, "maxFPGAs is 2.5; it should be a valid integer"),
        (["maxFPGAs"], True, "maxFPGAs is True; it should be a valid integer"),
        (["maxFPGAs"], 1e300, r"maxFPGAs is 1e\+300; it should be less than or equal to 4096"),
        (["edges", 0, "sourceId"], 0.5, r"sourceId is 0.5; it should be a valid integer"),
        (["maxSizePerFPGA"], 0, r"maxSizePerFPGA is 0.0 for 2 accelerators; it must be > 0"),
        (["maxSizePerFPGA"], float("nan"), "NaN is no JSON number"),
        (["nodes"], [], r"nodes is \[\]; it must not be empty"),
        (["nodes", 1, "cpuLatency"], ..., r"nodes\[1\] \(id 8\)\.cpuLatency is missing"),
        (["nodes", 1, "cpuLatency"], -2.5, r"nodes\[1\] \(id 8\)\.cpuLatency is -2.5; it should be greater"),
        (["nodes", 1, "cpuLatency"], float("inf"), "Infinity is no JSON number"),
        (["nodes", 1, "cpuLatency"], True, r"cpuLatency is True; it should be a valid number"),
        (["nodes", 1, "cpuLatency"], 10**400, r"diamond\.json: .*"),
        (["nodes", 1, "supportedOnFpga"], 2, r"supportedOnFpga"),
        (["nodes", 1, "colorClass"], "red", r"colorClass is 'red'; it should be a valid integer"),
        (["nodes", 1, "id"], 7, r"nodes\[0\] and nodes\[1\] both have id 7; ids must be unique"),
        (["edges", 0, "sourceId"], 99, r"edges\[0\]\.sourceId is 99; no node has that id"),
        (["edges", 0, "destId"], 99, r"edges\[0\]\.destId is 99; no node has that id"),
        (["edges", 0, "destId"], 7, r"edges\[0\] goes from node 7 to itself"),
        (["edges", 0, "cost"], -1, r"edges\[0\]\.cost is -1"),
        (["edges", 1, "cost"], 0.6, r"edges\[1\]\.cost is 0.6, but another edge of node 7 has 0.5"),
        (["edges", "append"], {"sourceId": 10, "destId": 7, "cost": 1}, "the ops form a cycle: .*n7"),
    ],
)
def test_broken_workload_is_a_named_error(tmp_path: Path, path: list[Any], value: Any, message: str) -> None:
    """The message names the file, the object, the value and the bound."""
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_workload(write(tmp_path, changed(path, value)))
    assert "diamond.json" in str(caught.value)


def test_no_device_at_all_is_a_named_error(tmp_path: Path) -> None:
    """Something has to run the ops."""
    with pytest.raises(InvalidFileError, match="both 0; there must be at least one device"):
        read_workload(write(tmp_path, workload(maxFPGAs=0, maxCPUs=0)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON: line 1 column 1"),
        (b'{"nodes": [', "not JSON: line 1"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8 text: byte 0"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"maxFPGAs": 1, "maxFPGAs": 2}', "key 'maxFPGAs' appears twice"),
        (b"[]", "the file is .*it should be a valid dictionary"),
        (b'{"maxFPGAs": ' + b"9" * 5000 + b"}", r"digits"),
    ],
)
def test_file_that_is_no_json_is_a_named_error(tmp_path: Path, content: bytes, message: str) -> None:
    """Truncated, in another encoding, nested without end, ambiguous, of another type."""
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(InvalidFileError, match=rf"broken\.json.*{message}"):
        read_workload(path)


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "diamond.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(workload()).encode())
    assert read_workload(path).graph.num_ops == 4


def test_missing_file_is_a_named_error(tmp_path: Path) -> None:
    """The system's reason is in the message."""
    with pytest.raises(InvalidFileError, match=r"cannot read .*none\.json: No such file"):
        read_workload(tmp_path / "none.json")


@given(problem=workload_problems())
def test_second_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, problem: Problem) -> None:
    """read(write(p)) is p up to one rounding step of milliseconds, and read(write(read(write(p)))) is exactly it."""
    path = tmp_path_factory.getbasetemp() / "round.json"
    write_workload(problem, path)
    once = read_workload(path, contiguity=problem.contiguity, name=problem.name)
    np.testing.assert_allclose(once.costs.op_time_s, problem.costs.op_time_s, rtol=3e-16)
    graph = problem.graph
    by_producer = np.argsort(graph.tensor_producer)  # the reader's order
    np.testing.assert_allclose(once.costs.transfer_time_s, problem.costs.transfer_time_s[by_producer], rtol=3e-16)
    assert once.graph.op_names == graph.op_names
    assert once.graph.is_backward.tolist() == graph.is_backward.tolist()
    assert list(zip(once.graph.senders, once.graph.receivers, strict=True)) == list(
        zip(graph.senders, graph.receivers, strict=True)
    )
    assert once.platform == problem.platform
    assert once.colocation.tolist() == problem.colocation.tolist()
    assert once.costs.supported.tolist() == problem.costs.supported.tolist()
    assert once.costs.op_memory_bytes.tolist() == problem.costs.op_memory_bytes.tolist()
    write_workload(once, path)
    assert read_workload(path, contiguity=problem.contiguity, name=problem.name) == once


@given(st.lists(st.floats(0, 1e12), min_size=1))
def test_milliseconds_that_were_read_come_back_as_the_same_seconds(values_ms: list[float]) -> None:
    """For every double of milliseconds, the writer finds one that reads as the same seconds."""
    seconds = np.array(values_ms) / 1e3
    np.testing.assert_array_equal(milliseconds(seconds) / 1e3, seconds)


@given(problem=problems() | workload_problems())
def test_every_problem_is_written_or_refused_by_name(problem: Problem) -> None:
    """A problem that the format cannot say is refused by a named error, and by nothing else."""
    try:
        data = workload_to_dict(problem)
    except UnsupportedProblemError as error:
        refusal = str(error)
    else:
        assert len(data["nodes"]) == problem.graph.num_ops
        return
    assert "a workload file" in refusal


def test_what_the_format_cannot_say_is_refused(tmp_path: Path) -> None:
    """Each restriction of the format has its own message."""
    problem = read_workload(write(tmp_path, workload()))
    costs = problem.costs
    cases: list[tuple[Problem, str]] = [
        (problem.pin({"n7": "CPU.0"}), "pins no ops; 'n7' is pinned"),
        (
            problem.replace(
                platform=Platform((*problem.platform.devices[:2], Device("CPU.0", "cpu", is_host=True, memory_bytes=9)))
            ),
            "no memory limit for CPUs; kind 'cpu' has 9 bytes",
        ),
        (problem.replace(costs=costs.replace(transfer_time_s=np.ones((3, 2)))), "CPUs transfer for free; kind 'cpu'"),
        (
            problem.replace(costs=costs.replace(supported=np.array([[True, False]] + [[True, True]] * 3))),
            "CPUs run every op; kind 'cpu' cannot run 'n7'",
        ),
        (
            problem.replace(
                platform=Platform((Device("A", "accelerator"), Device("B", "cpu")), {"cpu": Link(0.0, 1.0)})
            ),
            "one kind of accelerator; there are 'accelerator' and 'cpu'",
        ),
        (
            problem.replace(
                graph=problem.graph.replace(tensor_producer=np.array([0, 0, 2]), consumers=np.array([1, 2, 3, 3]))
            ),
            "one output per op; 'n7' has 2",
        ),
    ]
    for each, message in cases:
        with pytest.raises(UnsupportedProblemError, match=message):
            workload_to_dict(each)


def test_fused_groups_become_colours(tmp_path: Path) -> None:
    """The format knows no groups, but it knows ops that share a device."""
    problem = read_workload(write(tmp_path, workload()))
    fused = problem.replace(costs=problem.costs.replace(op_group=np.array([0, 0, 1, 2])))
    write_workload(fused, tmp_path / "fused.json")
    assert read_workload(tmp_path / "fused.json").op_class.tolist() == fused.op_class.tolist() == [0, 0, 0, 1]


@needs_published
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_published_workload_comes_back_exactly(path: Path, tmp_path: Path) -> None:
    """read(write(read(file))) == read(file), bit for bit, and the counts are the file's own."""
    problem = read_workload(path)
    data = json.loads(path.read_text())
    assert problem.graph.num_ops == len(data["nodes"])
    assert problem.graph.num_edges == len(data["edges"])
    write_workload(problem, tmp_path / path.name)
    assert read_workload(tmp_path / path.name) == problem

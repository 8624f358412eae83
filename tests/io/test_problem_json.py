"""Problem files: exact round trips, inline and with sibling arrays; named errors; the printed schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from placekit.io.files.detect import kind_of_file
from placekit.io.files.problem_json import problem_from_dict, problem_to_dict, read_problem, write_problem
from placekit.io.files.schemas import SCHEMAS, json_schema
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, PlacekitError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem


def big_problem(num_ops: int) -> Problem:
    """Return a random layered graph of `num_ops` ops on two kinds."""
    rng = np.random.default_rng(0)
    first = np.repeat(np.arange(num_ops - 1), 2)
    second = np.minimum(first + rng.integers(1, 20, size=len(first)), num_ops - 1)
    graph = OpGraph(
        name="big",
        op_names=tuple(f"block_{op // 100}/op_{op}" for op in range(num_ops)),
        op_types=("MatMul",) * num_ops,
        tensor_producer=np.arange(num_ops - 1),
        consumer_offsets=np.arange(0, 2 * num_ops - 1, 2),
        consumers=second,
        tensor_bytes=rng.random(num_ops - 1) * 1e6,
        op_flops=rng.random(num_ops) * 1e9,
        tensor_shapes=((1, 128, 768),) * (num_ops - 1),
    )
    costs = CostTable(
        kinds=("cpu", "gpu"),
        op_time_s=rng.random((num_ops, 2)),
        transfer_time_s=rng.random((num_ops - 1, 2)),
        op_memory_bytes=rng.random(num_ops) * 1e6,
        supported=rng.random((num_ops, 2)) < 0.9,
    )
    return Problem(graph, Platform.of(cpu=1, gpu=2, host="cpu"), costs)


@given(problem=problems(), arrays=st.sampled_from(["inline", "npz"]))
def test_problem_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, problem: Problem, arrays: Any) -> None:
    """read(write(p)) == p, bit for bit, for every constraint, variant and name."""
    path = tmp_path_factory.getbasetemp() / "problem.json"
    write_problem(problem, path, arrays=arrays)
    assert read_problem(path) == problem
    assert kind_of_file(path) == "problem"


@pytest.mark.parametrize("arrays", ["inline", "npz"])
def test_large_problem_comes_back_exactly(tmp_path: Path, arrays: Any) -> None:
    """Ten thousand ops, where long columns really go to the sibling file."""
    problem = big_problem(10_000)
    write_problem(problem, tmp_path / "big.json", arrays=arrays)
    assert read_problem(tmp_path / "big.json") == problem
    assert (tmp_path / "big.npz").exists() == (arrays == "npz")


def simple() -> Problem:
    """Return three ops in a row on a CPU and two limited GPUs, one op pinned."""
    graph = OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")], name="row")
    platform = Platform(
        (
            Device("CPU", "cpu", is_host=True, openvino="CPU", cores=(0, 1), properties={"X": "1"}),
            Device("GPU.0", "gpu", memory_bytes=1e9),
            Device("GPU.1", "gpu", memory_bytes=1e9),
        ),
        {"gpu": Link(1e-5, float("inf"))},
    )
    costs = CostTable(("cpu", "gpu"), np.ones((3, 2)), np.ones((2, 2)), np.ones(3))
    return Problem(graph, platform, costs).pin({"a": "CPU"})


def changed(steps: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the simple problem as JSON values with one value replaced, or removed if it is `...`."""
    data = json.loads(json.dumps(problem_to_dict(simple())))
    place = data
    for step in steps[:-1]:
        place = place[step]
    if value is ...:
        del place[steps[-1]]
    else:
        place[steps[-1]] = value
    return dict(data)


@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (("schema",), "placekit/problem/2", r"schema is 'placekit/problem/2'; it should be 'placekit/problem/1'"),
        (("schema",), ..., "schema is missing"),
        (("colour",), 1, "colour is an unknown field"),
        (("ops", "name"), ["a", "b"], r"ops: type has 3 entries; there must be 2"),
        (("ops", "name"), ["a", "b", "b"], "op name 'b' appears twice"),
        (("ops", "name", 1), 5, r"ops\.name\[1\] is 5; it should be a valid string"),
        (("ops", "flops"), [0, 1, -1], r"ops\.flops\[2\] is -1; it should be greater than or equal to 0"),
        (("tensors", "producer", 0), 7, r"tensor_producer\[0\] is 7; op indices run from 0 to 2"),
        (("tensors", "producer", 0), 2**63, r"tensors\.producer\[0\]"),
        (("tensors", "consumers", 1), [0], "the ops form a cycle: a -> b -> a|the ops form a cycle: b -> a -> b"),
        (("tensors", "consumers", 1), [1], "op 'b' consumes its own output"),
        (("tensors", "bytes"), [1], r"tensors: bytes has 1 entries; there must be 2"),
        (("platform", "devices"), [], r"platform\.devices is \[\]; it must not be empty"),
        (
            ("platform", "devices", 1, "memory_bytes"),
            0,
            r"devices\[1\] \(name 'GPU\.0'\)\.memory_bytes is 0; it should",
        ),
        (("platform", "devices", 1, "memory_bytes"), 5.0, "'GPU.0' and 'GPU.1' are both of kind 'gpu' but differ"),
        (("platform", "devices", 1, "name"), "CPU", "device name 'CPU' appears 2 times"),
        (("platform", "links", "npu"), {"latency_s": 0}, "link of unknown kind 'npu'"),
        (("costs", "kinds"), ["cpu", "cpu"], "names a kind twice"),
        (("costs", "kinds"), ["cpu"], r"costs\.op_time_s has kinds cpu, gpu; kinds are cpu"),
        (("costs", "op_time_s", "gpu"), [1.0], r"costs\.op_time_s\['gpu'\] has 1 entries; there must be 3"),
        (("costs", "op_time_s", "gpu", 1), -1, r"costs\.op_time_s\.gpu\[1\] is -1; it should be greater"),
        (("costs", "op_time_s", "gpu", 1), "1", r"costs\.op_time_s\.gpu\[1\] is '1'; it should be a valid number"),
        (("costs", "op_time_s", "gpu", 1), True, r"costs\.op_time_s\.gpu\[1\] is True"),
        (("costs", "op_group"), [0], r"costs\.op_group has 1 entries; there must be 3"),
        (("objective", "name"), "speed", "objective 'speed' is unknown; objectives are throughput"),
        (("objective", "params"), {"overlap": "yes"}, "overlap is 'yes'; it should be a bool"),
        (("objective", "params"), {"schedule": "x"}, "schedule is 'x'; it must be one of"),
        (("objective", "params"), {"colour": 1}, "has no parameter 'colour'; its parameters are overlap"),
        (("contiguity",), "tight", "contiguity is 'tight'; it should be 'none', 'convex' or 'acyclic'"),
        (("colocation",), [0, 1], "colocation has shape"),
        (("pinned",), {"z": "CPU"}, "pinned names op 'z', which the problem does not have"),
        (("pinned",), {"a": "TPU"}, "no device 'TPU' on this platform; devices are CPU, GPU.0, GPU.1"),
    ],
)
def test_broken_problem_is_a_named_error(tmp_path: Path, steps: tuple[Any, ...], value: Any, message: str) -> None:
    """The message names the file, the place, the value and the bound."""
    path = tmp_path / "row.json"
    path.write_text(json.dumps(changed(steps, value)))
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_problem(path)
    assert str(path) in str(caught.value)


def test_nan_is_refused(tmp_path: Path) -> None:
    """NaN literals are no JSON, even where null would be allowed."""
    path = tmp_path / "row.json"
    path.write_text(json.dumps(changed(("costs", "op_time_s", "gpu", 1), float("nan"))))
    with pytest.raises(InvalidFileError, match="NaN is no JSON number"):
        read_problem(path)
    path.write_text(json.dumps(problem_to_dict(simple())).replace("1.0", "1e999", 1))
    with pytest.raises(InvalidFileError, match="finite"):
        read_problem(path)


def test_op_that_no_kind_supports_is_null_and_comes_back(tmp_path: Path) -> None:
    """Not supported is null in the file, never a number."""
    problem = simple()
    costs = problem.costs.replace(supported=np.array([[True, False]] * 3))
    write_problem(problem.replace(costs=costs), tmp_path / "row.json")
    data = json.loads((tmp_path / "row.json").read_text())
    assert data["costs"]["op_time_s"]["gpu"] == [None] * 3
    assert read_problem(tmp_path / "row.json").costs == costs


def test_arrays_that_do_not_belong_are_named_errors(tmp_path: Path) -> None:
    """A missing, foreign, truncated or escaping sibling file."""
    path, sibling = tmp_path / "big.json", tmp_path / "big.npz"
    write_problem(big_problem(40), path, arrays="npz")
    document = json.loads(path.read_text())
    write_problem(big_problem(41), tmp_path / "other.json", arrays="npz")

    sibling.write_bytes((tmp_path / "other.npz").read_bytes())
    with pytest.raises(InvalidFileError, match=r"big\.npz: not the arrays that .*big\.json was written with"):
        read_problem(path)
    sibling.unlink()
    with pytest.raises(InvalidFileError, match=r"cannot read .*big\.npz: No such file"):
        read_problem(path)
    for name in ("../big.npz", "/etc/passwd", "big.json"):
        path.write_text(json.dumps(document | {"arrays": {"file": name, "blake2b": ""}}))
        with pytest.raises(InvalidFileError, match=r"it should be the name of a \.npz in the same folder"):
            read_problem(path)


def test_reference_to_an_absent_array_is_a_named_error(tmp_path: Path) -> None:
    """The sibling is the right one but the key is not in it."""
    path = tmp_path / "big.json"
    write_problem(big_problem(40), path, arrays="npz")
    document = json.loads(path.read_text())
    document["ops"]["flops"] = {"npz": "nothing"}
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidFileError, match=r"ops\.flops is \{'npz': 'nothing'\}; it should be a valid list"):
        read_problem(path)


def test_names_that_look_like_references_come_back(tmp_path: Path) -> None:
    """A kind, an op and a device may be called like the words of the file format."""
    base = big_problem(20)
    platform = Platform((Device("pinned", "npz"),))
    costs = base.costs.for_kinds(["gpu"]).replace(
        kinds=("npz",), provenance={"a": {"b": [0.5] * 20}, "a.b": [1.5] * 20}
    )
    graph = base.graph.replace(op_names=("npz", *base.graph.op_names[1:]))
    problem = Problem(graph, platform, costs).pin({"npz": "pinned"})
    write_problem(problem, tmp_path / "p.json", arrays="npz")
    assert read_problem(tmp_path / "p.json") == problem


def test_failed_write_names_the_path(tmp_path: Path) -> None:
    """As every writer."""
    with pytest.raises(PlacekitError, match="cannot write"):
        write_problem(simple(), tmp_path / "no" / "row.json")


def test_document_needs_no_file() -> None:
    """The values can travel in any other way."""
    assert problem_from_dict(problem_to_dict(simple())) == simple()


@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_json_schema_is_printable(kind: str) -> None:
    """Every format has a JSON Schema with its fields."""
    schema = json_schema(kind)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["properties"]


def test_json_schema_of_an_unknown_format_is_a_named_error() -> None:
    """The message lists the formats."""
    with pytest.raises(UnknownNameError, match="formats are workload, problem, costs"):
        json_schema("model")

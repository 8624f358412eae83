"""NaN and infinity in files: every reader says where, with the file, the key, the index, the op and the value."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.placement_json import read_placement, write_placement
from placekit.io.files.platform_toml import read_platform
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.files.result_json import read_result, write_result
from placekit.io.files.workload_json import read_workload, write_workload
from placekit.model.errors import InvalidFileError

GRAPH = pk.OpGraph.from_edges(["read", "conv", "add"], [("read", "conv"), ("conv", "add")])
COSTS = pk.CostTable(
    ("cpu", "gpu"),
    np.full((3, 2), 1e-3),
    np.tile([0.0, 1e-3], (2, 1)),
    np.ones(3),
    provenance={"a": [1, {"b": 2}]},
)
PROBLEM = pk.Problem(GRAPH, pk.Platform.of(cpu=1, gpu=1, host="cpu"), COSTS)
RESULT = pk.solve(PROBLEM, "greedy")
assert RESULT.placement is not None
NUMBERS = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity", "1e999": "inf", "-1e999": "-inf"}
CASES: list[tuple[str, list[Any], str]] = [
    ("problem", ["costs", "op_time_s", "gpu", 1], r"costs\.op_time_s\.gpu\[1\] \(op 'conv'\)"),
    ("problem", ["costs", "op_memory_bytes", 2], r"costs\.op_memory_bytes\[2\] \(op 'add'\)"),
    ("problem", ["costs", "transfer_time_s", "gpu", 1], r"costs\.transfer_time_s\.gpu\[1\]"),
    ("problem", ["costs", "provenance", "a", 1, "b"], r"costs\.provenance(\.|: )a\[1\]\.b"),
    ("problem", ["tensors", "bytes", 0], r"tensors\.bytes\[0\]"),
    ("costs", ["costs", "op_time_s", "cpu", 0], r"costs\.op_time_s\.cpu\[0\] \(op 'read'\)"),
    ("workload", ["nodes", 1, "cpuLatency"], r"nodes\[1\] \(id 1\)\.cpuLatency"),
    ("workload", ["edges", 0, "cost"], r"edges\[0\]\.cost"),
    ("result", ["lower_bound"], r"lower_bound"),
    ("placement", ["ops", "conv"], r"ops\.conv"),
]


def write(kind: str, path: Path) -> Callable[[], object]:
    """Write a file of a kind; return what reads it."""
    if kind == "problem":
        write_problem(PROBLEM, path)
        return lambda: read_problem(path)
    if kind == "costs":
        write_costs(COSTS, GRAPH, path)
        return lambda: read_costs(path, GRAPH)
    if kind == "workload":
        write_workload(PROBLEM, path)
        return lambda: read_workload(path)
    if kind == "result":
        write_result(RESULT, path)
        return lambda: read_result(path)
    assert RESULT.placement is not None
    write_placement(RESULT.placement, path)
    return lambda: read_placement(path)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("kind", "keys", "place"), CASES)
def test_what_is_no_number_is_named_with_its_place(
    kind: str, keys: list[Any], place: str, number: str, tmp_path: Path
) -> None:
    """In JSON files of every kind, literals and numbers that overflow alike."""
    path = tmp_path / f"{kind}.json"
    read = write(kind, path)
    document = json.loads(path.read_text())
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    assert keys[-1] in inner or isinstance(keys[-1], int)
    inner[keys[-1]] = "HERE"
    path.write_text(json.dumps(document).replace('"HERE"', number))
    with pytest.raises(InvalidFileError) as caught:
        read()
    message = str(caught.value)
    assert re.match(rf"{re.escape(str(path))}: {place}\b|{re.escape(str(path))}: {place}", message), message
    assert NUMBERS[number] in message


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_platform_file_says_where(number: str, tmp_path: Path) -> None:
    """TOML has literals for both."""
    path = tmp_path / "machine.toml"
    path.write_text(f'[[device]]\nname = "a"\nkind = "x"\n[spec.x]\nbase = "cpu"\nop_overhead_s = {number}\n')
    with pytest.raises(InvalidFileError, match=rf"machine\.toml: spec\.x\.op_overhead_s is {number}"):
        read_platform(path)


@pytest.mark.parametrize("column", ["transfer_time_s", "op_memory_bytes"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_columns_beside_a_file_say_where(column: str, number: float, tmp_path: Path) -> None:
    """Of a costs file whose columns are in an npz file: the key and the index."""
    path = tmp_path / "costs.json"
    graph = pk.OpGraph.from_edges([f"o{at}" for at in range(2000)], [(f"o{at}", f"o{at + 1}") for at in range(1999)])
    write_costs(
        pk.CostTable(("cpu",), np.ones((2000, 1)), np.zeros((1999, 1)), np.ones(2000)), graph, path, arrays="npz"
    )
    with np.load(tmp_path / "costs.npz") as file:
        arrays = dict(file)
    (key,) = (each for each in arrays if column in each)
    changed = arrays[key].astype(float)
    changed[7] = number
    np.savez(tmp_path / "costs.npz", **(arrays | {key: changed}))
    document = json.loads(path.read_text())
    document["arrays"]["blake2b"] = hashlib.blake2b(path.with_suffix(".npz").read_bytes(), digest_size=16).hexdigest()
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidFileError, match=rf"{column}.*\[7\]"):
        read_costs(path, graph)

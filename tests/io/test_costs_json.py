"""Costs files: exact round trips, lined up with a model by name, named errors where they do not belong to it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.detect import kind_of_file
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.problem import Problem


@given(problem=problems(), arrays=st.sampled_from(["inline", "npz"]))
def test_costs_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, problem: Problem, arrays: Any) -> None:
    """read(write(costs)) == costs, bit for bit, spreads, groups and provenance included."""
    path = tmp_path_factory.getbasetemp() / "costs.json"
    write_costs(problem.costs, problem.graph, path, arrays=arrays)
    assert read_costs(path, problem.graph) == problem.costs
    assert kind_of_file(path) == "costs"


def row(names: str = "abc") -> OpGraph:
    """Return ops in a row."""
    return OpGraph.from_edges(list(names), list(pairwise(names)), name="row")


def row_costs() -> CostTable:
    """Return costs of the row that differ for every op and tensor."""
    return CostTable(
        ("cpu", "gpu"),
        np.arange(6.0).reshape(3, 2),
        np.arange(4.0).reshape(2, 2),
        np.arange(3.0),
        op_group=np.array([5, 5, 7]),
        op_time_spread=np.array([[0.1, np.nan]] * 3),
    )


def test_costs_are_lined_up_by_name(tmp_path: Path) -> None:
    """A model with the same ops in another order gets every op its own costs."""
    write_costs(row_costs(), row(), tmp_path / "costs.json")
    edges = [("a", "b"), ("b", "c")]
    costs = read_costs(tmp_path / "costs.json", OpGraph.from_edges(list("cab"), edges))
    assert costs.op_time_s[:, 0].tolist() == [4, 0, 2]
    assert costs.op_group.tolist() == [7, 5, 5]
    assert costs.op_memory_bytes.tolist() == [2, 0, 1]
    assert costs.transfer_time_s.tolist() == [[0, 1], [2, 3]]


def test_several_outputs_are_told_apart_by_port(tmp_path: Path) -> None:
    """The tensors of one op are named by the op and their rank among its tensors."""
    graph = OpGraph(
        name="split",
        op_names=("s", "x", "y"),
        op_types=("Split", "Relu", "Relu"),
        tensor_producer=np.array([0, 0]),
        consumer_offsets=np.array([0, 1, 2]),
        consumers=np.array([1, 2]),
        tensor_bytes=np.array([1.0, 2.0]),
    )
    costs = CostTable(("cpu",), np.ones((3, 1)), np.array([[1.0], [2.0]]), np.ones(3))
    write_costs(costs, graph, tmp_path / "costs.json")
    assert json.loads((tmp_path / "costs.json").read_text())["tensors"] == {"producer": ["s", "s"], "port": [0, 1]}
    assert read_costs(tmp_path / "costs.json", graph) == costs


def test_costs_of_another_model_are_a_named_error(tmp_path: Path) -> None:
    """The message names the first op that differs, in either direction."""
    path = tmp_path / "costs.json"
    write_costs(row_costs(), row(), path)
    with pytest.raises(InvalidFileError, match=r"costs\.json: no costs for op 'x' of model 'row'"):
        read_costs(path, row("abx"))
    with pytest.raises(InvalidFileError, match="has costs for op 'c', which model 'row' does not have"):
        read_costs(path, row("ab"))
    with pytest.raises(InvalidFileError, match=r"no costs for output \(op, port\) \('c', 0\)"):
        read_costs(path, OpGraph.from_edges(list("abc"), [("a", "b"), ("c", "b")]))


def test_costs_of_another_graph_are_not_written(tmp_path: Path) -> None:
    """Lengths must agree before names are put to numbers."""
    with pytest.raises(InvalidProblemError, match="costs of 3 ops and 2 tensors do not belong to 'row'"):
        write_costs(row_costs(), row("ab"), tmp_path / "costs.json")


@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (("ops",), ["a", "b", "b"], "op 'b' appears twice"),
        (("tensors", "port"), [0], r"tensors: port has 1 entries; there must be 2"),
        (("costs", "kinds"), [], "kinds is"),
        (("costs", "op_memory_bytes"), [1.0], r"costs\.op_memory_bytes has 1 entries; there must be 3"),
        (("costs", "op_time_spread"), {"cpu": [1, 1, 1]}, "op_time_spread has kinds cpu; kinds are cpu, gpu"),
        (("costs", "transfer_time_s", "gpu"), [1, None], r"transfer_time_s\.gpu\[1\] is None"),
        (("model",), "row", "model is 'row'"),
        (("costs", "provenance"), [], r"provenance is \[\]"),
    ],
)
def test_broken_costs_are_a_named_error(tmp_path: Path, steps: tuple[str, ...], value: Any, message: str) -> None:
    """The message names the file, the place, the value and the bound."""
    path = tmp_path / "costs.json"
    write_costs(row_costs(), row(), path)
    data = json.loads(path.read_text())
    place = data
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_costs(path, row())
    assert str(path) in str(caught.value)


def test_provenance_that_is_no_json_is_a_named_error(tmp_path: Path) -> None:
    """The table promises JSON values; the writer checks."""
    costs = row_costs().replace(provenance={"when": object()})
    with pytest.raises(InvalidFileError, match="not a JSON value"):
        write_costs(costs, row(), tmp_path / "costs.json")

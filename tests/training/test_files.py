"""Piper's files and plan files: round trips, and one line for every kind of broken file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.training_plans import random_training_problem

from placekit.io.files.detect import kind_of_file
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.solvers.training_plan.solve import solve_plan
from placekit.training.generate import chain_problem, recurrent_problem
from placekit.training.piper_json import piper_to_dict, read_piper, write_piper
from placekit.training.plan_json import read_plan, write_plan
from placekit.training.problem import TrainingProblem
from placekit.training.transformer import transformer_problem


@pytest.fixture
def document() -> dict[str, Any]:
    """Return a chain of three blocks in Piper's format."""
    return piper_to_dict(chain_problem(3, tensor_degrees=(1, 2)))


def test_piper_round_trip(tmp_path: Path) -> None:
    """What is written is read again, whatever the graph."""
    rng = np.random.default_rng(0)
    for number in range(20):
        problem = random_training_problem(rng).replace(name=f"p{number}")
        path = tmp_path / f"p{number}.json"
        write_piper(problem, path)
        assert kind_of_file(path) == "training-problem"
        assert read_piper(path) == problem


def test_plan_round_trip(tmp_path: Path) -> None:
    """A plan with its evidence survives a file, and so does a proof that there is none."""
    for memory in (8 * 2**30, 1e6):
        result = solve_plan(recurrent_problem(2, 3, num_devices=4, memory_bytes=memory))
        path = tmp_path / "plan.json"
        write_plan(result, path)
        assert kind_of_file(path) == "training-plan"
        again = read_plan(path)
        assert again.to_dict() == result.to_dict()
        assert again.plan == result.plan


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("nodes", 1, "TMPCs", "2"), None, "layer 'block1' has no choice for tensor-parallel degree 2"),
        (("nodes", 1, "TMPCs", "1", 0, "syncTimeFw", "7"), 1.0, "syncTimeFw names node 7, but there is no such edge"),
        (("nodes", 1, "TMPCs", "1", 0, "syncTimeBw", "2"), None, "syncTimeBw lacks the edge with node 2"),
        (("nodes", 1, "TMPCs", "1", 0, "timePerSample"), -1.0, "timePerSample is -1.0"),
        (("nodes", 1, "TMPCs", "1", 0, "memoryUsageA"), "much", "memoryUsageA is 'much'"),
        (("nodes", 1, "TMPCs", "0"), [], "TMPCs"),
        (("nodes", 1, "id"), 0, "nodes 0 and 1 both have id 0"),
        (("edges", 0, "destId"), 9, "destId 9, which no node has"),
        (("edges", 0, "communicationCost"), -2.0, "communicationCost is -2.0"),
        (("mbsInBatch",), 0, "mbsInBatch is 0"),
        (("bandwidth",), 0.0, "bandwidth is 0.0"),
        (("maxMemoryPerDevice",), None, "maxMemoryPerDevice is missing"),
    ],
)
def test_broken_files_are_named(
    tmp_path: Path, document: dict[str, Any], place: tuple[Any, ...], value: Any, words: str
) -> None:
    """One line names the file, the layer and the value."""
    at: Any = document
    for step in place[:-1]:
        at = at[step]
    if value is None:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidFileError, match=r"broken\.json") as caught:
        read_piper(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nan_and_cycles_are_refused(tmp_path: Path, document: dict[str, Any]) -> None:
    """NaN is no JSON number; layers in a cycle are named."""
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document).replace('"communicationCost": ', '"communicationCost": NaN, "x": ', 1))
    with pytest.raises(InvalidFileError, match="NaN"):
        read_piper(path)
    document["edges"].append({"sourceId": 2, "destId": 0, "communicationCost": 1.0})
    for choice in document["nodes"][0]["TMPCs"]["1"] + document["nodes"][0]["TMPCs"]["2"]:
        choice["syncTimeFw"]["2"] = 0.0
    for choice in document["nodes"][2]["TMPCs"]["1"] + document["nodes"][2]["TMPCs"]["2"]:
        choice["syncTimeBw"]["0"] = 0.0
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidFileError, match=r"cycle.*'block0'"):
        read_piper(path)


def test_sizes_are_checked_before_anything_is_built() -> None:
    """Devices, microbatches, layers and shapes that no machine has."""
    for make, words in (
        (lambda: chain_problem(4, num_devices=10**9), "num_devices is 1000000000; it must be at least 1 and at most"),
        (lambda: chain_problem(4, num_microbatches=10**12), "num_microbatches is 1000000000000"),
        (lambda: chain_problem(10**9), "a chain of 1000000000 blocks"),
        (lambda: recurrent_problem(10**5, 10**5), "a lattice of 100000 rows and 100000 steps"),
        (lambda: transformer_problem("transformer:hidden=64,heads=4,blocks=1000000000"), "blocks is 1000000000"),
        (lambda: transformer_problem(f"transformer:hidden={'9' * 5000}"), "whole number"),
    ):
        with pytest.raises(InvalidProblemError, match=words):
            make()


def test_restrictions_may_leave_nothing() -> None:
    """Without recomputation a layer that has nothing else has no choice."""
    problem = chain_problem(2, tensor_degrees=(1,))
    layers = tuple(type(v)(v.name, {1: v.choices[1][1:]}) for v in problem.layers)
    only = problem.replace(layers=layers)
    with pytest.raises(InvalidProblemError, match="'block0', tensor-parallel degree 1: no choice without"):
        only.replace(restrictions=type(only.restrictions)(recomputation=False))


def test_plan_of_another_shape_is_refused(tmp_path: Path) -> None:
    """A stage with a layer that does not exist names it."""
    problem: TrainingProblem = chain_problem(3, num_devices=2)
    data = solve_plan(problem).to_dict()
    data["stages"][0]["layers"][0] = 17
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidFileError, match="layer 17; there are 3 layers"):
        read_plan(path)

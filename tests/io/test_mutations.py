"""Thousands of broken files: a reader returns, or raises a named error, and nothing else ever.

Every case is one seed: a valid file of some kind, then one to three changes to its JSON value, then perhaps a change to
its bytes.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.mutations import mangle, mutate

from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.detect import kind_of_file
from placekit.io.files.graph_file import read_graph
from placekit.io.files.placement_json import placement_to_dict, read_placement
from placekit.io.files.platform_toml import read_platform
from placekit.io.files.problem_json import problem_to_dict, read_problem, write_problem
from placekit.io.files.result_json import read_result
from placekit.io.files.workload_json import read_workload, workload_to_dict
from placekit.model.costs import CostTable
from placekit.model.errors import PlacekitError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import Result, Status
from placekit.solve.stop import StopReason

SEEDS_PER_KIND = 300


def problem() -> Problem:
    """Return a small problem that the workload format can say too."""
    graph = OpGraph.from_edges(
        ["a", "b", "c", "d", "e"], [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")], output_bytes=[4.0] * 5
    )
    graph = graph.replace(tensor_shapes=((1, -1), (2,), (3,), ()), op_flops=np.arange(5.0))
    platform = Platform(
        (
            Device("ACC.0", "accelerator", memory_bytes=100.0, properties={"k": "v"}),
            Device("ACC.1", "accelerator", memory_bytes=100.0, cores=(1,)),
            Device("CPU.0", "cpu", is_host=True),
        ),
        {"accelerator": Link(1e-5, float("inf"))},
    )
    costs = CostTable(
        ("accelerator", "cpu"),
        np.ones((5, 2)),
        np.array([[0.5, 0.0]] * 4),
        np.ones(5),
        supported=np.array([[True, True]] * 4 + [[False, True]]),
        op_time_spread=np.full((5, 2), 0.1),
        provenance={"source": "test", "nested": {"deep": [1, 2]}},
    )
    return Problem(graph, platform, costs, colocation=np.array([0, 1, 1, 2, 3]))


def result() -> Result:
    """Return a result for the small problem."""
    evaluation = evaluate(problem(), Placement.of(problem(), [0, 0, 0, 1, 2]))
    return Result(
        method="m", objective_name="throughput", problem_name="p", status=Status.FEASIBLE, stop_reason=StopReason.TIME,
        placement=Placement.of(problem(), [0, 0, 0, 1, 2]), objective=evaluation.objective, lower_bound=0.1,
        bound_name="b", device_loads=evaluation.device_loads, violations=evaluation.violations, trace=(),
        runtime_s=0.1, evaluations=1, seed=0,
    )  # fmt: skip


def costs_document(folder: Path) -> Any:
    """Return the small problem's costs file as JSON values."""
    write_costs(problem().costs, problem().graph, folder / "valid.json")
    return json.loads((folder / "valid.json").read_text())


def graph_document() -> dict[str, Any]:
    """Return a graph of researchers as JSON values."""
    nodes = [{"id": name, "time_s.cpu": 1.0, "time_s.gpu": 0.5, "memory_bytes": 3.0, "type": "Op"} for name in "abc"]
    links = [{"source": "a", "target": name, "bytes": 4.0} for name in "bc"]
    graph = {"devices.gpu": 2, "memory_bytes.gpu": 8.0, "bandwidth_bytes_per_s.gpu": 1e9}
    return {"directed": True, "multigraph": False, "graph": graph, "nodes": nodes, "links": links}


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "workload": (lambda _: workload_to_dict(problem()), read_workload),
    "graph": (lambda _: graph_document(), read_graph),
    "problem": (lambda _: problem_to_dict(problem()), read_problem),
    "costs": (costs_document, lambda path: read_costs(path, problem().graph)),
    "placement": (
        lambda _: placement_to_dict(Placement.of(problem(), [0, 1, 1, 2, 2]), problem=problem()),
        lambda path: read_placement(path).for_problem(problem()),
    ),
    "plain": (
        lambda _: dict.fromkeys("abcde", "CPU.0"),
        lambda path: read_placement(path).for_problem(problem()),
    ),
    "result": (lambda _: result().to_dict(), read_result),
}
"""A valid file as JSON values (given a scratch folder), and its reader."""


def breaks(read: Callable[[Path], Any], path: Path) -> bool:
    """Return True if reading raises a named error with a message of sane length; other errors pass through."""
    try:
        read(path)
    except PlacekitError as error:
        if not 0 < len(str(error)) < 20_000:
            raise AssertionError("a message that nobody can read") from error
        return True
    return False


@pytest.mark.parametrize("kind", list(KINDS))
def test_mutated_json_is_read_or_refused_by_name(kind: str, tmp_path: Path) -> None:
    """No seed gets anything but an answer or a PlacekitError out of a reader, and most are refused."""
    make, read = KINDS[kind]
    valid = make(tmp_path)
    path = tmp_path / "mutated.json"
    path.write_text(json.dumps(valid))
    assert not breaks(read, path)
    refused = 0
    for seed in range(SEEDS_PER_KIND):
        rng = random.Random(f"{kind} {seed}")
        document = copy.deepcopy(valid)
        for _ in range(rng.randint(1, 3)):
            document = mutate(document, rng)
        content = json.dumps(document).encode()
        path.write_bytes(mangle(content, rng) if rng.random() < 0.3 else content)
        try:
            refused += breaks(read, path)
            breaks(kind_of_file, path)
        except Exception as error:
            raise AssertionError(f"{kind} seed {seed}: {type(error).__name__}: {error}") from error
    assert refused > SEEDS_PER_KIND // 2


def test_mutated_toml_is_read_or_refused_by_name(tmp_path: Path) -> None:
    """The same for the bytes of a platform file."""
    valid = (
        '[[device]]\nname = "CPU"\nkind = "cpu"\nhost = true\nmemory = "16 GiB"\ncores = [0, 1]\n'
        'properties = { A = "1", B = 2 }\n[[device]]\nname = "ACC"\nkind = "acc"\ncount = 3\nspec = "chip"\n'
        '[link.acc]\nlatency_s = 1e-5\nbandwidth_bytes_per_s = 12e9\n[spec.chip]\nbase = "npu"\nop_overhead_s = 1.0\n'
    )
    path = tmp_path / "platform.toml"
    path.write_text(valid)
    assert not breaks(read_platform, path)
    words = valid.replace("\n", " \n ").split(" ")
    odd = [
        "nan",
        "-inf",
        "-1",
        '""',
        "[]",
        "{}",
        "true",
        "1979-05-27",
        "99999999999999999999",
        "1e400",
        "[[device]]",
        '"',
    ]
    for seed in range(SEEDS_PER_KIND):
        rng = random.Random(f"toml {seed}")
        mutated = list(words)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.choice([*odd, "", *words])
        content = " ".join(mutated).encode()
        path.write_bytes(mangle(content, rng) if rng.random() < 0.3 else content)
        try:
            breaks(read_platform, path)
        except Exception as error:
            raise AssertionError(f"toml seed {seed}: {type(error).__name__}: {error}") from error


def test_mutated_arrays_are_refused_by_name(tmp_path: Path) -> None:
    """A sibling that was changed by a single byte is noticed, whatever the byte."""
    base = problem()
    names = tuple(f"op{number}" for number in range(40))
    graph = OpGraph.from_edges(names, [(names[0], name) for name in names[1:]])
    costs = CostTable(base.costs.kinds, np.ones((40, 2)), np.ones((1, 2)), np.ones(40))
    path, sibling = tmp_path / "p.json", tmp_path / "p.npz"
    write_problem(Problem(graph, base.platform, costs), path, arrays="npz")
    assert not breaks(read_problem, path)
    content = sibling.read_bytes()
    for seed in range(50):
        rng = random.Random(seed)
        at = rng.randrange(len(content))
        sibling.write_bytes(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
        assert breaks(read_problem, path)

"""The example platform with two nodes of two accelerators, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import oracle
import pytest

from placekit.cost_models.analytic import Analytic
from placekit.io.files.platform_toml import read_platform
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.files.result_json import read_result
from placekit.model.graph import OpGraph
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate

PLATFORM = Path(__file__).parents[2] / "examples" / "platform_2x2_gpus.toml"


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    """Return a problem file: six layers that one device can hold, with tensors of 10 MB between them."""
    names = [f"layer.{i}" for i in range(6)]
    graph = OpGraph.from_edges(names, pairwise(names), op_types=["MatMul"] * 6)
    graph = graph.replace(op_flops=[1e12, 3e12, 2e12, 2e12, 1e12, 4e12], tensor_bytes=[1e7] * 5)
    platform = read_platform(PLATFORM)
    costs = Analytic.from_platform_file(platform).cost_table(graph, platform)
    path = tmp_path / "layers.json"
    write_problem(Problem(graph, platform, costs), path)
    return path


def test_solve_and_verify(call: Callable[..., Any], layers: Path, tmp_path: Path) -> None:
    """The answer is the optimum of brute force, proven; `verify` agrees; `explain` and `show` run."""
    done = call("solve", layers, "-o", "out.json", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "optimal"
    assert result["objective"] == pytest.approx(oracle.brute_force(read_problem(layers)), rel=1e-9)
    assert call("verify", "out.result.json", layers).returncode == 0
    assert call("explain", "out.result.json", layers).returncode == 0
    shown = call("show", PLATFORM)
    assert shown.returncode == 0
    assert "any between nodes" in " ".join(shown.stdout.split())


def test_the_makespan_is_drawn_with_its_links(call: Callable[..., Any], layers: Path) -> None:
    """Two samples' worth of layers beside each other: solved, verified, explained, and drawn with every transfer."""
    done = call("solve", layers, "--objective", "makespan", "--time-limit", "20")
    assert done.returncode == 0, done.stderr
    checks = ("layers.result.json", layers, "--objective", "makespan")
    assert call("verify", *checks).returncode == 0
    assert call("explain", *checks).returncode == 0
    shown = call("show", "layers.result.json", "--gantt", "layers.svg", "--trace", "layers.trace.json")
    assert shown.returncode == 0, shown.stderr
    assert Path("layers.svg").read_text().count("layer.") >= 6


def test_offload_latency_knows_no_links_and_says_so(call: Callable[..., Any], layers: Path) -> None:
    """One line, with the link."""
    done = call("solve", layers, "--objective", "offload-latency")
    assert done.returncode == 2
    assert "'offload-latency' knows no direct links" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_language_model_over_both_nodes(call: Callable[..., Any], tmp_path: Path) -> None:
    """140 GB of weights take two devices at least; one sample passes through all of them over their links."""
    done = call(
        "llm", "llama3-70b", "--platform", PLATFORM, "--time-limit", "6", "-o", "out.json", "--problem", "llm.json",
        "--details",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for told in ("first token", "per token", "in flight at most"):
        assert told in done.stdout
    problem, result = read_problem(tmp_path / "llm.json"), read_result(tmp_path / "out.result.json")
    assert result.placement is not None
    assert evaluate(problem, result.placement).violations == ()
    nodes = [problem.platform.devices[d].node for d in result.placement.device_of_op[problem.graph.order].tolist()]
    assert len(set(result.placement.device_of_op.tolist())) > 1
    assert sum(a != b for a, b in pairwise(nodes)) <= 2

"""Valid files of every kind that placekit reads, and the commands that read them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from placekit.io.files.costs_json import write_costs
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.files.workload_json import write_workload
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.model.problem import Problem

PLATFORM = """
[[device]]
name = "left"
kind = "cpu"
host = true
openvino = "CPU"
memory = "1 GiB"
[[device]]
name = "right"
kind = "other"
host = true
openvino = "CPU"
spec = "cpu-8core-f32"
[link.other]
latency_s = 1e-6
bandwidth_bytes_per_s = 12e9
"""
SUITE = """
name = "small"
time_limit_s = 2.0
[[model]]
family = "chains"
params = { num_ops = 30, num_devices = 2 }
[[objective]]
name = "throughput"
params = { overlap = true }
[[method]]
name = "single"
[[method]]
name = "random:20"
warm_start = "single"
seeds = [0, 1]
"""
SMALL = ("--param", "hidden=8", "--param", "samples=4", "--bound", "0")
ON = ("--platform", "platform.toml", "--costs", "analytic")


@dataclass(frozen=True, slots=True)
class Kind:
    """Files of one kind, and what is done with them.

    Parameters
    ----------
    files
        Those of which one is broken.
    uses
        Arguments of ``placekit``; ``load FOLDER`` is `placekit.runtime.load`.
    """

    files: tuple[str, ...]
    uses: tuple[tuple[str, ...], ...]


KINDS: Mapping[str, Kind] = {
    "ir": Kind(
        ("model.xml", "model.xml", "model.bin"),
        (
            ("show", "model.xml"),
            ("solve", "model.xml", *ON, "-m", "greedy", "--json"),
            ("problem", "model.xml", *ON, "-o", "again.json"),
            ("export", "model.xml", "placement.json", "--platform", "platform.toml", "-o", "again.bundle"),
        ),
    ),
    "onnx": Kind(
        ("model.onnx",),
        (("show", "model.onnx"), ("solve", "model.onnx", *ON, "-m", "greedy")),
    ),
    "pt2": Kind(
        ("program.pt2",),
        (
            ("show", "program.pt2"),
            ("solve", "program.pt2", *ON, "-m", "greedy"),
            ("export", "program.pt2", "program.placement.json", *ON[:2], "--to", "torch-pipeline", "-o", "again"),
        ),
    ),
    "problem": Kind(
        ("problem.json", "arrays.json", "arrays.npz"),
        (
            ("show", "problem.json"),
            ("show", "arrays.json", "--json"),
            ("solve", "problem.json", "-m", "greedy"),
            ("solve", "arrays.json", "-m", "local-search", "--time-limit", "1"),
            ("verify", "result.json", "problem.json"),
        ),
    ),
    "workload": Kind(
        ("workload.json",),
        (("show", "workload.json"), ("solve", "workload.json", "-m", "greedy", "--json")),
    ),
    "costs": Kind(
        ("costs.json", "costs.npz"),
        (
            ("show", "costs.json"),
            ("solve", "model.xml", "--platform", "platform.toml", "--costs", "costs.json", "-m", "greedy"),
        ),
    ),
    "placement": Kind(
        ("placement.json",),
        (
            ("show", "placement.json"),
            ("solve", "problem.json", "-m", "greedy", "--warm-start", "placement.json"),
            ("show", "placement.json", "--graph", "graph.html", "--of", "problem.json"),
            ("export", "model.xml", "placement.json", "--platform", "platform.toml", "-o", "again.bundle"),
            ("export", "problem.json", "placement.json", "--to", "model-explorer", "-o", "map.json"),
        ),
    ),
    "result": Kind(
        ("result.json",),
        (
            ("show", "result.json"),
            ("show", "result.json", "--json"),
            ("show", "result.json", "--plot", "loads.svg"),
            ("show", "result.json", "--graph", "graph.html", "--of", "problem.json"),
            ("verify", "result.json", "problem.json", "--steps", "1000"),
            ("explain", "result.json", "problem.json", "--time-limit", "0"),
        ),
    ),
    "platform": Kind(
        ("platform.toml",),
        (("show", "platform.toml"), ("solve", "model.xml", *ON, "-m", "greedy")),
    ),
    "suite": Kind(("suite.toml",), (("bench", "suite.toml", "--dry-run", "-o", "other"),)),
    "rows": Kind(
        ("results/rows.jsonl",),
        (("report", "results", "-o", "report.html"), ("report", "results", "-o", "report.html", "--json")),
    ),
    "policy": Kind(
        ("policy.pt",),
        (
            ("solve", "problem.json", "-m", "policy:policy.pt", "--time-limit", "2"),
            ("learn", "problem.json", "--policy", "policy.pt", "--episodes", "0", *SMALL, "-o", "again.json"),
            ("learn", "problem.json", "--resume", "policy.pt", "--episodes", "2", *SMALL, "-o", "again.json"),
        ),
    ),
    "bundle": Kind(("made.bundle/manifest.json",), (("load", "made.bundle"),)),
    "pipeline": Kind(("made.pipeline/manifest.json",), (("load", "made.pipeline"),)),
}


def make_files(folder: Path, command: Callable[[tuple[str, ...]], None]) -> None:
    """Write a valid file of every kind into `folder`, where `command` runs ``placekit`` with arguments."""
    (folder / "platform.toml").write_text(PLATFORM)
    (folder / "suite.toml").write_text(SUITE)
    write_workload(_small(), folder / "workload.json")
    _write_models(folder)
    command(("problem", "model.xml", *ON, "-o", "problem.json"))
    problem = read_problem(folder / "problem.json")
    write_problem(problem, folder / "arrays.json", arrays="npz")
    write_costs(problem.costs, problem.graph, folder / "costs.json", arrays="npz")
    command(("solve", "problem.json", "-m", "bound", "--certificate", "-o", "placement.json"))
    (folder / "placement.result.json").rename(folder / "result.json")
    command(("solve", "program.pt2", *ON, "-m", "greedy", "-o", "program.placement.json"))
    command(("export", "model.xml", "placement.json", "--platform", "platform.toml", "-o", "made.bundle"))
    command(
        ("export", "program.pt2", "program.placement.json", *ON[:2], "--to", "torch-pipeline", "-o", "made.pipeline")
    )
    command(("learn", "problem.json", "--episodes", "1", *SMALL, "--policy-out", "policy.pt", "-o", "learned.json"))
    command(("bench", "suite.toml", "-o", "results"))


def mend_digest(document: dict[str, Any], arrays: bytes) -> None:
    """Let a JSON file expect `arrays` beside it, so that they are read however they were broken."""
    document["arrays"]["blake2b"] = hashlib.blake2b(arrays, digest_size=16).hexdigest()


def _small() -> Problem:
    graph = OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    platform = Platform((Device("ACC.0", "accelerator", memory_bytes=100.0), Device("CPU.0", "cpu", is_host=True)))
    costs = CostTable(("accelerator", "cpu"), np.ones((3, 2)), np.array([[0.5, 0.0]] * 2), np.ones(3))
    return Problem(graph, platform, costs)


def _write_models(folder: Path) -> None:
    """Write one small network as IR, as ONNX, and as a program of PyTorch."""
    import openvino as ov
    import torch
    from openvino import opset13 as opset

    weights = np.arange(16, dtype=np.float32).reshape(4, 4)
    data = opset.parameter([1, 4], np.float32, name="in")
    value: Any = data
    for layer in range(6):  # long enough that columns of costs go into arrays of their own
        value = opset.matmul(value, opset.constant(weights, name=f"w{layer}"), False, False, name=f"mm{layer}")
        value = opset.relu(value, name=f"act{layer}")
    ov.save_model(ov.Model([opset.result(value, name="out")], [data], "small"), folder / "model.xml", False)

    onnx: Any = import_module("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["in", "w"], ["m"], name="mm"),
        helper.make_node("Relu", ["m"], ["out"], name="act"),
    ]
    ends = [[helper.make_tensor_value_info(name, kind, [1, 4])] for name in ("in", "out")]
    graph = helper.make_graph(nodes, "small", *ends, [onnx.numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx")

    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    torch.export.save(torch.export.export(layers, (torch.ones(1, 4),)), folder / "program.pt2")

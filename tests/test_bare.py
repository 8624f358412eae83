"""What the base installation does: language models, training plans, chains and proofs, without any extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import placekit as pk
from placekit.io.needs import EXTRA_OF

ROOT = Path(__file__).parents[1]
LIMIT_BYTES = 350e6
BLOCK = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
RUN = """
import contextlib, io, json, sys
from placekit.cli.main import main
for line in json.loads(sys.argv[1]):
    sys.argv[1:], said = line, io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            main()
    except SystemExit as end:
        print("CODE", end.code or 0, said.getvalue().strip().splitlines()[-1:])
"""
CARDS = ["--cards", "RTX 4090, RTX 3060", "--ram", "96 GB DDR5-5600 x2"]
WORKS = [
    ["llm", "llama3-8b", *CARDS, "--for", "llama.cpp", "-o", "a.placement.json", "--problem", "a.problem.json"],
    ["verify", "a.result.json"],
    ["show", "a.result.json"],
    ["train-plan", "7b", "--accelerator", "a100-80gb", "--devices", "8", "-o", "plan.json"],
    ["solve", "chain.problem.json"],
    ["verify", "chain.result.json", "chain.problem.json"],
]
ASKS = [
    ("solvers", ["solve", "tree.problem.json"]),
    ("solvers", ["solve", "chain.problem.json", "--method", "dp"]),
    ("plot", ["show", "a.result.json", "--gantt", "a.png"]),
    ("openvino", ["devices"]),
    ("onnx", ["solve", "m.onnx"]),
    ("torch", ["solve", "m.pt2"]),
    ("llm", ["llm", "m.gguf", *CARDS]),
    ("zoo", ["zoo", "resnet50", "-o", "r.xml"]),
    ("learned", ["learn", "--method", "hsdag", "tree.problem.json"]),
]
"""What asks for an extra."""


def write_inputs(folder: Path) -> None:
    """Write a chain, a problem that is none, and files of models."""
    names = [f"op{i}" for i in range(30)]
    chain = list(pairwise(names))
    for name, edges in {"chain": chain, "tree": [(names[i // 3], names[i + 1]) for i in range(29)]}.items():
        graph = pk.OpGraph.from_edges(names, edges)
        time_s, transfer_s = 2e-3 + 1e-5 * np.arange(30.0)[:, None], np.full((graph.num_tensors, 1), 1e-6)
        costs = pk.CostTable(("cpu",), time_s, transfer_s, np.zeros(30))
        pk.write_problem(pk.Problem(graph, pk.Platform.of(cpu=3, host="cpu"), costs), folder / f"{name}.problem.json")
    for name in ("m.onnx", "m.pt2", "m.gguf"):
        (folder / name).write_bytes(b"GGUF" + bytes(60))


def check(python: str | Path, folder: Path, before: str = "") -> None:
    """Run what works and what asks for an extra in one process of `python`."""
    write_inputs(folder)
    lines = [*WORKS, *(line for _, line in ASKS)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PLACEKIT_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [python, "-c", before + RUN, json.dumps(lines)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    ends = [line for line in done.stdout.splitlines() if line.startswith("CODE")]
    assert len(ends) == len(lines), done.stdout + done.stderr
    for line, end in zip(WORKS, ends, strict=False):
        assert end.startswith("CODE 0"), (line, end, done.stdout)
    for (extra, line), end in zip(ASKS, ends[len(WORKS) :], strict=True):
        assert end.startswith("CODE 2"), (line, end, done.stdout)
        assert f"placekit[{extra}]" in end, (line, end)
    assert "llama-server" in done.stdout


def test_what_needs_no_extra_runs_without(tmp_path: Path) -> None:
    """With every package of an extra out of sight, and the small ones of the base that only measuring needs."""
    blocked = {*EXTRA_OF, "filelock", "llvmlite", "psutil", "tokenizers", "onnxruntime"}
    check(sys.executable, tmp_path, f"BLOCKED = {blocked}\n{BLOCK}")


@pytest.mark.slow
def test_the_base_environment_is_small_and_whole(tmp_path: Path) -> None:
    """An environment of the base dependencies, pip included, takes less than 350 MB, and the same runs in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    venv.create(tmp_path / "base", with_pip=True)
    python = tmp_path / "base" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, *project["dependencies"]], check=True, timeout=500)
    files = [path for path in (tmp_path / "base").rglob("*") if path.is_file() and not path.is_symlink()]
    num_bytes = sum(path.stat().st_blocks * 512 for path in files)
    assert num_bytes + sum(path.stat().st_size for path in package_files()) < LIMIT_BYTES
    check(python, tmp_path)


def package_files() -> list[Path]:
    """Return the files of placekit itself."""
    names = subprocess.run(["git", "ls-files", "placekit", "solvers", "cost_models", "learned", "benchmarks", "cli"],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
    return [ROOT / name for name in names if (ROOT / name).is_file()]

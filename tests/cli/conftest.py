"""Fixtures of the command line tests: a way to run it, and small files to run it on."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from placekit.io.files.problem_json import write_problem
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem

COMMAND = [sys.executable, "-m", "placekit.cli.main"]


@pytest.fixture
def placekit(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``placekit ARGUMENTS`` as a user does: a process of its own, in an empty folder."""

    def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PLACEKIT_CACHE": str(tmp_path / "cache"), "COLUMNS": "80", **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line did."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``placekit ARGUMENTS`` in this process and an empty folder: quicker, what it imports stays imported."""
    from placekit.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("placekit.cost_models.profiled._SMALL_ERROR", math.inf)  # beside other tests no error is small

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["placekit", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int | None)
        return Outcome(code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve in threads; processes, which import everything first, are what one test here is about, and the runner's."""
    monkeypatch.setattr("placekit.benchmarks.workers.make_executor", ThreadPoolExecutor)


@pytest.fixture(scope="session")
def diamond() -> Problem:
    r"""Four ops on a CPU and two GPUs.

    ::

             /-- conv (gpu 1 ms, cpu 4 ms) --\
        read                                  add      read and add: cpu 1 ms, not on the gpu
             \-- pool (gpu 2 ms, cpu 3 ms) --/       every tensor: 0.25 ms over the gpu's link
    """
    graph = OpGraph.from_edges(
        ["read", "conv", "pool", "add"],
        [("read", "conv"), ("read", "pool"), ("conv", "add"), ("pool", "add")],
        name="diamond",
    )
    costs = CostTable(
        ("cpu", "gpu"),
        np.array([[1e-3, 0.0], [4e-3, 1e-3], [3e-3, 2e-3], [1e-3, 0.0]]),
        np.tile([0.0, 0.25e-3], (3, 1)),
        np.array([0.0, 1000.0, 1000.0, 0.0]),
        supported=np.array([[True, False], [True, True], [True, True], [True, False]]),
    )
    devices = (
        Device("CPU", "cpu", is_host=True),
        Device("GPU.0", "gpu", memory_bytes=4000.0),
        Device("GPU.1", "gpu", memory_bytes=4000.0),
    )
    return Problem(graph, Platform(devices, {"gpu": Link(0.25e-3, np.inf)}), costs, contiguity=Contiguity.NONE)


@pytest.fixture
def diamond_file(diamond: Problem, tmp_path: Path) -> Path:
    """Return the diamond as a problem file."""
    path = tmp_path / "diamond.problem.json"
    write_problem(diamond, path)
    return path


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small convolutional model as IR: two branches of convolutions that meet."""
    ov = pytest.importorskip("openvino")
    ops = pytest.importorskip("openvino.opset13")
    rng = np.random.default_rng(0)
    x = ops.parameter([1, 8, 32, 32], np.float32, name="image")
    branches = []
    for branch in range(2):
        y = x
        for layer in range(3):
            weights = rng.standard_normal((8, 8, 3, 3), dtype=np.float32) / 8
            y = ops.convolution(y, ops.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1], name=f"conv{branch}{layer}")
            y = ops.relu(y, name=f"relu{branch}{layer}")
        branches.append(y)
    result = ops.result(ops.add(branches[0], branches[1], name="sum"), name="out")
    path = tmp_path_factory.mktemp("model") / "tiny.xml"
    ov.save_model(ov.Model([result], [x], "tiny"), path, compress_to_fp16=False)
    return path

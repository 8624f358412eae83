"""The files of a solve: which there are after one without an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.io.files.problem_json import read_problem, write_problem

Call = Callable[..., Any]

LLM = ("llm", "--layers", "2", "--hidden", "256", "--vocab", "1000", "--ffn", "512", "--platform", "pc.toml")
SOLVERS = {
    "solve": ("solve", "diamond.problem.json", "-m", "enumerate"),
    "learn": ("learn", "diamond.problem.json", "--episodes", "1", "--param", "hidden=8", "--bound", "0"),
    "llm": (*LLM, "-m", "ilp"),
}


def _without_room(diamond_file: Path) -> None:
    """Give no device of the problem and of the platform room for what it must hold."""
    problem = read_problem(diamond_file)
    devices = tuple(each.replace(memory_bytes=1.0) for each in problem.platform.devices)
    costs = problem.costs.replace(op_memory_bytes=[10.0] * problem.graph.num_ops)
    write_problem(problem.replace(platform=problem.platform.replace(devices=devices), costs=costs), diamond_file)
    Path("pc.toml").write_text('[[device]]\nname = "GPU"\nkind = "rtx4090"\nmemory = "2 MiB"\n')


@pytest.mark.parametrize("command", SOLVERS)
def test_placement_of_an_earlier_solve_is_renamed(call: Call, diamond_file: Path, command: str) -> None:
    """It does not stand beside the result of a solve without an answer; nothing is lost, and the output says so."""
    Path("pc.toml").write_text('[[device]]\nname = "GPU"\nkind = "rtx4090"\n')
    line = (*SOLVERS[command], "-o", "d.placement.json")
    assert call(*line).returncode == 0
    first = Path("d.placement.json").read_text()
    _without_room(diamond_file)
    done = call(*line)
    assert done.returncode == 3, done.stderr
    assert not Path("d.placement.json").exists()
    assert Path("d.placement.json.old").read_text() == first
    told = "renamed the placement of an earlier solve to d.placement.json.old"
    assert told in " ".join(done.stdout.split())
    Path("d.policy.pt").unlink(missing_ok=True)
    Path("d.placement.json").write_text("{}")
    files = json.loads(call(*line, "--json").stdout)["files"]
    assert files["earlier_placement"] == "d.placement.json.old1"
    assert all(Path(name).is_file() for name in files.values()), files
    assert Path("d.placement.json.old").read_text() == first
    assert "placement" not in json.loads(call(*line, "--json").stdout)["files"]


def test_a_better_placement_stays(call: Call, diamond_file: Path) -> None:
    """A worse answer to the same problem goes beside it under the default name, and replaces it under one asked for."""
    assert call("solve", diamond_file, "-m", "enumerate").returncode == 0
    first = Path("diamond.placement.json").read_text()
    worse = call("solve", diamond_file, "-m", "single:CPU")
    assert worse.returncode == 0, worse.stderr
    assert Path("diamond.placement.json").read_text() == first
    assert "the better placement of an earlier solve in diamond.placement.json" in " ".join(worse.stdout.split())
    files = json.loads(call("solve", diamond_file, "-m", "single:CPU", "--json").stdout)["files"]
    assert files["placement"] == "diamond.single-CPU.placement.json"
    assert files["better_placement"] == "diamond.placement.json"
    assert all(Path(name).is_file() for name in files.values()), files
    files = json.loads(
        call("solve", diamond_file, "-m", "single:CPU", "-o", "diamond.placement.json", "--json").stdout
    )["files"]
    assert files["earlier_placement"] == "diamond.placement.json.old"
    assert Path("diamond.placement.json.old").read_text() == first
    assert call("solve", diamond_file, "-m", "enumerate").returncode == 0
    assert Path("diamond.placement.json").read_text() == first, "a better answer replaces a worse one"


def test_a_replaced_answer_to_another_problem_is_named(call: Call, diamond_file: Path) -> None:
    """Another objective or memory limit makes another problem, and stderr tells what its answer replaces."""
    line = ("solve", diamond_file, "-m", "enumerate")
    assert "replaces" not in call(*line).stderr
    again = call(*line)
    assert "replaces" not in again.stderr, "the same problem"
    other = call(*line, "--objective", "serial-latency", "--json")
    told = " ".join(other.stderr.split())
    assert "warning: diamond.result.json replaces the answer to diamond for throughput (" in told
    assert "which differs in: objective" in told
    assert json.loads(other.stdout)["files"]["placement"] == "diamond.placement.json"
    limited = call(*line, "--objective", "serial-latency", "--memory", "CPU=1GiB")
    assert "which differs in: device CPU" in " ".join(limited.stderr.split())

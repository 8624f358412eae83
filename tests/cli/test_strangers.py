"""Whole commands on broken files: exit code and one line, whatever is in them, and however far they are believed."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.mutations import mangle, mutate

import placekit as pk
from placekit.io.files.placement_json import placement_to_dict
from placekit.io.files.problem_json import problem_to_dict
from placekit.io.files.workload_json import workload_to_dict

CODES = {0, 2, 3, 4}


def problem() -> pk.Problem:
    """Return a small problem that the workload format can say too."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    platform = pk.Platform(
        (pk.Device("ACC.0", "accelerator", memory_bytes=100.0), pk.Device("CPU.0", "cpu", is_host=True))
    )
    costs = pk.CostTable(
        ("accelerator", "cpu"), np.ones((3, 2)), np.array([[0.5, 0.0]] * 2), np.ones(3), provenance={"source": "test"}
    )
    return pk.Problem(graph, platform, costs)


def documents() -> dict[str, Any]:
    """Return a valid file of every kind, as JSON values."""
    result = pk.solve(problem(), "greedy")
    assert result.placement is not None
    return {
        "problem": problem_to_dict(problem()),
        "workload": workload_to_dict(problem()),
        "placement": placement_to_dict(result.placement, problem=problem()),
        "result": result.to_dict(),
    }


USES: dict[str, list[list[str]]] = {
    "problem": [["show", "x.json"], ["solve", "x.json", "-m", "greedy"], ["show", "x.json", "--json"]],
    "workload": [["show", "x.json"], ["solve", "x.json", "-m", "greedy", "--json"]],
    "placement": [["show", "x.json"], ["solve", "valid.json", "-m", "greedy", "--warm-start", "x.json"]],
    "result": [
        ["show", "x.json"],
        ["show", "x.json", "--json"],
        ["show", "x.json", "--plot", "x.svg"],
        ["solve", "valid.json", "-m", "greedy", "--warm-start", "x.json"],
        ["explain", "x.json", "valid.json", "--time-limit", "0"],
    ],
}


def assert_orderly(done: Any) -> None:
    """Ask for a known exit code, one line for an error, and nothing that a terminal obeys."""
    assert done.returncode in CODES, done.stderr
    if done.returncode == 2:
        assert len(done.stderr.strip().splitlines()) >= 1
        assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    shown = done.stdout + done.stderr
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]


@pytest.mark.parametrize("kind", list(USES))
@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_commands_on_mutated_files_end_orderly(kind: str, count: int, call: Callable[..., Any], tmp_path: Path) -> None:
    """What is read is shown, solved, explained, drawn or refused."""
    made = documents()
    (tmp_path / "valid.json").write_text(json.dumps(made["problem"]))
    for use in USES[kind]:
        (tmp_path / "x.json").write_text(json.dumps(made[kind]))
        assert call(*use).returncode == 0, use
    for seed in range(count):
        rng = random.Random(f"{kind} {seed}")
        document = copy.deepcopy(made[kind])
        for _ in range(rng.randint(1, 2)):
            document = mutate(document, rng)
        content = json.dumps(document).encode()
        (tmp_path / "x.json").write_bytes(mangle(content, rng) if rng.random() < 0.1 else content)
        use = rng.choice(USES[kind])
        try:
            assert_orderly(call(*use))
        except BaseException as error:
            raise AssertionError(f"{kind} seed {seed} {use}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "valid.json", "-m", "greedy", "--seed", "-1"],
        ["solve", "valid.json", "-m", "greedy", "--seed", "99999999999999999999999"],
        ["solve", "valid.json", "-m", "greedy", "-o", ""],
        ["solve", "valid.json", "-m", "greedy", "-o", "x" * 5000],
        ["solve", "", "-m", "greedy"],
        ["solve", "x" * 5000, "-m", "greedy"],
        ["solve", "pipe.json", "-m", "greedy"],
        ["solve", "pipe.xml", "-m", "greedy"],
        ["solve", "endless.json", "-m", "greedy"],
        ["solve", "valid.json", "-m", "greedy", "--warm-start", "pipe.json"],
        ["solve", "valid.json", "-m", "policy:pipe.json"],
        ["solve", "valid.json", "-m", "greedy", "-o", "/dev/full"],
        ["show", "endless.json"],
        ["show", "sparse.json"],
        ["report", "valid.json"],
        ["report", ".", "-o", ""],
        ["bench", "pipe.toml"],
        ["bench", ""],
        ["zoo", "resnet50", "-o", ""],
        ["learn", "valid.json", "--seed", "-1"],
    ],
)
def test_odd_arguments_and_files_are_usage_errors(
    arguments: list[str], call: Callable[..., Any], tmp_path: Path
) -> None:
    """None hangs, none has a traceback."""
    (tmp_path / "valid.json").write_text(json.dumps(problem_to_dict(problem())))
    for name in ("pipe.json", "pipe.xml", "pipe.toml"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(3 << 30)
    done = call(*arguments)
    assert done.returncode == 2
    assert "rror: " in done.stderr.splitlines()[-1]


def test_a_device_as_output_stays_one(call: Callable[..., Any], tmp_path: Path, terminal: tuple[Path, int]) -> None:
    """The placement goes into it, and no result beside it."""
    (tmp_path / "valid.json").write_text(json.dumps(problem_to_dict(problem())))
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert call("solve", "valid.json", "-m", "greedy", "-o", "pipe").returncode == 0
    assert json.loads(os.read(reader, 1 << 16))["schema"] == "placekit/placement/1"
    os.close(reader)
    assert call("solve", "valid.json", "-m", "greedy", "-o", "terminal").returncode == 0
    assert json.loads(os.read(terminal[1], 1 << 16))["schema"] == "placekit/placement/1"
    assert terminal[0].is_char_device()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipe", "terminal", "valid.json"]

"""Whole commands killed at any moment (SIGKILL): files are old or new, never half, and the next call goes on."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from limits import cpu_of_ended, cpu_of_session

from placekit import runtime
from placekit.benchmarks.store import read_lines
from placekit.io.files.costs_json import read_costs
from placekit.io.files.placement_json import read_placement
from placekit.io.files.result_json import read_result
from placekit.io.models.read_model import read_model

KILLS = 10
"""One in each tenth of what a command does after its imports."""
HANG_S = 300.0
"""CPU seconds of a command that is never killed before."""
LOOK_S = 0.02
"""Seconds between two looks at how much a command has used."""

PLATFORM = "".join(
    f'[[device]]\nname = "{name}"\nkind = "cpu"\nspec = "cpu-8core-f32"\nhost = true\nopenvino = "CPU"\n'
    for name in ("left", "right")
)
SUITE = """
name = "killed"
time_limit_s = 5.0
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
seeds = [0, 1, 2, 3]
[[method]]
name = "greedy"
[[method]]
name = "random:300"
seeds = [0, 1]
"""
LEARN = ["--episodes", "60", "--checkpoint-interval", "0", "--bound", "0"]
LEARN += ["--param", "hidden=8", "--param", "samples=2", "--param", "steps=1"]


def check_solve(folder: Path) -> None:
    """Ask for whole files that say which belongs to which."""
    result, placement = folder / "x.result.json", folder / "x.json"
    if result.exists():
        assert read_result(result).placement is not None
    if placement.exists():
        assert read_placement(placement).ops
    if result.exists() and placement.exists():
        told = [json.loads(path.read_text()) for path in (result, placement)]
        read = read_result(result).placement
        assert read is not None
        same = dict(read_placement(placement).ops) == read.as_dict()
        assert same == (told[0]["placement_hash"] == told[1]["hash"])


def check_profile(folder: Path) -> None:
    """Ask for whole costs of this model."""
    if (folder / "x.costs.json").exists():
        assert read_costs(folder / "x.costs.json", read_model(folder / "tiny.xml").graph).op_time_s.sum() > 0


def check_learn(folder: Path) -> None:
    """Ask for a whole policy."""
    from placekit.learned.training.checkpoint import read_checkpoint

    if (folder / "x.pt").exists():
        assert read_checkpoint(folder / "x.pt").training is not None


def check_bench(folder: Path) -> None:
    """Ask for whole rows, each of a case of its own."""
    rows = folder / "out" / "rows.jsonl"
    cases = [row["case"] for _, row in read_lines(rows)] if rows.exists() else []
    assert len(cases) == len(set(cases)) <= 12


def check_export(folder: Path) -> None:
    """Ask for a bundle that computes, if there is one."""
    if (folder / "x.bundle").exists():
        with runtime.load(folder / "x.bundle") as pipe:
            assert pipe([np.zeros((1, 8, 32, 32), np.float32)])


COMMANDS: dict[str, tuple[list[str], Callable[[Path], None]]] = {
    "solve": (["solve", "problem.json", "-m", "random:2000", "-o", "x.json"], check_solve),
    "profile": (["profile", "tiny.xml", "--groups", "1", "-o", "x.costs.json"], check_profile),
    "learn": (["learn", "problem.json", "-o", "x.json", "--policy-out", "x.pt", *LEARN], check_learn),
    "bench": (["bench", "suite.toml", "-o", "out"], check_bench),
    "export": (["export", "tiny.xml", "ops.json", "--platform", "two.toml", "-o", "x.bundle"], check_export),
}


@pytest.fixture
def folder(model_file: Path, diamond_file: Path, tmp_path: Path) -> Path:
    """Return a folder with all that the commands read."""
    shutil.copy(diamond_file, tmp_path / "problem.json")
    for suffix in (".xml", ".bin"):
        shutil.copy(model_file.with_suffix(suffix), tmp_path / f"tiny{suffix}")
    ops = {op: "right" if "v1" in op or "u1" in op else "left" for op in read_model(model_file).graph.op_names}
    (tmp_path / "ops.json").write_text(json.dumps(ops))
    (tmp_path / "two.toml").write_text(PLATFORM)
    (tmp_path / "suite.toml").write_text(SUITE)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_killed_commands_tear_nothing_and_go_on(name: str, folder: Path) -> None:
    """Ten kills spread over all that a command does, and then one call to its end."""
    arguments, check = COMMANDS[name]
    begin_s = cpu_of_ended()
    assert _run(arguments, folder)[0] == 0
    whole_s = cpu_of_ended() - begin_s
    check(folder)
    for written in ("x.json", "x.result.json", "x.costs.json", "x.pt", "out", "x.bundle", "cache"):
        path = folder / written
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for number in range(KILLS):
        if name == "learn" and (folder / "x.pt").exists():
            arguments = [*COMMANDS[name][0], "--resume", "x.pt"]
        # most of the time is spent on imports, in which there is nothing to tear
        within = random.Random(f"{name} {number}").random()
        _run(arguments, folder, kill_after_s=whole_s * (0.4 + 0.6 * (number + within) / KILLS))
        check(folder)
    assert _run(arguments, folder)[0] == 0
    check(folder)
    if name == "bench":
        assert len([*read_lines(folder / "out" / "rows.jsonl")]) == 12
    if name == "learn":
        assert json.loads((folder / "x.result.json").read_text())["info"]["updates"] == 60
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert len(left) <= KILLS, left


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_full_disk_is_one_line_and_leaves_what_was(name: str, folder: Path) -> None:
    """No file may grow beyond some bytes: exit code 2, a line that says which file, no temporary file, nothing half."""
    arguments, check = COMMANDS[name]
    before = {path.name for path in folder.iterdir()}
    code, told = _run(arguments, folder, most_bytes=100)
    assert code == 2, told
    assert told.strip().splitlines()[-1].startswith("error: cannot write"), told
    check(folder)
    left = {path.name for path in folder.iterdir()} - before - {"cache", "out"}
    assert not [each for each in left if each.endswith(".tmp")], left


def _run(
    arguments: list[str], folder: Path, kill_after_s: float = math.inf, most_bytes: int | None = None
) -> tuple[int, str]:
    """Return the exit code and what is told, of a command that is killed when it has used so many CPU seconds."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    process = subprocess.Popen(
        [sys.executable, "-m", "placekit.cli.main", *arguments],
        cwd=folder,
        env=os.environ | {"PLACEKIT_CACHE": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509  # no threads here
    )
    while True:
        try:
            _, told = process.communicate(timeout=LOOK_S)
            break
        except subprocess.TimeoutExpired:
            if cpu_of_session(process.pid) >= min(kill_after_s, HANG_S):
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return -signal.SIGKILL, ""
    assert "Traceback" not in told, told
    return process.returncode, told

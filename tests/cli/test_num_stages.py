"""What the commands say of a placement that has more stages than devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.models.read_model import read_model

Call = Callable[..., Any]

SCATTERED = {"read": "CPU", "conv": "GPU.0", "pool": "GPU.1", "add": "CPU"}
NOTE = (
    "note: 4 stages for 3 devices: a sample is handed over 3 times, and each stage is started by itself; "
    "`placekit solve {}` makes one stage per device"
)


def told(text: str) -> str:
    """Return what was printed as one line."""
    return " ".join(text.split())


@pytest.fixture
def scattered_file(tmp_path: Path) -> Path:
    """Return a placement of the diamond whose ends are on the CPU and whose middle is not."""
    path = tmp_path / "scattered.json"
    path.write_text(json.dumps(SCATTERED))
    return path


@pytest.mark.parametrize(
    ("objective", "mend"),
    [
        ("throughput", "--contiguity acyclic"),
        ("serial-latency", "--contiguity acyclic"),
        ("makespan", "--objective throughput --contiguity acyclic"),
    ],
)
def test_solve_and_show_say_it_and_how_to_mend_it(
    call: Call, diamond_file: Path, scattered_file: Path, objective: str, mend: str
) -> None:
    """The flag that is named does what is said: the note is gone."""
    chosen = ("--objective", objective, "--contiguity", "none")
    done = call("solve", diamond_file, *chosen, "--method", f"file:{scattered_file}", "-o", "a.json")
    assert done.returncode == 0, done.stderr
    assert NOTE.format(mend) in told(done.stdout)
    assert NOTE.format(mend) in told(call("show", "a.result.json").stdout)
    mended = call("solve", diamond_file, "--objective", objective, *mend.split(), "--time-limit", "10", "-o", "b.json")
    assert mended.returncode == 0, mended.stderr
    assert "stages for" not in mended.stdout
    assert "stages for" not in call("show", "b.result.json").stdout


def test_one_stage_per_device_is_not_worth_a_line(call: Call, diamond_file: Path) -> None:
    """Also where there is no placement, or a pass back, in which every device has its turn."""
    assert "stages for" not in call("solve", diamond_file, "--method", "single", "--pin", "conv=CPU").stdout
    problem = read_problem(diamond_file)
    backward = problem.graph.replace(is_backward=np.array([False, False, True, True]))
    write_problem(problem.replace(graph=backward), diamond_file)
    done = call("solve", diamond_file, "--time-limit", "10")
    assert done.returncode == 0, done.stderr
    assert "stages for" not in done.stdout


@pytest.mark.slow
def test_export_and_time_say_it(call: Call, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose ops change sides one after another."""
    monkeypatch.setattr("placekit.runtime.timing.timing.lock_path", lambda: tmp_path / "lock")
    device = '[[device]]\nname = "{}"\nkind = "cpu"\nhost = true\nopenvino = "CPU"\n'
    (tmp_path / "two.toml").write_text("".join(device.format(name) for name in ("left", "right")))
    graph = read_model(model_file).graph
    sides = {graph.op_names[op]: ("left", "right", "right")[at % 3] for at, op in enumerate(graph.order.tolist())}
    (tmp_path / "sides.json").write_text(json.dumps(sides))
    exported = call("export", model_file, "sides.json", "--platform", "two.toml")
    assert exported.returncode == 0, exported.stderr
    count = told(exported.stdout).partition(" stages for 2 devices: a sample is handed over ")[0].rpartition(" ")[2]
    assert int(count) > 2
    options = ("--platform", "two.toml", "--rounds", "3", "--burst", "0.02", "--no-cache", "--no-baselines")
    timed = call("time", model_file, "sides.json", *options)
    assert timed.returncode == 0, timed.stderr
    assert f"note: {count} stages for 2 devices" in told(timed.stdout)
    assert "`placekit solve --contiguity acyclic`" in told(timed.stdout)

"""``placekit explain``: sentences, JSON, and how the problem of a result is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


def test_explain_says_what_decides_and_what_would_change_it(call: Call, diamond_file: Path) -> None:
    """Every heading has a sentence about this problem; pool on a GPU is the bottleneck, with 2.5 ms."""
    assert call("solve", diamond_file, "-m", "dp", "--contiguity", "acyclic").returncode == 0
    done = call("explain", "diamond.result.json", diamond_file, "--contiguity", "acyclic", "--time-limit", "0.5")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for words in (
        "what decides",
        "cut tensors",
        "single moves",
        "searching on",
        "constraints",
        "what more would bring",
    ):
        assert words in text
    assert "is the bottleneck" in text
    assert "is the fullest device" in text
    assert "One gpu more" in text
    assert "Without contiguity (acyclic)" in text
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_problem_of_the_same_name_is_found(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """Beside the result, without being named; its own objective is taken; JSON has the numbers."""
    call("solve", diamond_file)
    done = call("explain", "diamond.result.json", "--json", "--time-limit", "0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["objective_s"] == 2.5e-3
    assert found["objective_name"] == "throughput"
    assert found["contiguity"] == "none"
    assert found["num_moves_tried"] == found["num_moves"] == 8
    (tmp_path / "away").mkdir()
    shutil.move(tmp_path / "diamond.result.json", tmp_path / "away" / "other.result.json")
    done = call("explain", "away/other.result.json")
    assert done.returncode == 2
    assert "give it after the result" in done.stderr


def test_a_result_of_other_options_is_refused(call: Call, diamond_file: Path) -> None:
    """Options of `solve` that are not given again make another problem, and that is noticed."""
    call("solve", diamond_file, "--objective", "serial-latency", "--subgraph-cost", "0.01")
    done = call("explain", "diamond.result.json", diamond_file)
    assert done.returncode == 2
    assert "it is of another problem" in done.stderr
    done = call("explain", "diamond.result.json", diamond_file, "--subgraph-cost", "0.01", "--time-limit", "0")
    assert done.returncode == 0, done.stderr
    assert "is the busiest device" in done.stdout

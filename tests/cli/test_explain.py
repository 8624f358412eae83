"""``placekit explain``: sentences, JSON, and how the problem of a result is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import placekit as pk
from placekit.cli.inputs import kept_problems

Call = Callable[..., Any]


def test_explain_says_what_decides_and_what_would_change_it(call: Call, diamond_file: Path) -> None:
    """Every heading has a sentence about this problem; pool on a GPU is the bottleneck, with 2.5 ms."""
    assert call("solve", diamond_file, "-m", "dp", "--contiguity", "acyclic").returncode == 0
    asked = ("explain", "diamond.result.json", diamond_file, "--contiguity", "acyclic", "--time-limit", "0.5")
    done = call(*asked, "--details")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for words in (
        "bottleneck",
        "cut tensors",
        "single moves",
        "more search",
        "constraints",
        "what more would bring",
    ):
        assert words in text
    assert "is the bottleneck" in text
    assert "is the fullest device" in text
    assert "One gpu more" in text
    assert "Without contiguity (acyclic)" in text
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_problem_that_was_solved_is_kept(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """Neither the file nor options are said again, wherever result and problem are by then; JSON has the numbers."""
    call("solve", diamond_file, "--contiguity", "acyclic", "--memory", "gpu=3000B", "-o", "best.json")
    (tmp_path / "away").mkdir()
    shutil.move(tmp_path / "best.json", tmp_path / "away")
    shutil.move(tmp_path / "best.result.json", tmp_path / "away")
    diamond_file.unlink()
    for file in ("away/best.result.json", "away/best.json"):  # the placement stands for its result
        done = call("explain", file, "--json", "--time-limit", "0")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["objective_s"] == pytest.approx(9e-3)  # 2.5e-3 without that contiguity
        assert found["objective_name"] == "throughput"
        assert found["contiguity"] == "acyclic"
    assert call("show", "away/best.result.json", "--graph", "graph.html").returncode == 0
    assert "conv" in (tmp_path / "graph.html").read_text()
    (tmp_path / "away" / "best.result.json").unlink()
    done = call("explain", "away/best.json")
    assert done.returncode == 2
    assert "a placement does not say how good it is, and away/best.result.json is not its result" in done.stderr


def test_costs_that_were_measured_anew_are_those_of_the_result(
    call: Call, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result of a profile is explained and verified by the costs that it was solved with, model named or not."""
    assert call("solve", model_file, "--groups", "1", "-o", "r.json").returncode == 0
    shutil.rmtree(tmp_path / "cache" / "profiles")  # as if they were noisy, and old
    monkeypatch.setattr("placekit.cost_models.profiled.Profiled.cost_table", lambda *_, **__: pytest.fail("measured"))
    for told in ([], [model_file, "--groups", "1"]):
        done = call("explain", "r.json", *told, "--time-limit", "0")
        assert done.returncode == 0, done.stderr
    done = call("verify", "r.json", model_file, "--groups", "1")
    assert done.returncode == 0, done.stderr


def test_without_the_problem_the_file_of_the_same_name_is_found(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """The cache is gone, or there is another problem under the name that one is kept by: its file is read."""
    call("solve", diamond_file)
    (kept,) = (tmp_path / "cache" / "problems").iterdir()
    for content in ("{}", diamond_file.read_text().replace("0.0025", "0.0026"), None):
        kept.unlink(missing_ok=True) if content is None else kept.write_text(content)
        done = call("explain", "diamond.result.json", "--json", "--time-limit", "0")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["num_moves"] == 8
    (tmp_path / "away").mkdir()
    shutil.move(tmp_path / "diamond.result.json", tmp_path / "away" / "other.result.json")
    done = call("explain", "away/other.result.json")
    assert done.returncode == 2
    assert "give it after the result" in done.stderr


def test_only_the_latest_problems_are_kept(
    diamond: pk.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number and by size; the newest one always."""
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(kept_problems, "MOST_KEPT", 3)
    problems = [diamond.pin({"conv": device}) for device in ("CPU", "GPU.0", "GPU.1")] + [diamond]
    for age, problem in enumerate(problems):
        kept_problems.keep_problem(problem)
        path = next(path for path in (tmp_path / "problems").iterdir() if problem.content_hash in path.name)
        os.utime(path, (10**9 + age, 10**9 + age))
    assert [kept_problems.kept_problem(each.content_hash) == each for each in problems] == [False, True, True, True]
    monkeypatch.setattr(kept_problems, "MOST_BYTES", 1)
    kept_problems.keep_problem(problems[0])
    assert [kept_problems.kept_problem(each.content_hash) is not None for each in problems] == [
        True,
        False,
        False,
        False,
    ]
    assert kept_problems.kept_problem("../secret") is None


def test_a_result_of_other_options_is_refused(call: Call, diamond_file: Path) -> None:
    """Options of `solve` that are not given again make another problem, and that is noticed."""
    call("solve", diamond_file, "--objective", "serial-latency", "--subgraph-cost", "0.01")
    done = call("explain", "diamond.result.json", diamond_file)
    assert done.returncode == 2
    assert "it is of another problem" in done.stderr
    done = call("explain", "diamond.result.json", diamond_file, "--subgraph-cost", "0.01", "--time-limit", "0")
    assert done.returncode == 0, done.stderr
    assert "is the busiest device" in done.stdout


def test_a_kept_problem_is_not_written_again_and_a_large_one_never(
    diamond: pk.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there becomes the latest; what is damaged goes when it is asked for, and then is written."""
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path))
    kept_problems.keep_problem(diamond)
    (path,) = (tmp_path / "problems").iterdir()
    os.utime(path, (10**9, 10**9))
    file = path.stat().st_ino
    kept_problems.keep_problem(diamond)
    assert path.stat().st_ino == file  # a write puts another file there
    assert path.stat().st_mtime > 10**9
    path.write_text("{}")
    assert kept_problems.kept_problem(diamond.content_hash) is None
    kept_problems.keep_problem(diamond)
    assert kept_problems.kept_problem(diamond.content_hash) == diamond
    monkeypatch.setattr(kept_problems, "AT_ONCE_UP_TO", diamond.graph.num_ops - 1)
    larger = diamond.pin({"conv": "CPU"})
    kept_problems.keep_problem(larger)
    assert kept_problems.kept_problem(larger.content_hash) is None

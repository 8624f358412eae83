"""``placekit learn``: files, resume, policies, wrong methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]

QUICK = ("--param", "hidden=8", "--param", "samples=4", "--json")


def test_learn_writes_policy_placement_and_result_and_goes_on(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """The policy resumes, logs every update, and is a method of ``solve``."""
    done = call("learn", diamond_file, "--episodes", "2", "--log-dir", "log", *QUICK)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["method"] == "hsdag"
    assert told["info"]["updates"] == 2
    assert 0 < told["lower_bound"] <= told["objective"]
    policy = told["files"]["policy"]
    assert all((tmp_path / name).is_file() for name in told["files"].values())
    done = call("learn", diamond_file, "--episodes", "3", "--resume", policy, "--log-dir", "log", *QUICK)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["info"]["updates"] == 3
    lines = (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2, 3]
    done = call("solve", diamond_file, "--method", f"policy:{policy}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["objective"] is not None


def test_methods_that_do_not_learn_are_refused(call: Call, diamond_file: Path) -> None:
    """With the names of those that do."""
    done = call("learn", diamond_file, "--method", "greedy")
    assert done.returncode == 2
    assert "method 'greedy' does not learn; learned methods are hsdag" in done.stderr

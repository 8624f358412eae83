"""``placekit learn``: files, resume, policies, wrong methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contenders import Process

import placekit as pk

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


def test_learn_says_where_the_time_went(call: Call, diamond_file: Path) -> None:
    """A line per part, and seconds in JSON: what is not learning is counted, and the bound stays within its share."""
    done = call("learn", diamond_file, "--time-limit", "2", "--param", "hidden=8", "--details")
    assert done.returncode == 0, done.stderr
    parts = ("imports", "model and costs", "kernels", "learning", "lower bound", "comparison and files", "in all")
    assert all(map(str.startswith, done.stdout.splitlines()[-len(parts) :], parts)), done.stdout
    told = json.loads(call("learn", diamond_file, "--time-limit", "2", *QUICK).stdout)
    assert tuple(told["parts_s"]) == parts[:-1]
    assert told["parts_s"]["learning"] + told["parts_s"]["lower bound"] == pytest.approx(told["runtime_s"])


def test_an_answer_that_meets_its_bound_ends_the_learning(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """Copies on equal devices share the work exactly: optimal before the first update, and no policy is written."""
    platform = pk.Platform.of(acc=2)
    problem = pk.read_problem(diamond_file)
    costs = pk.CostTable(("acc",), problem.costs.op_time_s[:, :1], problem.costs.transfer_time_s[:, :1], np.ones(4))
    copies = pk.Problem(problem.graph, platform, costs, pk.Throughput(teams="equal"))
    pk.write_problem(copies, tmp_path / "copies.json")
    done = call("learn", "copies.json", "--time-limit", "60", *QUICK)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["stop_reason"]) == ("optimal", "proved")
    assert "updates" not in told["info"]
    assert "policy" not in told["files"]
    assert told["evaluations"] < 10


def test_methods_that_do_not_learn_are_refused(call: Call, diamond_file: Path) -> None:
    """With the names of those that do."""
    done = call("learn", diamond_file, "--method", "greedy")
    assert done.returncode == 2
    assert "method 'greedy' does not learn; learned methods are hsdag" in done.stderr


@pytest.fixture
def two_cpus(tmp_path: Path) -> Path:
    """Return a platform of two CPUs that share all cores."""
    device = '[[device]]\nname = "{}"\nkind = "cpu"\nspec = "cpu-8core-f32"\nhost = true\nopenvino = "CPU"\n'
    path = tmp_path / "two.toml"
    path.write_text("".join(device.format(name) for name in ("left", "right")))
    return path


def test_learn_measures_and_says_how_often(
    call: Call, model_file: Path, two_cpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placements measured and known before, the measured time beside the judged one; the second time all are known."""
    monkeypatch.setattr("placekit.runtime.timing.timing.TimedProcess", Process)
    monkeypatch.setattr("placekit.runtime.timing.timing.lock_path", lambda: tmp_path / "lock")
    arguments = ["learn", model_file, "--platform", two_cpus, "--costs", "analytic", "--reward", "measured"]
    arguments += ["--objective", "serial-latency", "--episodes", "1", "--param", "hidden=8"]
    done = call(*arguments)
    assert done.returncode == 0, done.stderr
    for text in ("known before", "2 ms measured (serial)", "judged", "1.00x", "over left alone, 2 ms"):
        assert text in " ".join(done.stdout.split())
    done = call(*arguments, "--json")
    told = json.loads(done.stdout)["info"]["measured"]
    assert told["measurements"] == 0
    assert told["cache_hits"] == told["evaluations"] > 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reward", "measured"], "--reward measured needs a model to run; diamond.problem.json is a problem file"),
        (["--reward", "guessed"], "no reward 'guessed'; rewards are judge, measured"),
    ],
)
def test_rewards_that_cannot_be_are_refused(call: Call, diamond_file: Path, arguments: list[str], message: str) -> None:
    """With the reason."""
    done = call("learn", diamond_file.name, *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_learn_can_begin_with_the_shipped_policy(call: Call, model_file: Path, two_cpus: Path) -> None:
    """By its name; without an episode it is only applied."""
    arguments = ("--platform", two_cpus, "--costs", "analytic", "--objective", "makespan", "--bound", "0")
    done = call("learn", model_file, *arguments, "--policy", "pretrained", "--episodes", "0", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["method"], told["info"]["updates"]) == ("imitation", 0)

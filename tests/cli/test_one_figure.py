"""One figure per question: whatever several commands, or several lines of one, tell of a thing is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.training.generate import chain_problem
from placekit.training.piper_json import write_piper

Call = Callable[..., Any]


def one_line(call: Call, *arguments: object) -> str:
    """Return what a command prints, as one line."""
    done = call(*arguments)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def figure(pattern: str, text: str) -> str:
    """Return the first figure that a pattern finds."""
    found = re.search(pattern, text)
    assert found is not None, (pattern, text)
    return found[1]


@pytest.mark.parametrize("options", [(), ("--objective", "serial-latency"), ("--contiguity", "none", "--teams", "any")])
def test_commands_agree_on_a_result(call: Call, diamond_file: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Objective, gap, gain and verdict of solve, explain, show, verify and their JSON are one each."""
    solved = one_line(call, "solve", diamond_file, *options, "-o", "d.json")
    document = json.loads((tmp_path / "d.result.json").read_text())
    explained = one_line(call, "explain", "d.json", "--time-limit", "0.2")
    shown, verified = one_line(call, "show", "d.result.json"), one_line(call, "verify", "d.json")
    objective = figure(r"objective ([\d.]+ [mu]?s)", solved)
    assert objective == figure(r"objective ([\d.]+ [mu]?s)", shown) == figure(r": [a-z-]+ ([\d.]+ [mu]?s)", explained)
    assert float(figure(r"objective checked ([\d.e-]+) s", verified)) == pytest.approx(document["objective"], rel=1e-12)
    verdict = document["verdict"]
    for text in (solved, explained):
        assert " ".join(verdict["sentence"].split()) in text
    assert verdict["objective"] == document["objective"]
    assert verdict["gain"] == pytest.approx(verdict["best_single_objective"] / document["objective"])
    if verdict["choice"] in ("split", "copies"):
        promised = figure(r"([\d.]+)x over", verdict["sentence"])
        listed = [
            float(each) for each in re.findall(r"(?<![\d.])([\d.]+)x(?! (?:over|as))", solved.split("verdict")[0])
        ]
        assert min(listed) == pytest.approx(float(promised), rel=0.06), "the column rounds to three digits"
    whole = json.loads(call("explain", "d.json", "--time-limit", "0", "--json").stdout)
    assert (whole["objective_s"], whole["verdict"]) == (document["objective"], verdict)


def test_costs_have_one_error(call: Call, model_file: Path) -> None:
    """Profile, solve and explain state the same error of the same costs, and the verdict says which one it means."""
    arguments = ("--groups", "2")
    profiled = one_line(call, "profile", model_file, *arguments, "-o", "c.json")
    error = figure(r"\+-(<?[\d.]+ %) between repetitions", profiled)
    solved = one_line(call, "solve", model_file, *arguments, "--costs", "c.json", "-o", "r.json")
    assert figure(r"\+-(<?[\d.]+ %) between repetitions", solved) == error
    told = json.loads(Path("r.result.json").read_text())["verdict"]
    named = re.findall(r"the error of these costs (?:is |\()([\d.]+) %", told["sentence"])
    assert all(float(each) == pytest.approx(float(error.strip("<% ")), rel=0.06) for each in named)


def test_a_training_plan_has_one_objective(call: Call, tmp_path: Path) -> None:
    """Solve, show and the slowest stage of the explanation tell the same seconds per microbatch."""
    write_piper(chain_problem(6, num_devices=6, memory_bytes=2 * 2**30, tensor_degrees=(1, 2)), tmp_path / "chain.json")
    solved = one_line(call, "train-plan", "chain.json", "--devices", "6", "--memory", "2GiB")
    shown = one_line(call, "show", "chain.plan.json")
    explained = one_line(call, "explain", "chain.plan.json", "chain.json", "--time-limit", "0")
    seconds = json.loads((tmp_path / "chain.plan.json").read_text())["objective"]
    per_microbatch = r"objective ([\d.]+ [mu]?s) per microbatch"
    assert figure(per_microbatch, solved) == figure(per_microbatch, shown)
    assert float(figure(r"is the slowest: ([\d.]+) ms", explained)) == pytest.approx(seconds * 1e3, rel=1e-4)

"""``--groups auto``: which way to cut the CPU is decided with the placement, and the answer is found again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit import runtime
from placekit.cli.inputs.objectives import ObjectiveChoice
from placekit.cost_models.openvino.devices import core_cuts

Call = Callable[..., Any]


def test_groups_are_chosen_compared_and_deployed(call: Call, model_file: Path) -> None:
    """The report has every way of cutting; what was chosen can be exported and run without saying it again."""
    done = call("solve", model_file, "--groups", "auto", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    compared = result["info"]["compared"]
    assert len(compared) == len(core_cuts())
    assert result["objective"] == min(each["objective_s"] for each in compared if each["objective_s"] is not None)
    assert result["info"]["bound_of_all_s"] <= result["objective"] * (1 + 1e-9)
    # groups may be teams: without limits a whole copy on each, as the runtime has it, is as good as all work shared out
    assert result["objective"] == pytest.approx(result["info"]["bound_of_all_s"], rel=1e-6)
    shown = call("show", "tiny.result.json")
    assert shown.returncode == 0, shown.stderr
    assert f"best: {_best(result)}" in " ".join(shown.stdout.split())
    exported = call("export", model_file, "tiny.placement.json", "--groups", "auto")
    assert exported.returncode == 0, exported.stderr
    with runtime.load("tiny.bundle") as pipe:
        assert pipe([np.zeros((1, 8, 32, 32), np.float32)]).popitem()[1].shape == (1, 8, 32, 32)


def test_devices_of_a_model_may_be_teams_unless_said_otherwise() -> None:
    """Equal devices may share the samples of a throughput; another objective or ``--teams`` change that."""
    assert ObjectiveChoice().for_model().teams == "equal"
    assert ObjectiveChoice("throughput").for_model().teams == "equal"
    assert ObjectiveChoice(teams="off").for_model().teams == "off"
    assert ObjectiveChoice("serial-latency").for_model().teams is None


def _best(result: dict[str, Any]) -> str:
    return next(str(each["name"]) for each in result["info"]["compared"] if each["objective_s"] == result["objective"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "two"], "--groups two: it is a number of groups, or auto"),
        (["--groups", "auto", "--precision", "f32,bf16"], "--groups auto takes one precision for all groups"),
        (["--groups", "auto", "-d", "CPU"], "-d and --groups both choose the devices"),
        (["--groups", "auto", "--warm-start", "p.json"], "a start is for one way of cutting the cores"),
    ],
)
def test_what_does_not_go_with_auto_is_refused(
    call: Call, model_file: Path, arguments: list[str], message: str
) -> None:
    """One line, exit code 2."""
    done = call("solve", model_file, *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_only_solve_chooses(call: Call, model_file: Path, tmp_path: Path) -> None:
    """Other commands need a number, or an answer with devices that this machine has."""
    done = call("profile", model_file, "--groups", "auto")
    assert done.returncode == 2
    assert "--groups auto: only solve chooses" in " ".join(done.stderr.split())
    (tmp_path / "p.json").write_text(json.dumps({"conv00": "CPU[4095]"}))
    done = call("export", model_file, tmp_path / "p.json", "--groups", "auto")
    assert done.returncode == 2
    assert "which no way of cutting the cores of this machine gives" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_memory_of_the_cpu_is_that_of_each_group(call: Call, model_file: Path) -> None:
    """A limit below the weights and outputs of one convolution is infeasible however the cores are cut."""
    done = call("solve", model_file, "--groups", "auto", "--memory", "CPU=1KiB")
    assert done.returncode == 3, done.stderr
    assert "largest device that can run them has: 1 KiB" in done.stdout
    ways = [line for line in done.stdout.splitlines() if " of " in line and line.endswith("infeasible")]
    assert len(ways) == len(core_cuts())

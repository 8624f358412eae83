"""Training plans from the command line: exit codes, files, pictures, the suite."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from placekit.cli.main import app
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError, UnknownNameError
from placekit.training.generate import chain_problem
from placekit.training.piper_json import write_piper


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of Piper's in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chain.json"
    write_piper(chain_problem(6, num_devices=6, memory_bytes=2 * 2**30, tensor_degrees=(1, 2)), path)
    return path


def run(*arguments: str) -> tuple[int, str]:
    """Return exit code and standard output; what else is told goes to stderr."""
    found = CliRunner().invoke(app, list(arguments), catch_exceptions=True)
    if isinstance(found.exception, PlacekitError):
        raise found.exception
    return found.exit_code, found.stdout


def test_solve_show_explain(source: Path, tmp_path: Path) -> None:
    """A plan is solved, shown, drawn, traced and explained."""
    code, output = run("train-plan", str(source), "--devices", "6", "--memory", "2GiB")
    assert code == 0
    assert "optimal (stopped: proved)" in output
    plan = tmp_path / "chain.plan.json"
    assert json.loads(plan.read_text())["schema"] == "placekit/training-plan/1"
    code, output = run("show", str(plan), "--plot", "p.png", "--gantt", "g.svg", "--trace", "t.json")
    assert code == 0
    assert re.search(r"^bound +15\.5377 ms \(DP over ideals\)$", output, re.MULTILINE)
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("p.png", "g.svg", "t.json"))
    code, output = run("explain", str(plan), str(source))
    assert code == 0
    assert "is the slowest" in output
    assert "twice the memory" in output


def test_exit_codes(source: Path) -> None:
    """3 with the bytes that lack where nothing fits; 4 where the limit comes before a plan."""
    code, output = run("train-plan", str(source), "--memory", "1MiB")
    assert code == 3
    assert output.count("no plan fits: 6 devices need more than") == 1
    assert "more than the limit of 1 MiB" in output
    code, _ = run("train-plan", str(source), "--time-limit", "0")
    assert code == 4


def test_schedule_and_json(source: Path) -> None:
    """`--schedule` puts the step into the result; stdout is one object."""
    code, output = run("train-plan", str(source), "--schedule", "1f1b", "--microbatches", "24", "--json")
    assert code == 0
    step = json.loads(output)["info"]["step"]
    assert step["bound_s"] <= step["step_s"]


def test_named_transformer_tells_its_assumptions(source: Path) -> None:
    """A model without a file, in one command."""
    code, output = run("train-plan", "7b", "--devices", "32")
    assert code == 0
    assert output.startswith("Train in ")
    assert "assumptions about model and machine: --details" in output
    code, output = run("train-plan", "7b", "--devices", "32", "--details")
    assert code == 0
    assert "assumed:" in output
    assert "data sheet" in output


def test_options_that_contradict_are_refused(source: Path) -> None:
    """An accelerator for a file, a size that is none; `solve` names the command."""
    with pytest.raises(InvalidProblemError, match="goes with a named transformer"):
        run("train-plan", str(source), "--accelerator", "a100-80gb")
    with pytest.raises(PlacekitError, match="--memory"):
        run("train-plan", str(source), "--memory", "much")
    with pytest.raises(InvalidFileError, match=r"`placekit train-plan .*chain\.json` plans it"):
        run("solve", str(source))
    with pytest.raises(UnknownNameError, match="`placekit train-plan` plans"):
        run("solve", "7b", "--objective", "training-plan")


@pytest.mark.slow
def test_bench_training_resumes(source: Path, tmp_path: Path) -> None:
    """Rows are appended once, and the table compares methods with the optimum."""
    arguments = (
        "bench",
        "training",
        "-o",
        "results",
        "--workload",
        "recurrent-2x8",
        "-m",
        "dp",
        "-m",
        "equal-split",
    )
    code, output = run(*arguments, "--time-limit", "20")
    assert code == 0
    assert "24 of 24 cases have a row" in output
    rows = tmp_path / "results" / "rows.jsonl"
    assert len(rows.read_text().splitlines()) == 24
    assert run(*arguments, "--time-limit", "20")[0] == 0
    assert len(rows.read_text().splitlines()) == 24
    code, table = run("report", str(rows), "--table", "plans")
    assert code == 0
    assert "recurrent-2x8" in table

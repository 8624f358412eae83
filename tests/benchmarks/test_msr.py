"""The benchmark on the public workloads: cases, rows that survive a crash, the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from placekit.benchmarks import measure
from placekit.benchmarks.msr import MsrCase, msr_cases, read_rows, run_cases
from placekit.benchmarks.msr_table import markdown_tables
from placekit.benchmarks.rows import append_row, read_lines
from placekit.cli.main import app
from placekit.errors import InvalidFileError

BERT = "throughput/layer_bert24_inference.json"


def test_a_row_says_what_was_solved_and_what_came_out(workloads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimum of the smallest workload, proven, with its trace and the machine; repeated as if it were quick."""
    monkeypatch.setattr(measure, "FIRST_S", math.inf)
    monkeypatch.setattr(measure, "QUICK_S", math.inf)
    (row,) = run_cases(workloads, [MsrCase(BERT, "throughput", "acyclic", "dp", 60.0)])
    assert row["objective_s"] == pytest.approx(17.78990625e-3)
    assert row["status"] == "optimal"
    assert row["proven_gap"] <= 1e-6
    assert len(row["runtimes_s"]) == 5
    assert row["trace"][-1][1] == row["objective_s"]
    assert row["machine"]["cores"] >= 1
    table = markdown_tables({MsrCase(BERT, "throughput", "acyclic", "dp", 60.0): row})
    assert "| layer_bert24_inference | 17.7899 =;" in table


def test_the_experts_split_is_a_case_where_there_is_one(workloads: Path) -> None:
    """Layer graphs have one, operator graphs do not; a training graph takes the one of its inference graph."""
    cases = [case for case in msr_cases(workloads) if case.method == "file"]
    assert {case.workload for case in cases} == {
        f"throughput/layer_{name}_{mode}.json"
        for name in ("bert24", "resnet50", "inceptionv3")
        for mode in ("inference", "training")
    }
    rows = {row["workload"]: row for row in run_cases(workloads, cases)}
    assert rows["throughput/layer_resnet50_training.json"]["objective_s"] == pytest.approx(112.108e-3, rel=1e-5)
    assert rows["throughput/layer_inceptionv3_training.json"]["objective_s"] == pytest.approx(213.654e-3, rel=1e-5)


def test_a_stopped_benchmark_goes_on_where_it_was(workloads: Path, tmp_path: Path) -> None:
    """Rows that are there are not made again, and half a line of a killed run does no harm."""
    rows = tmp_path / "rows.jsonl"
    arguments = [
        "bench",
        "msr",
        str(workloads),
        "-o",
        str(rows),
        "--workload",
        "throughput/layer_bert24_inf",
        "-m",
        "dp",
        "-m",
        "dpl",
    ]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "2 cases, 0 already" in first.output
    content = rows.read_bytes()
    kept = content[: content.index(b"\n") + 1]
    rows.write_bytes(kept + b'{"benchmark": "ms')
    second = CliRunner().invoke(app, arguments)
    assert "2 cases, 1 already" in second.output
    assert rows.read_bytes().startswith(kept)
    assert len(read_rows(rows)) == 2
    third = CliRunner().invoke(app, [*arguments, "--table"])
    assert "17.7899 =" in third.output


def test_rows_are_appended_whole(tmp_path: Path) -> None:
    """An unfinished last line is cut off before the next row; a broken finished line is named."""
    path = tmp_path / "rows.jsonl"
    append_row(path, {"a": 1})
    with path.open("ab") as file:
        file.write(b'{"a": 2')
    append_row(path, {"a": 3})
    assert [row for _, row in read_lines(path)] == [{"a": 1}, {"a": 3}]
    path.write_text(path.read_text() + "[1]\n")
    with pytest.raises(InvalidFileError, match="line 3: not a JSON object"):
        list(read_lines(path))
    path.write_text("nonsense\n")
    with pytest.raises(InvalidFileError, match="line 1: not JSON"):
        list(read_lines(path))
    path.write_text(json.dumps({"workload": "x"}) + "\n")
    with pytest.raises(InvalidFileError, match="line 1: no row of this benchmark"):
        read_rows(path)


def test_a_folder_without_workloads_is_refused(tmp_path: Path) -> None:
    """The message says where workloads should be."""
    with pytest.raises(InvalidFileError, match="no workloads"):
        msr_cases(tmp_path)

"""Fine-tuning of the shipped policy: its cases, rows and table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placekit.benchmarks.families import generate
from placekit.benchmarks.fine_tuning import MODELS, TuningCase, cases, markdown_table, read_rows, run_case
from placekit.benchmarks.rows import append_row
from placekit.errors import InvalidFileError
from placekit.objectives import SerialLatency

CASE = TuningCase("resnet50", is_pretrained=True, time_limit_s=60.0, seed=0)


def test_training_begins_where_the_policy_stands(tmp_path: Path) -> None:
    """The row has the optimum, the answer without training and the one with it, and is found again."""
    problem = generate("layered", 20, num_devices=2, equal=False, objective=SerialLatency())
    case = replace(CASE, time_limit_s=0.5)
    row = run_case(case, problem)
    assert 0 < row["optimum_s"] <= min(row["zero_shot_s"], row["objective_s"])
    append_row(tmp_path / "rows.jsonl", row)
    assert list(read_rows(tmp_path / "rows.jsonl")) == [case]
    assert run_case(replace(case, is_pretrained=False), problem)["zero_shot_s"] is None


def test_table_has_every_way_and_model() -> None:
    """Percent above the optimum, mean and interval over the seeds."""
    rows = {
        replace(CASE, seed=seed): {"optimum_s": 1.0, "zero_shot_s": 1.5, "objective_s": seconds}
        for seed, seconds in enumerate((1.1, 1.2))
    }
    lines = markdown_table(rows).splitlines()
    assert lines[2] == "| `policy:pretrained`, no training | 50.0 (50.0 to 50.0) | - | - |"
    assert lines[3] == "| `gdp` from `policy:pretrained`, 60 s | 15.0 (10.0 to 20.0) | - | - |"


def test_cases_are_five_seeds_of_every_model() -> None:
    """Each once."""
    found = cases(is_pretrained=True)
    assert len(set(found)) == len(found) == 5 * len(MODELS)


def test_foreign_rows_are_named(tmp_path: Path) -> None:
    """A row of another benchmark is an error that names the line."""
    append_row(tmp_path / "rows.jsonl", {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 1: no row of this benchmark"):
        read_rows(tmp_path / "rows.jsonl")

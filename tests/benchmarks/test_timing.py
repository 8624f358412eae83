"""The timing benchmark: cases, rows, resuming, what it prints; with measurements that are made up."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks import timing, timing_cases
from placekit.benchmarks.timing import describe, read_rows, summary
from placekit.benchmarks.timing_cases import PARTS, TimingCase
from placekit.errors import ExecutionError, InvalidFileError

CASE = TimingCase("prediction", "resnet50", "equal", "threads", is_quick=True)


def prediction_row(errors: list[tuple[float, float]]) -> dict[str, Any]:
    """Return a row of splits of 1 s, 2 s, ... with these errors before and after."""
    splits = [
        {
            "measured_s": at,
            "predicted_s": at * (1 + before),
            "calibrated_s": at * (1 + after),
            "error_before": before,
            "error_after": after,
        }
        for at, (before, after) in enumerate(errors, 1)
    ]
    found = {"error_before": 0.1, "error_after": 0.02}
    return {**asdict(CASE), "splits": splits, "calibration": found, "noisy": False, "error": None, "case_s": 3.0}


def test_cases_cover_what_the_benchmark_is_for() -> None:
    """At least 30 splits of 5 models by threads, processes and serially; two parts of three models."""
    cases = timing_cases.timing_cases(tuple(PARTS), None, is_quick=False)
    assert len(set(cases)) == len(cases) == 36
    for executor in ("threads", "processes", "serial"):
        mine = [case for case in cases if case.part == "prediction" and case.executor == executor]
        assert len({case.model for case in mine}) == 5
        assert len(mine) * len(timing_cases._SPLITS) >= 30
    assert {case.model for case in cases if case.part == "unequal"} == {"resnet50", "inception_v3", "bert_base"}
    assert timing_cases.timing_cases(("speedup",), ("bert_base",), is_quick=True)[0].is_quick


def test_summary_adds_up_all_splits_of_an_executor() -> None:
    """Mean and largest errors are over splits; one that swaps places lowers the rank correlation."""
    (line,) = summary([prediction_row([(0.1, 0.0), (0.2, 0.04), (-0.3, 0.02)])])
    for text in ("threads", "3 splits of 1 models", "20.0% before, 2.0% after", "largest 30.0%, 4.0%", "0.500, 1.000"):
        assert text in line


def test_line_of_a_row_says_what_came_out() -> None:
    """Every part has its numbers, a failure its error."""
    assert "error 10.0% before, 2.0% after" in describe(CASE, prediction_row([]))
    row: dict[str, Any] = {"case_s": 1.0, "error": None, "noisy": True}
    told = row | {"speedup_over_best_single": 1.9, "best_single": "single A"}
    assert describe(TimingCase("speedup", "m", "equal", "threads", False), told).endswith("1.90x over single A NOISY")
    told = row | {"speedup_over_equal_halves": 1.4, "speedup_over_best_random": None}
    line = describe(TimingCase("unequal", "m", "unequal", "threads", False), told)
    assert "1.40x over equal halves, unknown over the best random cut" in line
    plan = {"num_stages": 6, "cold_s": 0.5, "cached_s": 0.25}
    line = describe(TimingCase("compile", "m", "equal", "serial", False), row | {"plans": [plan], "noisy": False})
    assert line.endswith("6: 0.50 s, 0.25 s cached")
    assert "FAILED: it broke" in describe(CASE, {"case_s": 1.0, "error": "it broke"})


def test_run_goes_on_after_a_failure_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failing case writes its error; the next run repeats that one alone."""
    rows, calls = tmp_path / "rows.jsonl", list[TimingCase]()
    is_broken = True

    def run(case: TimingCase, _folder: Path) -> dict[str, Any]:
        calls.append(case)
        if is_broken and case.executor == "processes":
            raise ExecutionError("stage 3 is gone")
        return {"benchmark": "timing", **prediction_row([(0.1, 0.0), (0.2, 0.1)]), **asdict(case)}

    monkeypatch.setattr(timing, "run_case", run)
    arguments = ["timing", "--parts", "prediction", "--models", "resnet50", "--rows", str(rows), "--quick"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="2 of 5 cases failed"):
        timing.main()
    assert "FAILED: ExecutionError: stage 3 is gone" in capsys.readouterr().out
    assert len(calls) == len(rows.read_text().splitlines()) == 5
    is_broken = False
    calls.clear()
    timing.main()
    assert {case.executor for case in calls} == {"processes"}
    assert len(read_rows(rows)) == 5
    assert "processes  4 splits of 1 models" in capsys.readouterr().out
    calls.clear()
    timing.main()
    assert not calls


def test_rows_of_something_else_are_refused(tmp_path: Path) -> None:
    """The message names file, line and what is missing."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"part": "speedup"}\n')
    with pytest.raises(InvalidFileError, match=r"rows\.jsonl, line 1: .* lacks 'model'"):
        read_rows(path)


def test_models_that_have_no_case_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A misspelt model ends at once."""
    monkeypatch.setattr(sys, "argv", ["timing", "--models", "vgg", "--rows", str(tmp_path / "rows.jsonl")])
    with pytest.raises(SystemExit, match=r"no cases of speedup, .* for models vgg and threads, processes, serial"):
        timing.main()

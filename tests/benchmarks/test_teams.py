"""The benchmark of teams: its cases, and what its rows say together; a smoke run of one part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.teams import BENCHMARK, PARTS, TeamCase, describe, run_case, summary, team_cases


def test_cases_are_those_of_the_tables() -> None:
    """Fifteen models against the runtime, three limits and six plans of five models."""
    cases = team_cases(tuple(PARTS), None)
    counts = {part: sum(case.part == part for case in cases) for part in PARTS}
    assert counts == {"groups": 15, "mixed": 15, "memory": 15, "prediction": 30}
    assert len(set(cases)) == len(cases)
    assert team_cases(["memory"], ["resnet50"]) == [
        TeamCase("memory", "resnet50", share) for share in ("40", "60", "80")
    ]


def test_summary_has_a_line_per_part() -> None:
    """Medians and least ratios, states of limits, mean errors; a limit without a plan has no ratio."""

    def row(part: str, **told: Any) -> dict[str, Any]:
        return {"part": part, "model": "m", "variant": "", "case_s": 1.0, "error": None, "noisy": False, **told}

    rows = [
        row("groups", over_best=1.1, best_other="MULTI:CPU", solved={"status": "optimal"}),
        row("groups", over_best=0.9, best_other="MULTI:CPU", solved={"status": "optimal"}),
        row("memory", solved={"status": "infeasible"}),
        row(
            "memory", over_best=0.8, best_other="x", over_best_iqr=0.01, prediction_error=0.1,
            solved={"status": "optimal", "teams": ["CPU[0]", "CPU[1]"]},
        ),
        row("prediction", error_before=-0.1, error_after=0.02),
    ]  # fmt: skip
    assert summary(rows) == [
        "groups: 2 plans, median 1.000x, least 0.900x",
        "memory: 1 plans, median 0.800x, least 0.800x",
        "memory: of 2 limits 1 infeasible, 1 optimal",
        "prediction: 1 plans, mean error 10.0% before, 2.0% after calibration",
    ]
    assert "1.100x of MULTI:CPU (optimal)" in describe(rows[0])
    assert "infeasible" in describe(rows[2])
    assert "-10.0% before, +2.0% after" in describe(rows[4])
    assert "| m | CPU\\[0], CPU\\[1] (optimal) | 0.80x of x | 0.010 | +10.0% |  |" in BENCHMARK.tables(rows[2:])
    assert "| m |  | -10.0% | +2.0% |  |" in BENCHMARK.tables(rows[2:])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["groups", "mixed", "memory"])
def test_a_quick_run_has_the_promised_keys(part: str, tmp_path: Path) -> None:
    """The numbers of a smoke run mean nothing; that they are there does."""
    pytest.importorskip("onnx")
    row = run_case(TeamCase(part, "squeezenet", "80" if part == "memory" else ""), tmp_path, is_quick=True)
    assert row["solved"]["status"] in ("optimal", "feasible")
    assert row["over_best"] > 0
    assert row["contenders"]

"""The benchmark of PyTorch programs: its cases, and what its rows say together; a smoke run of every part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.pytorch import BENCHMARK, PARTS, TorchCase, describe, run_case, summary, torch_cases


def test_cases_are_those_of_the_tables() -> None:
    """As many models as each part promises."""
    cases = torch_cases(tuple(PARTS), None)
    assert {part: sum(case.part == part for case in cases) for part in PARTS} == {
        "sums": 10, "pipelines": 3, "prediction": 4, "unequal": 3, "memory": 5
    }  # fmt: skip
    assert torch_cases(["unequal"], ["gpt2"]) == [TorchCase("unequal", "gpt2")]


def test_summary_and_tables_have_a_line_per_part() -> None:
    """Shares of models that are near, mean errors over splits, least ratios; failed cases are left out."""

    def row(part: str, error: str | None = None, **told: Any) -> dict[str, Any]:
        return {"part": part, "model": "m", "case_s": 1.0, "error": error, "noisy": False, **told}

    ratio: dict[str, Any] = {
        "over_other_iqr": 0.01,
        "prediction_error": 0.1,
        "other": "single CPU[0]",
        "status": "optimal",
    }
    rows = [
        row("sums", sum_error=0.05, sum_of_op_times_s=0.021, model_latency_s=0.02, num_distinct_ops=7),
        row("sums", sum_error=-0.2, sum_of_op_times_s=0.016, model_latency_s=0.02, num_distinct_ops=7),
        row("pipelines", over_other=1.8, **ratio),
        row("pipelines", "it broke"),
        row("prediction", errors=[0.1, -0.2], mean_error=0.15),
        row("unequal", over_other=1.4, **ratio),
        row("memory", over_other=1.3, over_other_iqr=0.02, rate=40.0),
    ]
    assert summary(rows) == [
        "sums: within 10% of the module on 1 of 2 models",
        "pipelines: 1 plans, median 1.80x, least 1.80x",
        "prediction: mean error 15.0% of 2 splits of 1 models",
        "unequal: 1 plans, median 1.40x, least 1.40x",
        "memory: 1 models, median 1.30x, least 1.30x",
    ]
    assert "sum of ops +5.0% of the module, 7 distinct ops" in describe(rows[0])
    assert "| m | 1.80x | 0.010 | +10.0% |  |" in BENCHMARK.tables(rows)
    assert "| m | 2 | 15.0% | -20.0% |  |" in BENCHMARK.tables(rows)
    assert "| m | 1.30x | 0.020 | 40.0 |  |" in BENCHMARK.tables(rows)


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("part", tuple(PARTS))
def test_a_quick_run_has_the_promised_keys(part: str, tmp_path: Path) -> None:
    """The numbers of a smoke run mean nothing; that they are there does."""
    pytest.importorskip("transformers")
    model = "vit" if part == "sums" else "gpt2"
    row = run_case(TorchCase(part, model), tmp_path, is_quick=True)
    assert describe({"part": part, "model": model, "case_s": 1.0, "error": None} | row)
    if part in ("pipelines", "unequal"):
        assert row["over_other"] > 0
        assert row["max_relative_error"] <= 1e-5

"""Benchmarks in parts: what has a row is left out, a failed case is tried again, pages show the committed rows."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks import pytorch, teams
from placekit.benchmarks.part_driver import PartBenchmark
from placekit.errors import InvalidFileError

PAGES = Path(__file__).parents[2] / "docs" / "results"


@dataclass(frozen=True)
class Case:
    """A case of the benchmark of these tests."""

    part: str
    model: str


def make(rows: Path, broken: set[str]) -> PartBenchmark:
    """Return a benchmark of two cases that measures the length of a name; names in `broken` fail."""

    def run_case(case: Case, folder: Path, *, is_quick: bool = False) -> dict[str, Any]:
        if case.model in broken:
            raise InvalidFileError(f"no model {case.model}")
        return {"length": len(case.model) + is_quick, "noisy": case.model == "bb"}

    return PartBenchmark(
        "lengths", "Lengths.", rows, Case, {"names": ("model", "length")},
        lambda parts, models: [Case(part, name) for part in parts for name in models or ("a", "bb")], run_case,
        lambda row: f"{row['length']} letters", lambda found: [f"{len(found)} names"],
        lambda row: [row["model"], str(row["length"])],
    )  # fmt: skip


def test_what_failed_is_tried_again_and_what_has_a_row_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first call ends with an error and one row that counts; the second measures the other case only."""
    rows = tmp_path / "new" / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", ["lengths", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="1 of 2 cases failed"):
        make(rows, {"a"}).main()
    assert "FAILED: InvalidFileError: no model a" in capsys.readouterr().out
    make(rows, set()).main()
    assert "2 cases, 1 to measure" in capsys.readouterr().out
    assert [json.loads(line)["model"] for line in rows.read_text().splitlines()] == ["a", "bb", "a"]
    monkeypatch.setattr(sys, "argv", ["lengths", "--table"])
    make(rows, set()).main()
    assert capsys.readouterr().out.split("\n\n") == [
        "**names**", "| model | length |  |\n| :-- | --: | --: |\n| a | 1 |  |\n| bb | 2 | noisy |", "2 names", "",
    ]  # fmt: skip


@pytest.mark.parametrize("benchmark", [teams.BENCHMARK, pytorch.BENCHMARK], ids=lambda each: each.name)
def test_pages_show_the_committed_rows(benchmark: PartBenchmark) -> None:
    """The tables of a page are printed from the rows; no rows, no tables."""
    page = (PAGES / f"{benchmark.name}.md").read_text(encoding="utf-8")
    known = benchmark.known(benchmark.rows)
    for part in benchmark.heads:
        rows = [known[case] for case in benchmark.cases([part], None) if case in known]
        assert benchmark.tables(rows).strip() in page
        assert rows or f"**{part}**" not in page

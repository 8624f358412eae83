"""The cost of training: phases, rows and table."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.rows import append_row
from placekit.benchmarks.training_cost import (
    GRAPHS,
    LEARNERS,
    SECONDS,
    cases,
    markdown_table,
    read_rows,
    run_case,
)
from placekit.benchmarks.training_cost_case import PHASES, CostCase, PhaseClock, measure
from placekit.errors import InvalidFileError

CASE = CostCase("hsdag", "layered", 1_000, SECONDS)


def row(**more: Any) -> dict[str, Any]:
    """Return what the table reads of a row."""
    told = {"update_s": 0.5, "evaluations_per_s": 2000.0, "memory_bytes": 3 * 2**20, "ended": "done"}
    return told | {"shares": dict(zip(PHASES, (0.5, 0.25, 0.15, 0.1), strict=True))} | more


def test_the_innermost_phase_counts() -> None:
    """What no phase claims is learning."""
    clock = PhaseClock()
    encode = clock.timed("encode", lambda: time.sleep(0.05))
    clock.timed("sample", encode)()
    time.sleep(0.05)
    clock.enter("judge")
    clock.leave()
    assert clock.seconds["encode"] >= 0.05
    assert clock.seconds["learn"] >= 0.05
    assert max(clock.seconds["sample"], clock.seconds["judge"]) < 0.05


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_measurement_says_where_the_time_goes(learner: str) -> None:
    """For every learner: shares that add up, and updates of more than one placement."""
    found = measure(CostCase(learner, "transformer", 40, 0.0))
    assert found["updates"] == 1
    assert found["evaluations_per_s"] * found["update_s"] > 1
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert min(found["shares"][phase] for phase in ("encode", "judge", "learn")) > 0


def test_a_process_that_fails_gives_a_row_that_says_so() -> None:
    """With the last line of its error."""
    found = run_case(CostCase("nobody", "layered", 40, 0.0))
    assert found["update_s"] is None
    assert "nobody" in found["ended"]
    assert found["commit"] is None or isinstance(found["commit"], str)


def test_table_shows_times_where_they_were_taken_and_memory_everywhere() -> None:
    """A row of memory alone has no times; one that failed says why."""
    rows = {
        CASE: row(),
        replace(CASE, learner="gdp", seconds=0.0): row(),
        replace(CASE, learner="rnn"): row(update_s=None, ended="after 900 s"),
    }
    lines = markdown_table(rows).splitlines()
    assert lines[2] == "| layered | 1,000 | `hsdag` | 2 | 2,000 | 50% | 25% | 15% | 10% | 3 MiB |"
    assert lines[3] == "| layered | 1,000 | `gdp` | - | - | - | - | - | - | 3 MiB |"
    assert lines[4] == "| layered | 1,000 | `rnn` | after 900 s | - | - | - | - | - | - |"


def test_rows_survive_the_file(tmp_path: Path) -> None:
    """Found again by their case; a row of another benchmark is an error that names the line."""
    path = tmp_path / "rows.jsonl"
    append_row(path, {"benchmark": "training-cost", "learner": "rnn", "family": "layered", "size": 9, "seconds": 0.0})
    assert list(read_rows(path)) == [CostCase("rnn", "layered", 9, 0.0)]
    assert len(cases(memory_only=True)) == len(GRAPHS) * len(LEARNERS)
    append_row(path, {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 2: no row of this benchmark"):
        read_rows(path)

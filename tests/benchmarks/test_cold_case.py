"""Cases as commands of their own, with an empty folder for kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placekit.benchmarks.plan import make_plan
from placekit.benchmarks.row_schema import RowModel
from placekit.benchmarks.solve_case import solve_case
from placekit.benchmarks.suite import read_suite
from placekit.io.reading import validated

SUITE = """
name = "first"
time_limit_s = 20.0
cold = true
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
objectives = ["makespan"]
[[model]]
family = "training-chain"
params = { num_blocks = 3 }
machines = [[4, 8.0]]
[[objective]]
name = "makespan"
[[method]]
name = "single"
[[method]]
name = "equal-split"
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_command_without_kernels_is_timed_and_then_again(tmp_path: Path) -> None:
    """The first call compiles the judge, the second does not; both are told, with the first answer."""
    (tmp_path / "suite.toml").write_text(SUITE)
    placed, planned = make_plan(read_suite(str(tmp_path / "suite.toml")), tmp_path / "results").jobs
    row = solve_case(placed)
    assert row["error"] is None
    validated(RowModel, row, "row")
    assert row["wall_s"] >= row["compile_s"] > 0
    assert row["wall_s"] > row["again_s"] > 0
    assert row["trace"][0][1] is not None
    assert row["command"].startswith("placekit bench suite.toml")
    plan = solve_case(planned)
    assert plan["error"] is None
    assert plan["objective_s"] > 0


def test_a_command_that_fails_is_an_error_row(tmp_path: Path) -> None:
    """Its last line on stderr is the reason."""
    (tmp_path / "suite.toml").write_text(SUITE)
    job = make_plan(read_suite(str(tmp_path / "suite.toml")), tmp_path / "results").jobs[0]
    row = solve_case(replace(job, case=replace(job.case, params={"no_such": 1})))
    assert row["status"] == "error"
    assert "status 2" in row["error"]
    assert "no_such" in row["error"]

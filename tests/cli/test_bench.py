"""``placekit bench SUITE``: rows, resumption, selection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SUITE = """
name = "two"
time_limit_s = 5.0
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
[[method]]
name = "greedy"
[[method]]
name = "random:30"
seeds = [0, 1]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a suite of three cases."""
    path = tmp_path / "two.toml"
    path.write_text(SUITE)
    return path


UNKNOWN = {
    ("-m", "nonsense"): "--method 'nonsense': there is none here; there are greedy, random:30",
    ("-m", "greedy", "-m", "randon:30"): "did you mean 'random:30'?",
    ("--workload", "nonsense"): "--workload 'nonsense': there is none here; there are chains",
    ("--case", "nonsense"): "--case 'nonsense': there is none here; there are ",
}


@pytest.mark.parametrize("options", UNKNOWN)
def test_option_that_chooses_nothing_is_refused(call: Call, suite: Path, options: tuple[str, ...]) -> None:
    """No silent run of 0 cases; the message lists what there is."""
    done = call("bench", suite, *options)
    assert done.returncode == 2
    assert UNKNOWN[options] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_suite_is_said_once(call: Call) -> None:
    """A file that cannot be read is not also called bad TOML."""
    done = call("bench", "gone.toml")
    assert done.returncode == 2
    assert done.stderr == "error: cannot read gone.toml: No such file or directory\n"


@pytest.mark.usefixtures("threads")
def test_report_of_what_no_row_has_is_refused(call: Call, suite: Path) -> None:
    """The names that rows have are listed; options of tables do not go with the page."""
    assert call("bench", suite, "-m", "greedy").returncode == 0
    for option, there in (
        ("--objective", "throughput"),
        ("-m", "greedy"),
        ("--workload", "chains"),
        ("--suite", "two"),
    ):
        done = call("report", "results", "--table", "gaps", option, "nonsense")
        assert done.returncode == 2
        assert f"'nonsense': there is none here; there are {there}" in done.stderr
        done = call("report", "results", option, "nonsense")
        assert done.returncode == 2
        assert "goes with --table" in done.stderr


def test_bench_writes_rows_and_continues(call: Call, suite: Path, tmp_path: Path) -> None:
    """A part first, then the rest; the third run has nothing to do; every row can be made again by its command."""
    done = call("bench", suite, "-m", "greedy")
    assert done.returncode == 0, done.stderr
    assert "1 cases, 0 already" in done.stdout
    done = call("bench", suite)
    assert "3 cases, 1 already" in done.stdout
    assert "random:30 seed 1" in done.stdout
    done = call("bench", suite, "--json")
    assert json.loads(done.stdout)["rows"] == 3
    rows = [json.loads(line) for line in (tmp_path / "results" / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    command = rows[-1]["command"].split()
    done = call(command[1], tmp_path / "results" / command[2], *command[3:], "--json")
    assert json.loads(done.stdout)["objective"] == rows[-1]["objective_s"]


def test_one_case_can_be_run_again(call: Call, threads: None, suite: Path, tmp_path: Path) -> None:
    """``--again --case ID`` adds a row for that case only, and the latest counts."""
    call("bench", suite, "-o", "out")
    rows = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    case = json.loads(rows[1])["case"]
    done = call("bench", suite, "-o", "out", "--again", "--case", case, "--json")
    assert json.loads(done.stdout)["cases"] == 1
    again = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    assert len(again) == 4
    assert json.loads(again[3])["objective_s"] == json.loads(rows[1])["objective_s"]


def test_limits_can_be_lowered_and_the_row_says_how_to_make_it_again(
    call: Call, threads: None, suite: Path, tmp_path: Path
) -> None:
    """``--time-limit`` lowers what is above it; those are cases of their own, and their commands say so."""
    suite.write_text(SUITE + "max_evaluations = 5\n")
    done = call("bench", suite, "-o", "out", "-m", "random:30", "--time-limit", "0.7")
    assert done.returncode == 0, done.stderr
    assert "2 cases, 0 already in out/rows.jsonl, at most 1 s" in done.stdout
    row = json.loads((tmp_path / "out" / "rows.jsonl").read_text().splitlines()[0])
    assert row["time_limit_s"] == 0.7
    command = row["command"].split()
    assert command[:3] == ["placekit", "bench", "two.toml"]
    done = call("bench", suite, *("out" if part == "." else part for part in command[3:]), "--json")
    assert json.loads(done.stdout)["cases"] == 1
    assert "time limit -1.0 s of a suite" in call("bench", suite, "--time-limit", "-1").stderr


def test_a_dry_run_counts_and_solves_nothing(call: Call, suite: Path, tmp_path: Path) -> None:
    """``--dry-run``: cases by method, the sum of limits, and no row; a warm start counts twice."""
    suite.write_text(SUITE + 'warm_start = "greedy"\n')
    done = call("bench", suite, "--dry-run", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "random:30 from greedy" in done.stdout
    assert "3 of 3 cases to do: at most 12.5 s of solving with --workers 2" in done.stdout
    assert not (tmp_path / "results" / "rows.jsonl").exists()
    told = json.loads(call("bench", suite, "--dry-run", "--json").stdout)
    assert (told["cases"], told["to_do"], told["at_most_s"]) == (3, 3, 25.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("swift",), "no suite 'swift'"),
        (("absent.toml",), "cannot read absent.toml"),
    ],
)
def test_bad_usage_is_one_line(call: Call, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and one line that says what is wrong."""
    done = call("bench", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_report_writes_both_files(call: Call, threads: None, suite: Path, tmp_path: Path) -> None:
    """``report FOLDER`` writes HTML and Markdown, and says where."""
    call("bench", suite, "-m", "greedy")
    done = call("report", "results", "-o", "page.html", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {"html": "page.html", "markdown": "page.md"}
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    done = call("report", "absent")
    assert done.returncode == 2
    assert "no rows" in done.stderr


@pytest.mark.usefixtures("threads")
def test_parts_of_a_suite_are_all_of_it_and_their_folders_make_one_report(
    call: Call, suite: Path, tmp_path: Path
) -> None:
    """Two shards share the cases, each in a folder of its own; the page of both has all of them."""
    for part in ("1/2", "2/2"):
        done = call("bench", suite, "--shard", part, "-o", f"part-{part[0]}")
        assert done.returncode == 0, done.stderr
    parts = [(tmp_path / f"part-{part}" / "rows.jsonl").read_text().splitlines() for part in (1, 2)]
    assert sorted(map(len, parts)) == [1, 2]
    assert len({json.loads(line)["case"] for part in parts for line in part}) == 3
    done = call("report", "part-1", "part-2")
    assert done.returncode == 0, done.stderr
    assert "3 runs on 1 problems" in (tmp_path / "report.md").read_text()
    for wrong in ("0/2", "3/2", "half"):
        assert f"--shard {wrong}: write PART/PARTS" in call("bench", suite, "--shard", wrong).stderr

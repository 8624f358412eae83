"""Tables by name: what they say about rows, and that the pages show what the commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.report.named import TABLES, growth_rows, named_tables
from placekit.benchmarks.report.sources import read_source
from placekit.benchmarks.store import Store
from placekit.model.errors import InvalidFileError, UnknownNameError

ROOT = Path(__file__).parents[2]
ROWS = sorted((ROOT / "benchmarks" / "rows").glob("*.jsonl"))


def row(label: str, objective_s: float | None, bound_s: float | None = None, **changes: Any) -> dict[str, Any]:
    """Return a row as a suite writes it, of one problem of 1,000 ops."""
    values: dict[str, Any] = {
        "schema": "placekit/row/1", "suite": "s", "problem_file": "p.json", "problem_address": "p", "model": "m",
        "platform": None, "objective": "makespan", "variant": {}, "contiguity": "none", "num_ops": 1000,
        "num_devices": 2, "single_device_s": 10.0, "label": label, "method": label, "params": {}, "file_hashes": {},
        "warm_start": None, "seed": 0, "time_limit_s": 60.0, "gap": None, "max_evaluations": None, "command": "c",
        "date": "2026", "commit": "c", "machine": {"cpu": "x", "cores": 1, "system": "y"}, "versions": {},
        "error": None, "status": "unknown" if objective_s is None else "feasible", "stop_reason": "finished",
        "objective_s": objective_s, "bound_s": bound_s, "runtime_s": 2.0, "warm_start_s": None, "evaluations": 40,
        "time_to_best_s": None if objective_s is None else 1.0,
        "trace": [] if objective_s is None else [[1.0, objective_s, None]],
    }  # fmt: skip
    values |= changes
    return values | {"case": f"{label}-{values['problem_address']}-{values['seed']}-{values['time_limit_s']}"}


def timed(label: str, **changes: Any) -> dict[str, Any]:
    """Return a row of what was executed."""
    values: dict[str, Any] = {
        "schema": "placekit/measured/1", "error": None, "measured_s": 1.0, "measured_iqr_s": 0.1,
        "prediction_error": 0.1, "model": "m", "platform": "equal", "objective": "throughput", "contiguity": "acyclic",
        "label": label, "executor": "threads", "seed": 0, "is_noisy": False,
    }  # fmt: skip
    values |= changes
    return values | {"case": f"{label}-{values['model']}-{values['contiguity']}-{values['seed']}"}


def lines(name: str, path: Path, **choice: Any) -> list[tuple[str, ...]]:
    """Return the rows of the only table of that name."""
    ((_, table),) = named_tables(name, read_source([path], **choice))
    return list(table.rows)


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Return what writes rows to a file, and returns its path."""

    def write(*rows: dict[str, Any], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        return path

    return write


def test_gaps_are_to_the_best_bound_of_all(written: Any) -> None:
    """Mean and interval over seeds; a method that is not shown still gives the bound."""
    path = written(row("a", 11.0, seed=0), row("a", 13.0, seed=1), row("b", 10.0, 10.0), row("c", None))
    assert lines("gaps", path) == [("a", "20.0 (10.0 to 30.0)"), ("b", "0.0")]
    assert lines("gaps", path, methods=["a"]) == [("a", "20.0 (10.0 to 30.0)")]
    assert lines("gaps", path, suite="s") == lines("gaps", path)
    other = written(row("a", 11.0), row("a", 10.5, 10.0, suite="t", seed=1), name="other.jsonl")
    assert lines("gaps", other, suite="s") == [("a", "10.0")]
    with pytest.raises(UnknownNameError, match="--workload 'other': there is none here; there are m"):
        lines("gaps", path, models=["other"])


def test_best_has_a_table_per_objective_and_tells_what_is_proven(written: Any) -> None:
    """A bound that is met is called proven; another one has its gap, and the method that proved it."""
    rows = [row("a", 10.0), row("b", 12.0, 8.0), row("a", 5.0, 5.0, problem_address="q", objective="throughput")]
    rows += [row("a", None, problem_address="r", objective="throughput")]
    found = {title: table.rows for title, table in named_tables("best", read_source([written(*rows)]))}
    assert found == {
        "makespan": (("m", "10000", "8000 (20 %)", "a", "b"),),
        "throughput, none": (("m", "5000", "proven", "a", "a"), ("m", "-", "-", "-", "-")),
    }


def test_instances_tell_when_a_schedule_is_close(written: Any) -> None:
    """Within 1 % of the bound with its time, above it without; the last line counts."""
    rows = [row("a", 10.05, 10.0), row("b", 12.5, trace=[[0.5, 12.5, None]])]
    assert lines("instances", written(*rows)) == [
        ("m", "1e+04", "0.498 %; 1 s", "20 %"),
        ("within 1%", "", "1 of 1", "0 of 1"),
    ]


def test_spread_is_over_the_problems_of_an_objective(written: Any) -> None:
    """Median, worst, proven problems, and how often there was no placement."""
    rows = [row("a", 10.0, 10.0, status="optimal"), row("b", 12.0)]
    rows += [row("a", 20.0, 20.0, problem_address="q"), row("b", None, problem_address="q")]
    assert [line[:6] for line in lines("spread", written(*rows))] == [
        ("a", "2", "0.00", "0.0", "", "1"),
        ("b", "2", "20.00", "20.0", "1", ""),
    ]


def test_excess_is_a_mean_over_problems_and_seeds(written: Any) -> None:
    """Above the bound and the best known, with the 95th percentile and how often a method is best."""
    rows = [row("a", 11.0, 10.0), row("a", 13.0, 10.0, seed=1), row("greedy", 11.0)]
    rows += [row("a", 20.0, 20.0, problem_address="q"), row("greedy", None, problem_address="q")]
    assert lines("excess", written(*rows)) == [
        ("a", "2", "13.3 (0.0 to 30.0)", "28.0", "6.1 (0.0 to 18.2)", "16.4", "67", "0"),
        ("greedy", "2", "10.0", "10.0", "0.0", "0.0", "100", "0"),
    ]


def test_anytime_tells_what_was_known_at_a_time(written: Any) -> None:
    """A mean over seeds; a dash where a run had nothing yet or was cut off; the time of a warm start comes before."""
    rows = [
        row("a", 10.0, trace=[[0.5, 20.0, None], [5.0, 10.0, None]]),
        row("a", 10.0, trace=[[0.5, 40.0, None], [50.0, 10.0, None]], seed=1),
        row("late", 11.0, trace=[[2.0, 11.0, None]], warm_start="a", warm_start_s=3.0),
        row("cut", 15.0, trace=[[0.1, 15.0, None]], time_limit_s=10.0, stop_reason="time"),
    ]
    assert lines("anytime", written(*rows)) == [
        ("a", "1", "200.0", "200.0", "150.0", "0.0"),
        ("late", "1", "-", "-", "10.0", "10.0"),
        ("cut", "1", "50.0", "50.0", "50.0", "-"),
    ]


def test_growth_fits_what_came_to_its_end(written: Any) -> None:
    """Time is that of both methods of a warm start; an exact method without a proof is not fitted."""
    rows = [
        row("x", 1.0, problem_address=f"{n}", model=f"chains-{n}", num_ops=n, runtime_s=n / 2e3, warm_start_s=n / 2e3,
            memory_bytes=n * 1000)
        for n in (1000, 2000, 4000)
    ]  # fmt: skip
    rows += [row("dp", 1.0, problem_address="1000", model="chains-1000"), row("t", 1.0, stop_reason="time")]
    path = written(*rows)
    assert lines("growth", path) == [("chains", "x", "1.00 ± 0.00", "1.00 ± 0.00", "4\u202f000", "4 s", "4 MB")]
    ended = {each["method"]: each["ended"] for each in growth_rows(read_source([path]).groups)}
    assert ended == {"x": "done", "dp": "unproved", "t": "limit"}


def test_cost_tells_what_was_measured(written: Any) -> None:
    """Updates and placements by the second."""
    learned = row("hsdag", 1.0, info={"updates": 10}, memory_bytes=5_000_000)
    assert lines("cost", written(learned)) == [("m", "1\u202f000", "hsdag", "5", "20", "5 MB")]


def test_plans_are_over_the_optimum(written: Any) -> None:
    """A proven plan with its stages, multiples of it, no plan, and nothing that fits."""
    about: dict[str, Any] = {"objective": "training-plan", "model": "bert", "platform": "8 x 2 GiB"}
    rows = [
        row("dp", 2.0, 2.0, status="optimal", num_stages=3, **about),
        row("pipeline", 3.0, **about),
        row("equal-split", None, **about),
        row("dp", None, status="infeasible", **about | {"platform": "8 x 1 GiB", "problem_address": "q"}),
    ]
    assert lines("plans", written(*rows)) == [
        ("bert", "8 x 2 GiB", "2", "3", "2 s", "1.500", "no plan"),
        ("bert", "8 x 1 GiB", "nothing fits", "-", "2 s", "-", "-"),
    ]


def test_methods_measured_in_turns_stand_beside_what_needs_no_plan(written: Any) -> None:
    """Speedups are over the faster device and over all cores; less time is counted as in the HSDAG paper."""
    references = {"single a": [0.2, 0.01], "single b": [0.4, 0.01], "all cores": [0.1, 0.002]}
    path = written(
        timed("x", measured_s=0.08, measured_iqr_s=0.004, references=references, search_s=[1.0, 3.0, 2.0],
              found_s=[0.09, 0.07], measurements=[4, 6]),
        timed("y", measured_s=None, measured_iqr_s=None, error="no", references=references),
    )  # fmt: skip
    assert lines("measured", path) == [
        ("single a", "200", "10", "1.00x", "0.50x", "-100 %", "-", "-", "-"),
        ("single b", "400", "10", "0.50x", "0.25x", "-300 %", "-", "-", "-"),
        ("all cores", "100", "2", "2.00x", "1.00x", "0 %", "-", "-", "-"),
        ("x", "80", "4", "2.50x", "1.25x", "20 %", "80 (70 to 90)", "5", "2 s"),
        ("y (failed)", "-", "-", "-", "-", "-", "-", "-", "-"),
    ]


def test_verdicts_are_held_against_what_was_measured(written: Any) -> None:
    """A split below the simplest way by more than the error is not held; a simple way may miss a gain."""

    def told(choice: str, measured: float | None, model: str) -> dict[str, Any]:
        verdict = {"choice": choice, "sentence": "s", "gain": 1.8, "error": 0.05}
        return timed("auto", model=model, verdict=verdict | {"measured_gain": measured, "measured_iqr": 0.02})

    rows = [told("split", 0.96, "a"), told("copies", 0.94, "b"), told("device", 1.04, "c"), told("all cores", 1.2, "d")]
    found = lines("verdicts", written(*rows, told("split", None, "e"), timed("auto")))
    assert [line[-2] for line in found] == ["yes", "no", "yes", "missed a gain", "-"]
    assert found[0][:6] == ("a", "split", "1.80x", "5 %", "0.96x", "0.02")


def test_what_was_executed(written: Any) -> None:
    """Outputs by kind of placement; speedups over others and over random cuts; errors and ranks of predictions."""
    checked = {"num_tensors": 4, "num_mismatches": 0}
    rows = [timed("r", max_error=1e-6, **checked), timed("r", max_error=3e-6, seed=1, **checked)]
    rows += [timed("r", contiguity="none", error="RuntimeError: no")]
    assert lines("outputs", written(*rows)) == [("m", "3", "8", "3.0e-06", "-", "0", "1")]
    rows = [timed("ilp", speedup=1.5, speedup_over={"AUTO": 0.9})]
    rows += [
        timed("random:1", seed=seed, speedup=speed, speedup_over={"AUTO": 0.5}) for seed, speed in ((0, 1.0), (1, 1.2))
    ]
    assert lines("timing", written(*rows)) == [("m", "ilp, threads", "0.90x", "1.25x", "")]
    rows = [
        timed(f"cut {n}", measured_s=float(n), prediction_error=error) for n, error in ((1, 0.1), (2, -0.1), (3, 0.4))
    ]
    assert lines("prediction", written(*rows)) == [("threads", "equal", "1", "3", "20 %", "10 %", "40 %", "1.000")]


def test_sources_are_folders_and_files(written: Any, tmp_path: Path) -> None:
    """Later rows count; a path without rows is named."""
    first = written(row("a", 11.0, 10.0))
    second = written(row("a", 12.0, 10.0), name="more.jsonl")
    assert lines("gaps", first) == lines("gaps", tmp_path) == [("a", "10.0")]
    ((_, table),) = named_tables("gaps", read_source([first, second]))
    assert table.rows == (("a", "20.0"),)
    with pytest.raises(InvalidFileError, match=r"none\.jsonl: no rows"):
        read_source([tmp_path / "none.jsonl"])


@pytest.mark.parametrize("path", ROWS, ids=lambda path: str(path.stem))
def test_committed_rows_are_honest(path: Path) -> None:
    """Every row is of the one schema, and of a commit that is there, without changes on top."""
    first = json.loads(path.read_text().partition("\n")[0])
    store = Store(path.parent)
    rows = store.measured(path) if first["schema"] == "placekit/measured/1" else store.rows(path)
    assert rows
    assert [case for case, each in rows.items() if "dirty" in (each["commit"] or "dirty")] == []


def test_pages_show_what_their_commands_print() -> None:
    """Every table on a page is made from committed rows; ``make tables`` prints them anew."""
    spec = spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = module_from_spec(spec)
    spec.loader.exec_module(tables)
    num_tables = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        num_tables += text.count("<!-- end of the table -->")
        assert tables.updated(text) == text, page
    assert num_tables >= 9


def test_rows_of_several_versions_are_refused(written: Any) -> None:
    """Rows of one method under one objective count, those that are shown; the message names a row of each version."""
    first, second = row("a", 11.0, 10.0), row("a", 12.0, 10.0, seed=1)
    second |= {"versions": second["versions"] | {"placekit": "0.0.1"}}
    both = written(first, second, row("b", 12.0, 10.0))
    with pytest.raises(
        InvalidFileError, match=rf"rows of 'a' .* case {first['case']}\) and 0\.0\.1 .*{second['case']}"
    ):
        read_source([both])
    assert read_source([both], methods=["b"]).groups


def test_rows_of_several_limits_are_lines_of_their_own(written: Any) -> None:
    """Also where the limits are those of different problems."""
    other = row("a", 12.0, 10.0, time_limit_s=123.0, problem_address="other")
    ((_, table),) = named_tables("gaps", read_source([written(row("a", 11.0, 10.0), other)]))
    assert [line[0] for line in table.rows] == ["a (60 s)", "a (123 s)"]


@pytest.mark.slow
def test_report_prints_one_table(written: Any) -> None:
    """``placekit report FILE --table NAME``: Markdown, or JSON; an unknown name lists the tables."""
    path = written(row("a", 11.0, 10.0))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "placekit", "report", str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = call("--table", "gaps")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3] == "| a | 10.0 |"
    assert done.stdout.splitlines()[-1].startswith("Rows of placekit ")
    told = json.loads(call("--table", "gaps", "--json").stdout)
    assert told["tables"][0]["rows"] == [["a", "10.0"]]
    done = call("--table", "gapps")
    assert done.returncode == 2
    assert "did you mean 'gaps'" in done.stderr
    assert all(name in done.stderr for name in TABLES)

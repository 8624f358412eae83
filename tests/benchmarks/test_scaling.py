"""The scaling benchmark: one case, many cases, the fit and the figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from placekit import PlacekitError
from placekit.benchmarks import circumstances, scaling, scaling_case
from placekit.benchmarks.growth import fit_growth
from placekit.benchmarks.plot_scaling import growth_of, plot_growth, plot_scaling
from placekit.benchmarks.scaling_case import SEQUENCES, Case

SMALL = Case("chains", 40, "dpl", 0, 20.0)


def row_of(case: Case, **changes: Any) -> dict[str, Any]:
    """Return a row of `case` as if time were ops / 1e5 and memory ops squared."""
    return {
        "benchmark": "scaling",
        **{field: getattr(case, field) for field in Case.__slots__},
        "num_ops": case.size,
        "ended": "done",
        "time_s": case.size / 1e5,
        "memory_bytes": float(case.size) ** 2,
        "status": "feasible",
    } | changes


@examples(100)
@given(
    exponent=st.floats(-1, 4),
    scale=st.floats(1e-9, 1e3),
    sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=8, unique=True),
)
def test_fit_finds_the_exponent_of_a_power_law(exponent: float, scale: float, sizes: list[int]) -> None:
    """Without noise the fit is exact, and its standard error nil; two points have no error."""
    growth = fit_growth(sizes, [scale * size**exponent for size in sizes])
    assert growth is not None
    assert growth.exponent == pytest.approx(exponent, abs=1e-4)
    assert growth.at(sizes[0]) == pytest.approx(scale * sizes[0] ** exponent, rel=1e-6)
    if len(sizes) == 2:
        assert growth.standard_error is None
    else:
        assert growth.standard_error == pytest.approx(0, abs=1e-4)


def test_standard_error_is_that_of_the_textbook() -> None:
    """Slope and standard error agree with scipy's linear regression of the logarithms."""
    from scipy.stats import linregress

    sizes = [1000, 3000, 10_000, 30_000, 100_000]
    values = np.random.default_rng(3).lognormal(0, 0.3, 5) * np.array(sizes) ** 1.3
    growth, expected = fit_growth(sizes, values.tolist()), linregress(np.log(sizes), np.log(values))
    assert growth is not None
    assert (growth.exponent, growth.standard_error) == pytest.approx((expected.slope, expected.stderr))
    assert str(growth) == f"{expected.slope:.2f} ± {expected.stderr:.2f}"


def test_one_size_has_no_growth() -> None:
    """A single size, measured once or twice, says nothing about growth."""
    assert fit_growth([1000], [1.0]) is None
    assert fit_growth([1000, 1000], [1.0, 2.0]) is None


def test_fit_ignores_small_sizes_and_stopped_solves() -> None:
    """Below 1000 ops fixed costs rule; the time of a stopped solve is not the time of an answer."""
    rows = [row_of(Case("chains", size, "dp", 0, 60.0)) for size in (100, 1000, 3000, 10_000)]
    rows[0]["time_s"] = 50.0
    rows.append(row_of(Case("chains", 30_000, "dp", 0, 60.0), ended="limit", time_s=60.0))
    growth = growth_of(rows, "time_s")
    assert growth is not None
    assert growth.num_points == 3
    assert growth.exponent == pytest.approx(1)


@pytest.mark.parametrize("method", SEQUENCES)
def test_case_is_measured(method: str) -> None:
    """Every sequence gives a row with time, size and the judge's objective, which a later step never makes worse."""
    case = Case("transformer", 50, method, 1, 20.0)
    row = scaling_case.measure(case)
    assert json.loads(json.dumps(row)) == row
    assert Case(*(row[field] for field in Case.__slots__)) == case
    assert row["ended"] == "done"
    assert row["time_s"] == pytest.approx(np.median(row["times_s"]))
    assert row["num_ops"] == case.problem().graph.num_ops
    if method == "dp":
        assert row["status"] == "optimal"
    if method == "dpl+local-search":
        alone = scaling_case.measure(Case("transformer", 50, "dpl", 1, 20.0))
        assert row["objective_s"] <= alone["objective_s"] * (1 + 1e-12)


def test_time_limit_is_recorded_as_such() -> None:
    """A solve that its limit ended is not taken for an answer."""
    row = scaling_case.measure(Case("layered", 3000, "dp", 0, 0.0))
    assert (row["ended"], row["stop_reason"]) == ("limit", "time")


def test_process_of_its_own_gives_the_same_answer() -> None:
    """A case in its own process has the objective of one solved here, memory, and the circumstances beside it."""
    row = scaling.run_case(SMALL)
    assert row["objective_s"] == scaling_case.measure(SMALL)["objective_s"]
    assert row["usage"]["user_s"] > 0
    assert {"date", "commit", "machine", "versions"} <= row.keys()
    if sys.platform == "linux":
        # an own process: nothing of what the tests hold
        assert 0 <= row["memory_bytes"] < 1e9


def test_failure_of_a_process_is_a_row() -> None:
    """One case that fails does not end a benchmark of hours; its row has the reason and no numbers."""
    row = scaling.run_case(Case("chains", 5, "dpl", 0, 20.0))
    assert row["ended"] == "failed"
    assert "num_ops is 5; it must be >= 20" in row["error"]
    assert row["time_s"] is row["memory_bytes"] is None


def test_process_that_hangs_is_ended() -> None:
    """Beyond limit and grace the process is ended, and the row says so."""
    row = scaling.run_case(Case("chains", 100_000, "dpl", 0, 0.1), grace_s=0.1)
    assert (row["ended"], row["time_s"]) == ("killed", None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Replace the measurement; return the list of the cases that were asked for."""
    asked: list[Case] = []

    def pretend(case: Case) -> dict[str, Any]:
        asked.append(case)
        return row_of(case, ended="limit" if case.method == "dp" and case.size >= 300 else "done")

    monkeypatch.setattr(scaling, "run_case", pretend)
    return asked


def test_larger_sizes_are_left_out_after_the_limit(measured: list[Case]) -> None:
    """Only of the method and family that ran into it; also if the row that says so is an old one."""
    sizes = (100, 300, 1000)
    cases = [Case("chains", size, method, 0, 60.0) for size in sizes for method in ("dp", "dpl")]
    rows = {case: row for case, row, _ in scaling.run_cases(cases, {})}
    assert [case.size for case in rows if case.method == "dp"] == [100, 300]
    assert [case.size for case in rows if case.method == "dpl"] == [100, 300, 1000]
    measured.clear()
    again = list(scaling.run_cases(cases, rows))
    assert {case: row for case, row, _ in again} == rows
    assert not measured
    assert not any(is_new for _, _, is_new in again)


def run_main(monkeypatch: pytest.MonkeyPatch, folder: Path, *extra: str) -> None:
    """Run the command line on two sizes of one family, files in `folder`."""
    paths = "--rows", str(folder / "rows" / "x.jsonl"), "--figure", str(folder / "figures" / "x.png")
    command = ["scaling", "--families", "chains", "--sizes", "3000", "1000", *paths, *extra]
    monkeypatch.setattr(sys, "argv", command)
    scaling.main()


def test_resume_measures_only_what_is_missing(
    measured: list[Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same family, size, method, seed and limit: not again; anything else: yes. Table and figure have all of them."""
    run_main(monkeypatch, tmp_path, "--methods", "dpl")
    assert [case.size for case in measured] == [1000, 3000]
    run_main(monkeypatch, tmp_path, "--methods", "dpl", "local-search", "--resume")
    assert [case.method for case in measured[2:]] == ["local-search", "local-search"]
    run_main(monkeypatch, tmp_path, "--methods", "dpl", "--time-limit", "5", "--resume")
    assert len(measured) == 6
    assert len((tmp_path / "rows" / "x.jsonl").read_text().splitlines()) == 6
    assert (tmp_path / "figures" / "x.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "(from the file)" in printed
    assert "1.00" in printed.splitlines()[-4]


def test_failed_cases_are_measured_again(tmp_path: Path) -> None:
    """A row without an answer does not count as done; of several rows the last one counts."""
    path = tmp_path / "rows.jsonl"
    rows = [row_of(SMALL, ended="failed"), row_of(SMALL, time_s=1.0), row_of(SMALL, time_s=2.0)]
    path.write_text(json.dumps(rows[0]) + "\n")
    assert scaling.read_rows(path) == {}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert scaling.read_rows(path) == {SMALL: rows[2]}
    assert scaling.read_rows(tmp_path / "none.jsonl") == {}


@pytest.mark.parametrize("line", ["{", "[]", '{"family": "chains"}'])
def test_broken_rows_are_named(tmp_path: Path, line: str) -> None:
    """The message has the file and the line."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row_of(SMALL)) + "\n" + line + "\n")
    with pytest.raises(PlacekitError, match=r"rows\.jsonl: line 2 is no row of the scaling benchmark"):
        scaling.read_rows(path)


def test_figure_shows_exponents_and_hollow_markers() -> None:
    """Legend entries have the exponent and its error; a stopped solve is drawn, hollow, and not fitted."""
    rows = [row_of(Case("chains", size, "dpl", 0, 60.0)) for size in (100, 1000, 3000, 10_000)]
    rows += [row_of(Case("chains", size, "dp", 0, 60.0)) for size in (100, 1000)]
    rows.append(row_of(Case("chains", 3000, "dp", 0, 60.0), ended="limit", time_s=60.0))
    ax = plot_growth(rows, "time_s")
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["dpl: $n^{1.00}$ ± 0.00", "dp"]
    hollow = [np.asarray(line.get_ydata()).tolist() for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [values for values in hollow if values] == [[60.0]]
    figure = plot_scaling(rows)
    assert [ax.get_title() for ax in figure.axes] == ["chains", ""]
    assert "stopped at the time limit" in figure.get_supxlabel()


def test_figure_without_memory_or_rows() -> None:
    """Where the system tells no memory, those axes stay empty; without any number there is nothing to draw."""
    rows = [row_of(Case("chains", size, "dpl", 0, 60.0), memory_bytes=None) for size in (1000, 3000)]
    assert not plot_scaling(rows).axes[1].lines
    with pytest.raises(PlacekitError, match="no rows to draw"):
        plot_scaling([row_of(SMALL, ended="killed", time_s=None, memory_bytes=None, num_ops=None)])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_process_alone() -> None:
    """A large array shows in the peak of the process that made it, not in that of one that it starts."""
    program = (
        "import subprocess, sys; from placekit.benchmarks.circumstances import *; before = peak_bytes();"
        "x = bytearray(300_000_000); grown = peak_bytes() - before;"
        "code = 'from placekit.benchmarks.circumstances import *; print(peak_bytes())';"
        "own = int(subprocess.run([sys.executable, '-c', code], capture_output=True, check=True).stdout);"
        "print(grown, own)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, child = map(int, done.stdout.split())
    assert 290e6 < grown < 310e6
    assert child < 250e6


def test_circumstances_name_machine_and_versions() -> None:
    """Rows of different days and machines can lie in one file."""
    found = circumstances.circumstances()
    assert json.loads(json.dumps(found)) == found
    assert {"python", "placekit", "numba", "numpy"} <= found["versions"].keys()
    assert found["machine"]["cores"] >= 1

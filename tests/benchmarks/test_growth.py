"""How cost grows: the fit, the figure, and what memory and circumstances are."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from placekit import PlacekitError
from placekit.benchmarks import circumstances
from placekit.benchmarks.report.growth import fit_growth
from placekit.benchmarks.report.plot_growth import growth_of, plot_growth, plot_scaling


def row_of(method: str, num_ops: int, **changes: Any) -> dict[str, Any]:
    """Return a row as if time were ops / 1e5 and memory ops squared."""
    return {
        "family": "chains",
        "method": method,
        "num_ops": num_ops,
        "ended": "done",
        "time_s": num_ops / 1e5,
        "memory_bytes": float(num_ops) ** 2,
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
    rows = [row_of("dp", size) for size in (100, 1000, 3000, 10_000)]
    rows[0]["time_s"] = 50.0
    rows.append(row_of("dp", 30_000, ended="limit", time_s=60.0))
    growth = growth_of(rows, "time_s")
    assert growth is not None
    assert growth.num_points == 3
    assert growth.exponent == pytest.approx(1)


def test_figure_shows_exponents_and_hollow_markers() -> None:
    """Legend entries have the exponent and its error; a stopped solve is drawn, hollow, and not fitted."""
    rows = [row_of("dpl", size) for size in (100, 1000, 3000, 10_000)]
    rows += [row_of("dp", size) for size in (100, 1000)]
    rows.append(row_of("dp", 3000, ended="limit", time_s=60.0))
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
    rows = [row_of("dpl", size, memory_bytes=None) for size in (1000, 3000)]
    assert not plot_scaling(rows).axes[1].lines
    with pytest.raises(PlacekitError, match="no rows to draw"):
        plot_scaling([row_of("dpl", 100, ended="killed", time_s=None, memory_bytes=None)])


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

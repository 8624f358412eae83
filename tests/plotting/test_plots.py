"""Figures show what the result says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.patches import PathPatch

import placekit as pk
from placekit.io.visible import device_color
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.plotting.canvas import save_figure
from placekit.plotting.plot_graph import draw_graph
from placekit.plotting.plot_result import plot_loads, plot_result, plot_trace
from placekit.solve.result import Incumbent, Result
from placekit.solve.solve import solve


def chain(*, memory_bytes: float = 10.0) -> Problem:
    """Return a chain of three ops of 1, 2 and 3 ms on two GPUs; a transfer takes 0.5 ms."""
    graph = OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")], name="chain")
    costs = CostTable(("gpu",), np.array([[1e-3], [2e-3], [3e-3]]), np.full((2, 1), 5e-4), np.ones(3))
    return Problem(graph, Platform.of(gpu=2, memory_bytes={"gpu": memory_bytes}), costs)


@pytest.fixture(scope="module")
def result() -> Result:
    """Return the best placement: a and b on one GPU, c on the other, each with one transfer of 0.5 ms."""
    return solve(chain())


def test_bars_are_the_loads(result: Result) -> None:
    """Bars of compute and transfer add up to the load of every device."""
    ax = plot_loads(result)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]  # the patches are rectangles
    compute_ms, transfer_ms = widths[:2], widths[2:]
    loads_ms = [load.load_s * 1e3 for load in result.device_loads]
    assert [a + b for a, b in zip(compute_ms, transfer_ms, strict=True)] == pytest.approx(loads_ms)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["gpu.0", "gpu.1"]


def test_trace_ends_at_the_result(result: Result) -> None:
    """The lines end at the objective and the bound of the result."""
    objective, bound = plot_trace(result).get_lines()
    assert np.asarray(objective.get_ydata())[-1] == pytest.approx(3.5)
    assert np.asarray(bound.get_ydata())[-1] == pytest.approx(3.5, rel=1e-5)


def test_given_axes_are_used(result: Result) -> None:
    """With `ax` nothing new is made."""
    ax = plot_loads(result)
    assert plot_trace(result, ax) is ax


def test_the_axis_of_a_proof_shows_no_rounding(result: Result) -> None:
    """An objective that moves in its last digits is a flat line: the axis covers a hundredth of it at least."""
    closed = replace(
        result, trace=(Incumbent(0.1, 25.0, 25.0 - 1e-10), Incumbent(0.2, 25.0 - 1e-11, 25.0 - 1e-11)), objective=25.0
    )
    low, high = plot_trace(closed).get_ylim()
    assert high - low > 0.2
    assert low < 25.0 < high


def test_result_without_placement_has_a_trace_only() -> None:
    """An infeasible result is drawn without loads, and `plot_loads` says why it cannot be."""
    infeasible = solve(chain(memory_bytes=1.4))
    assert len(plot_result(infeasible).axes) == 1
    with pytest.raises(InvalidProblemError, match="status infeasible: no loads to draw"):
        plot_loads(infeasible)


def test_unknown_format_is_a_named_error(result: Result, tmp_path: Path) -> None:
    """Another suffix is refused with the list of formats, and nothing is written."""
    with pytest.raises(PlacekitError, match=r"suffix 'gif' is none of png, svg, pdf"):
        save_figure(plot_result(result), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_plotting_does_not_touch_pyplot() -> None:
    """A library must not choose a back-end or open windows for its user."""
    code = (
        "import sys; from placekit.plotting.canvas import new_figure; new_figure(1, 1); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_colours_of_devices_differ() -> None:
    """Sixty-four devices have colours that eyes tell apart: no two are nearer than a tenth of a channel."""
    colors = np.array([[int(device_color(d)[at : at + 2], 16) for at in (1, 3, 5)] for d in range(64)])
    away = np.abs(colors[:, None] - colors[None]).max(axis=2) + 255 * np.eye(64, dtype=int)
    assert away.min() > 20


def test_outputs_and_cuts_are_drawn_by_device_and_bytes() -> None:
    """Of many outputs each mark has the colour of its device; edges between devices are as wide as their bytes."""
    names = ["in", *(f"out{each}" for each in range(20))]
    graph = pk.OpGraph.from_edges(names, [("in", name) for name in names[1:11]] + [("out0", n) for n in names[11:]],
                                  output_bytes=[8e6, 1e6] + [0] * 19)  # fmt: skip
    costs = pk.CostTable(("gpu",), np.ones((21, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(21))
    problem = pk.Problem(graph, pk.Platform.of(gpu=3), costs, contiguity=pk.Contiguity.NONE)
    device = np.array([0, *([1] * 10), *([2] * 10)])
    ax = draw_graph(graph, pk.Placement.of(problem, device), np.ones(21))
    marks = [each for each in ax.collections if np.shape(each.get_offsets())[0] == 19]
    (outputs,) = [each for each in marks if isinstance(each, PathCollection)]
    assert len(np.unique(np.asarray(outputs.get_facecolor()), axis=0)) == 2
    widths = sorted({patch.get_linewidth() for patch in ax.patches if isinstance(patch, PathPatch)})
    assert len(widths) == 2
    assert widths[1] == pytest.approx(3 * widths[0])

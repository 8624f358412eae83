"""Figures of a result: the load of every device, and objective and bound over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import COLORS, axes_or_new, legend_above, new_figure, plain_label, time_scale, time_text
from placekit.solve.stop import relative_gap

LEAST_GAP = 1e-5
"""Gap that stands for smaller ones on the logarithmic axis, and for none."""
LEAST_RANGE = 0.01
"""Share of the objective that its axis covers at least."""

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placekit.solve.result import Result


def plot_result(result: Result) -> Figure:
    """Lay out `plot_loads` and `plot_trace`; a result without a placement has only a trace."""
    if result.placement is None:
        figure = new_figure(8.0, 3.0)
        plot_trace(result, figure.subplots())
        return figure
    loads_in = min(1.0 + 0.35 * len(result.device_loads), 12.0)
    figure = new_figure(8.0, loads_in + 2.6)
    above, below = figure.subplots(2, 1, height_ratios=[loads_in, 2.2])
    plot_loads(result, above)
    plot_trace(result, below)
    return figure


def plot_loads(result: Result, ax: Axes | None = None) -> Axes:
    """Draw one bar per device: compute, then transfer; and the objective and the bound as lines.

    Where devices compute and transfer at the same time, and a load is not the sum of both, they are two bars, one below
    the other. `ax` is that of a new figure if None.
    """
    if result.objective is None:
        raise InvalidProblemError(f"result of {result.problem_name!r} has status {result.status}: no loads to draw")
    loads = result.device_loads
    ax = axes_or_new(ax, height_in=min(1.2 + 0.35 * len(loads), 40.0))
    names = [load.device for load in loads]
    rows = range(len(loads))
    factor, unit = time_scale(max(*(load.load_s for load in loads), result.objective))
    compute = [load.compute_s * factor for load in loads]
    transfer = [load.transfer_s * factor for load in loads]
    sums = [a + b for a, b in zip(compute, transfer, strict=True)]
    if all(math.isclose(load.load_s * factor, end, rel_tol=1e-9) for load, end in zip(loads, sums, strict=True)):
        ax.barh(rows, compute, color=COLORS["compute"], label="compute", height=0.65)
        ax.barh(rows, transfer, left=compute, color=COLORS["transfer"], label="transfer", height=0.65)
        ends = sums
    else:
        above, below = [row - 0.17 for row in rows], [row + 0.17 for row in rows]
        ax.barh(above, compute, color=COLORS["compute"], label="compute", height=0.33)
        ax.barh(below, transfer, color=COLORS["transfer"], label="transfer", height=0.33)
        ends = [*compute, *transfer]
    if result.objective_name == "throughput":
        ax.axvline(result.objective * factor, color=COLORS["text"], linewidth=0.8, linestyle="--", label="objective")
        if result.lower_bound is not None and result.lower_bound > 0:
            ax.axvline(result.lower_bound * factor, color=COLORS["bound"], linewidth=1.2, linestyle=":", label="bound")
    ax.set_yticks(rows, [plain_label(name) for name in names])
    ax.invert_yaxis()
    lines = [result.objective * factor] if result.objective_name == "throughput" else []
    longest = max(*ends, *lines, 1e-9)
    for row, load in enumerate(loads):  # one column, to the right of every bar and line
        of_team = f", team {plain_label(load.team)}" if load.team else ""
        text = f"{time_text(load.load_s)}, {load.num_ops} ops{of_team}"
        ax.text(longest * 1.03, row, text, va="center", fontsize=8, color=COLORS["text"])
    ax.set_xlim(0, longest * 1.3)
    ax.set_xlabel(f"time per sample ({unit})")
    legend_above(ax, title=f"{result.problem_name}: {result.objective_name} by {result.method}")
    return ax


def plot_trace(result: Result, ax: Axes | None = None) -> Axes:
    """Draw objective and bound as steps over the time of the solve, and the gap between them on a logarithmic axis.

    A result without a trace gives empty axes that say so. `ax` is that of a new figure if None.
    """
    ax = axes_or_new(ax)
    from matplotlib.ticker import ScalarFormatter

    ends = max(result.runtime_s, max((line.time_s for line in result.trace), default=0.0))
    known = [value for line in result.trace for value in (line.objective, line.bound) if value is not None]
    factor, unit = time_scale(max(known, default=0.0))
    for name, label in (("objective", "best objective"), ("bound", "bound")):
        points = [
            (line.time_s, getattr(line, name) * factor) for line in result.trace if getattr(line, name) is not None
        ]
        if points:
            times, values = zip(*points, strict=True)
            told = f"{label} {time_text(values[-1] / factor)}"
            style: dict[str, Any] = {
                "where": "post",
                "linestyle": "-" if name == "objective" else ":",
                "marker": ".",
                "markersize": 4,
            }
            ax.step([*times, ends], [*values, values[-1]], color=COLORS[name], label=told, **style)
    _draw_gap(ax, result, ends)
    if not known:
        ax.text(0.5, 0.5, "no placement and no bound was found", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel("time of the solve (s)")
    ax.set_ylabel(f"objective ({unit})")
    for axis in (ax.xaxis, ax.yaxis):  # whole numbers at the ticks, none in a corner to be added to them
        if isinstance(formatter := axis.get_major_formatter(), ScalarFormatter):
            formatter.set_useOffset(False)
    if known:
        low, high = ax.get_ylim()
        least = LEAST_RANGE * max(abs(low), abs(high))
        if high - low < least:  # a proof closes in steps of rounding, which are no progress to look at
            ax.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        legend_above(ax)
    return ax


def _draw_gap(ax: Axes, result: Result, ends: float) -> None:
    """Draw the gap on an axis of its own, to the right; nothing where no bound or no placement was found."""
    found = [(line.time_s, relative_gap(line.objective, line.bound)) for line in result.trace]
    points = [(time_s, 100 * max(gap, LEAST_GAP)) for time_s, gap in found if gap is not None and gap < math.inf]
    if not points:
        return
    right = ax.twinx()
    right.spines["top"].set_visible(False)
    right.set_yscale("log")
    times, gaps = zip(*points, strict=True)
    right.step([*times, ends], [*gaps, gaps[-1]], color=COLORS["text"], where="post", linewidth=0.9, alpha=0.7)
    right.set_ylim(bottom=100 * LEAST_GAP / 2)
    right.set_ylabel("gap (%), grey")

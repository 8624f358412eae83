"""Figure: the load of every device, split into compute and transfer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import COLORS, axes_or_new, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.solve.result import Result

__all__ = ["plot_loads"]


def plot_loads(result: Result, ax: Axes | None = None) -> Axes:
    """Draw one bar per device: compute, then transfer; and the objective and the bound as lines.

    Where devices compute and transfer at the same time, and a load is not the sum of both, they are two bars, one below
    the other.

    Parameters
    ----------
    result
        A result with a placement.
    ax
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    InvalidProblemError
        The result has no placement, so there is nothing to draw.
    """
    if result.objective is None:
        raise InvalidProblemError(f"result of {result.problem_name!r} has status {result.status}: no loads to draw")
    loads = result.device_loads
    ax = axes_or_new(ax, height_in=min(1.2 + 0.35 * len(loads), 40.0))
    names = [load.device for load in loads]
    rows = range(len(loads))
    compute_ms = [load.compute_s * 1e3 for load in loads]
    transfer_ms = [load.transfer_s * 1e3 for load in loads]
    sums_ms = [a + b for a, b in zip(compute_ms, transfer_ms, strict=True)]
    if all(math.isclose(load.load_s * 1e3, end, rel_tol=1e-9) for load, end in zip(loads, sums_ms, strict=True)):
        ax.barh(rows, compute_ms, color=COLORS["compute"], label="compute", height=0.65)
        ax.barh(rows, transfer_ms, left=compute_ms, color=COLORS["transfer"], label="transfer", height=0.65)
        ends = sums_ms
    else:
        above, below = [row - 0.17 for row in rows], [row + 0.17 for row in rows]
        ax.barh(above, compute_ms, color=COLORS["compute"], label="compute", height=0.33)
        ax.barh(below, transfer_ms, color=COLORS["transfer"], label="transfer", height=0.33)
        ends = [*compute_ms, *transfer_ms]
    if result.objective_name == "throughput":
        ax.axvline(result.objective * 1e3, color=COLORS["text"], linewidth=0.8, linestyle="--", label="objective")
        if result.lower_bound is not None and result.lower_bound > 0:
            ax.axvline(result.lower_bound * 1e3, color=COLORS["bound"], linewidth=1.2, linestyle=":", label="bound")
    ax.set_yticks(rows, [plain_label(name) for name in names])
    ax.invert_yaxis()
    lines = [result.objective * 1e3] if result.objective_name == "throughput" else []
    longest = max(*ends, *lines, 1e-9)
    for row, load in enumerate(loads):  # one column, to the right of every bar and line
        of_team = f", team {plain_label(load.team)}" if load.team else ""
        text = f"{load.load_s * 1e3:.4g} ms, {load.num_ops} ops{of_team}"
        ax.text(longest * 1.03, row, text, va="center", fontsize=8, color=COLORS["text"])
    ax.set_xlim(0, longest * 1.3)
    ax.set_xlabel("time per sample (ms)")
    ax.set_title(plain_label(f"{result.problem_name}: {result.objective_name} by {result.method}"), fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax

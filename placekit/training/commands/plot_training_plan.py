"""Figure: the stages of a training plan, with degrees, time against the objective and memory against the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import COLORS, axes_or_new, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.training.result import PlanResult

_GIB = 2**30


def plot_training_plan(result: PlanResult, ax: Axes | None = None) -> Axes:
    """Draw one bar per stage: compute, transfers and gradients; and its memory beside it if `ax` is None."""
    if result.objective is None:
        raise InvalidProblemError(f"{result.problem_name!r} has status {result.status}: there is no plan to draw")
    loads = result.stages
    rows = range(len(loads))
    memory_ax = None
    if ax is None:
        figure = new_figure(10.0, 1.6 + 0.32 * len(loads))
        ax, memory_ax = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    ax = axes_or_new(ax)
    left = [0.0] * len(loads)
    gradients = "#7d6fb0"
    parts = (
        ("compute", [load.compute_s for load in loads], COLORS["compute"]),
        ("transfer", [load.transfer_s for load in loads], COLORS["transfer"]),
        ("gradients", [load.sync_s for load in loads], gradients),
    )
    for label, seconds, color in parts:
        width = [value * 1e3 for value in seconds]
        ax.barh(rows, width, left=left, color=color, label=label, height=0.65)
        left = [a + b for a, b in zip(left, width, strict=True)]
    ax.axvline(result.objective * 1e3, color=COLORS["text"], linewidth=0.8, linestyle="--", label="objective")
    if result.lower_bound:
        ax.axvline(result.lower_bound * 1e3, color=COLORS["bound"], linewidth=1.2, linestyle=":", label="bound")
    names = [f"{load.num_layers} layers, {load.data_degree} x {load.tensor_degree}" for load in loads]
    ax.set_yticks(rows, [f"stage {s}: {name}" for s, name in enumerate(names)])
    ax.invert_yaxis()
    ax.set_xlabel("time per microbatch (ms)")
    ax.set_title(f"{result.problem_name}: {result.objective * 1e3:.4g} ms by {result.method}", fontsize=10)
    ax.legend(frameon=False, fontsize=7, loc="lower left", ncols=3, bbox_to_anchor=(0.0, 1.08), borderaxespad=0.0)
    if memory_ax is not None:
        _draw_memory(memory_ax, result)
    return ax


def _draw_memory(ax: Axes, result: PlanResult) -> None:
    axes_or_new(ax)
    rows = range(len(result.stages))
    fixed = [(load.memory_bytes - load.in_flight * load.held_bytes) / _GIB for load in result.stages]
    held = [load.in_flight * load.held_bytes / _GIB for load in result.stages]
    limit = result.memory_bytes / _GIB
    ax.barh(rows, fixed, color=COLORS["text"], label="fixed", height=0.65)
    ax.barh(rows, held, left=fixed, color="#9aa5b1", label="in flight", height=0.65)
    ax.axvline(limit, color="#b03a3a", linewidth=1.2, linestyle="--", label="limit")
    for row, load in enumerate(result.stages):
        ax.text(limit * 1.02, row, f"{load.in_flight} in flight", va="center", fontsize=7, color=COLORS["text"])
    ax.set_xlim(0, limit * 1.3)
    ax.set_xlabel("memory per device (GiB)")
    ax.legend(frameon=False, fontsize=7, loc="lower left", ncols=3, bbox_to_anchor=(0.0, 1.08), borderaxespad=0.0)

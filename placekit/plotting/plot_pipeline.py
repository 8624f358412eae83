"""Figure: a steady pipeline as a Gantt chart, a few samples under way at the same time."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import components
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.plotting.canvas import COLORS, axes_or_new, legend_above, plain_label, time_scale, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.objectives.evaluate import DeviceLoad
    from placekit.solve.result import Result

_SAMPLES = 6
"""Samples in the chart beyond those that fill the pipeline."""
SAMPLE_COLORS = ("#3b6ea8", "#4c9f70", "#c44e52", "#8172b3", "#8c6d46", "#64b5cd")
"""Colours of successive samples, repeated."""


def plot_pipeline(result: Result, graph: OpGraph, ax: Axes | None = None) -> Axes:
    """Draw what every device does with which sample: one bar per sample and device, its transfers at the end.

    Devices work in step, a sample per time of the objective: a stage starts a sample one step after the stages before
    it, which `graph` tells. Members of a team take turns. Devices stand in the order of their stages; idle ones are
    left out. `ax` is that of a new figure if None.
    """
    from matplotlib.patches import Patch

    if result.placement is None or result.objective is None or result.objective_name != "throughput":
        raise InvalidProblemError(
            f"result of {result.problem_name!r} ({result.objective_name}, status {result.status}) has no pipeline"
        )
    level = stage_levels(graph, result.placement.device_of_op)
    team_level = {result.placement.team_name(d): depth for d, depth in level.items()}
    busy = [load for load in result.device_loads if load.num_ops]
    busy.sort(key=lambda load: (team_level.get(load.team or load.device, 0), load.team or load.device))
    period_s = result.objective
    num_samples = max(team_level.values(), default=0) + _SAMPLES
    factor, unit = time_scale(period_s * num_samples)
    ax = axes_or_new(ax, width_in=11.0, height_in=min(1.4 + 0.45 * len(busy), 24.0))
    row = 0
    for _, members in groupby(busy, key=lambda load: load.team or load.device):
        team = list(members)
        depth = team_level.get(team[0].team or team[0].device, 0)
        for turn, load in enumerate(team):
            _draw_device(ax, row, load, (turn, len(team)), range(depth, num_samples), period_s, factor)
            row += 1
    for step in range(1, num_samples + 1):
        ax.axvline(step * period_s * factor, color="#dddddd", linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(busy)), [plain_label(load.device) for load in busy])
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, num_samples * period_s * factor)
    ax.set_ylim(len(busy) - 0.5, -0.5)
    ax.set_xlabel(f"time ({unit}); one step is {time_text(period_s)}")
    handles = [Patch(color=SAMPLE_COLORS[0], label="ops of a sample: a colour per sample, its number inside")]
    if any(load.transfer_s for load in busy):
        handles.append(Patch(color=COLORS["transfer"], label="transfer"))
    legend_above(ax, handles, f"{result.problem_name}: a sample every {time_text(period_s)} by {result.method}")
    return ax


def stage_levels(graph: OpGraph, device_of_op: NDArray[np.int64]) -> dict[int, int]:
    """Return the stage of every device or team that has ops: the longest path to it in the graph of devices.

    Devices that need each other's tensors in turns, which only happens without contiguity, count as one stage.
    """
    num = int(device_of_op.max(initial=-1)) + 1
    sender, receiver = device_of_op[graph.senders], device_of_op[graph.receivers]
    part = components(num, sender, receiver, is_strong=True) if num else np.zeros(0, np.int64)
    pairs = {(a, b) for a, b in zip(part[sender].tolist(), part[receiver].tolist(), strict=True) if a != b}
    depth = dict.fromkeys(part.tolist(), 0)
    for _ in depth:  # as many rounds as the longest path has at most
        for a, b in pairs:
            depth[b] = max(depth[b], depth[a] + 1)
    return {d: depth[int(part[d])] for d in np.unique(device_of_op).tolist()}


def _draw_device(
    ax: Axes, row: int, load: DeviceLoad, turn: tuple[int, int], steps: range, period_s: float, factor: float
) -> None:
    """Draw the samples of one device; a member of a team takes every so many-th one, and longer for it."""
    mine, members = turn
    for sample, step in enumerate(steps):
        if sample % members != mine:
            continue
        start, compute = step * period_s * factor, load.compute_s * members * factor
        color = SAMPLE_COLORS[sample % len(SAMPLE_COLORS)]
        ax.barh(row, compute, left=start, color=color, height=0.62, edgecolor="white", linewidth=0.5)
        # where devices compute and transfer at once, both begin together
        beside = load.load_s < 0.999 * (load.compute_s + load.transfer_s)
        transfer = load.transfer_s * members * factor
        at = (start, row + 0.36) if beside else (start + compute, row)
        ax.barh(at[1], transfer, left=at[0], color=COLORS["transfer"], height=0.1 if beside else 0.62)
        if compute > 0.25 * period_s * factor:
            ax.text(
                start + compute / 2, row, str(sample + 1), ha="center", va="center", fontsize=8, color="white",
                clip_on=True,
            )  # fmt: skip

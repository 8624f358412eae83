"""Figure: the computation graph from left to right, every op in the colour of its device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.plotting.canvas import COLORS, axes_or_new, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.model.graph import OpGraph
    from placekit.model.placement import Placement
    from placekit.model.problem import Problem

__all__ = ["DEVICE_COLORS", "draw_graph", "layered_positions", "plot_graph"]

DEVICE_COLORS = (
    "#3b6ea8", "#4c9f70", "#c44e52", "#8172b3", "#ccb974", "#64b5cd", "#8c6d46", "#d98cb3", "#5f7f3f", "#7f7f7f",
)  # fmt: skip
"""One colour per device, repeated if there are more devices."""

_SWEEPS = 6
_LEVELS = 6
"""Sizes of dots."""
_RASTER_OVER = 2000
"""Graphs of more ops and edges than this are drawn as pixels: as vectors they would fill megabytes."""

_LEGEND_ROWS = 12
"""Lines of the legend; more devices stand in another column."""


def plot_graph(problem: Problem, placement: Placement, ax: Axes | None = None) -> Axes:
    """Draw ops as dots in layers from inputs to outputs; tensors that cross devices or teams stand out.

    The area of a dot grows with the time of its op on its device.

    Parameters
    ----------
    problem
        The problem.
    placement
        A placement of its ops.
    ax
        Axes to draw on; those of a new figure if None.
    """
    kind = problem.platform.kind_of_device[placement.device_of_op]
    return draw_graph(problem.graph, placement, problem.costs.op_time_s[np.arange(len(kind)), kind], ax)


def draw_graph(graph: OpGraph, placement: Placement, weight: NDArray[np.float64], ax: Axes | None = None) -> Axes:
    """Draw a graph like `plot_graph`, without a problem.

    Parameters
    ----------
    graph, placement, ax
        As for `plot_graph`.
    weight
        ``[num_ops]`` what the areas of the dots grow with: seconds, or operations.
    """
    from matplotlib.lines import Line2D

    x, y = layered_positions(graph)
    width = float(np.ptp(y)) + 1.0
    device = placement.device_of_op
    used = np.unique(device).tolist()
    legend_rows = min(len(used) + 1, _LEGEND_ROWS)
    height_in = max(float(np.clip(0.6 + 0.16 * width, 1.8, 5.0)), 0.5 + 0.2 * legend_rows)
    ax = axes_or_new(ax, width_in=11.0, height_in=height_in)
    crossing = device[graph.senders] != device[graph.receivers]
    if graph.num_ops + graph.num_edges > _RASTER_OVER:
        ax.set_rasterization_zorder(3)  # edges and dots together are one image
    for chosen, color, line_width in ((~crossing, "#b8b8b8", 0.5), (crossing, COLORS["transfer"], 1.0)):
        # one path with gaps for all edges of a kind: as vectors a path of its own for each would be five times as large
        gap = np.full(int(chosen.sum()), np.nan)
        along = np.stack([x[graph.senders[chosen]], x[graph.receivers[chosen]], gap], axis=1).ravel()
        across = np.stack([y[graph.senders[chosen]], y[graph.receivers[chosen]], gap], axis=1).ravel()
        ax.plot(along, across, color=color, linewidth=line_width, zorder=1)
    level = np.ceil(_LEVELS * np.sqrt(weight / max(float(weight.max(initial=0.0)), 1e-300))).astype(np.int64)
    shrink = min(1.0, 60.0 / (float(np.ptp(x)) + 1.0)) * 0.7 + 0.3
    colors = np.array([DEVICE_COLORS[d % len(DEVICE_COLORS)] for d in range(len(placement.device_names))])
    for size in np.unique(level).tolist():  # the same shape for all dots of a size, for the same reason
        at = level == size
        area = (8.0 + 60.0 * size / _LEVELS) * shrink
        ax.scatter(x[at], y[at], s=area, c=colors[device[at]].tolist(), linewidths=0, clip_on=False, zorder=2)
    ax.set_xlim(x.min() - 0.8, x.max() + 0.8)
    ax.set_ylim(y.max() + 0.8, y.min() - 0.8)
    ax.axis("off")
    handles = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=DEVICE_COLORS[d % len(DEVICE_COLORS)],
            label=plain_label(placement.team_name(d)),
        )
        for d in used
    ]
    if crossing.any():
        handles.append(Line2D([], [], color=COLORS["transfer"], label="crosses devices"))
    columns = -(-len(handles) // _LEGEND_ROWS)
    ax.legend(handles=handles, ncols=columns, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def layered_positions(graph: OpGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``[num_ops]`` coordinates of every op: its layer, and its place across the layer.

    The layer is the longest path from an input; ops without inputs stand just before their first consumer. Within a
    layer ops are ordered by the mean place of their neighbours, a few sweeps in both directions (Sugiyama, Tagawa and
    Toda, 1981), and set one unit apart around the middle. O(sweeps * (ops log ops + edges)).
    """
    senders, receivers = graph.senders, graph.receivers
    layer = np.zeros(graph.num_ops, dtype=np.int64)
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[graph.order] = np.arange(graph.num_ops)
    along = np.argsort(rank[senders], kind="stable")
    for u, v in zip(senders[along].tolist(), receivers[along].tolist(), strict=True):
        layer[v] = max(layer[v], layer[u] + 1)
    first_use = np.full(graph.num_ops, np.iinfo(np.int64).max)
    np.minimum.at(first_use, senders, layer[receivers])
    is_source = np.bincount(receivers, minlength=graph.num_ops) == 0
    layer = np.where(is_source & (first_use < np.iinfo(np.int64).max), np.maximum(first_use - 1, 0), layer)
    place = _centred(layer, rank.astype(np.float64))
    for sweep in range(_SWEEPS):
        here, there = (receivers, senders) if sweep % 2 == 0 else (senders, receivers)
        total = np.bincount(here, weights=place[there], minlength=graph.num_ops)
        degree = np.bincount(here, minlength=graph.num_ops)
        wanted = np.where(degree > 0, total / np.maximum(degree, 1), place)
        place = _centred(layer, wanted + 1e-9 * rank)
    return layer.astype(np.float64), place


def _centred(layer: NDArray[np.int64], key: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[num_ops]`` places in every layer in the order of `key`, one unit apart around 0."""
    order = np.lexsort((key, layer))
    sizes = np.bincount(layer)
    begins = np.cumsum(sizes) - sizes
    place = np.empty(len(layer))
    place[order] = np.arange(len(layer)) - begins[layer[order]]
    return place - (sizes[layer] - 1) / 2

"""Figure: the computation graph from inputs to outputs, every op in the colour of its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.visible import device_color
from placekit.plotting.canvas import COLORS, axes_or_new, legend_above, plain_label, shorten
from placekit.plotting.layout import Layout, dot_radius, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from placekit.model.graph import OpGraph
    from placekit.model.placement import Placement

EDGE_COLORS = {"near": "#b8b8b8", "skip": "#777777", "crossing": COLORS["transfer"]}
"""Edges to the next layer, over several layers, and between devices."""

_WIDTH_IN, _ASPECT = 11.0, 3.0
_RASTER_OVER = 2000
"""Graphs of more ops and edges than this are drawn as pixels: as vectors they would fill megabytes."""
_WIDEST = 3.0
"""Width of the edge with the most bytes between devices, over that of one with hardly any."""
_NAMED = 8
"""Names are written beside inputs, and beside outputs, if there are no more of them than this."""
_NAME_LENGTH = 24


def draw_graph(graph: OpGraph, placement: Placement, weight: NDArray[np.float64], ax: Axes | None = None) -> Axes:
    """Draw ops as dots in layers from inputs to outputs; tensors that cross devices or teams stand out.

    A long graph is folded into rows, every other one from right to left; skip connections are arcs. The areas of the
    dots grow with `weight`: seconds, or operations; edges between devices are as wide as their bytes.
    """
    from matplotlib.collections import EllipseCollection

    radius = dot_radius(weight)
    layout = lay_out(graph, radius, _ASPECT)
    left, top, right, bottom = layout.box
    width, height = right - left + 2.0, bottom - top + 2.0
    legend_in = 0.4 + 0.2 * (len(np.unique(placement.device_of_op)) // 6)
    drawing_in = float(np.clip(_WIDTH_IN * height / width, 1.2, 7.0))
    ax = axes_or_new(ax, width_in=_WIDTH_IN, height_in=drawing_in + legend_in)
    if graph.num_ops + graph.num_edges > _RASTER_OVER:
        ax.set_rasterization_zorder(3)  # edges and dots together are one image
    ax.set_xlim(left - 1.0, right + 1.0)
    ax.set_ylim(bottom + 1.2, top - 0.8)
    ax.set_aspect("equal")
    ax.axis("off")
    points_per_unit = 72 * _WIDTH_IN / width
    handles = _draw_edges(ax, graph, placement, layout, points_per_unit)
    device = placement.device_of_op
    colors = np.array([device_color(d) for d in range(len(placement.device_names))])
    dots = EllipseCollection(
        2 * radius, 2 * radius, np.zeros(graph.num_ops), units="xy", offsets=np.stack([layout.x, layout.y], axis=1),
        offset_transform=ax.transData, facecolors=colors[device].tolist(), linewidths=0, zorder=2,
    )  # fmt: skip
    ax.add_collection(dots, autolim=False)
    for word, ops in zip(("in", "out"), ends_of(graph), strict=True):
        _name_ends(ax, graph, layout, (ops, colors[device[ops]].tolist()), word)
    _draw_legend(ax, placement, handles)
    return ax


def ends_of(graph: OpGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ops without predecessors, which are the inputs, and the ops without successors, the outputs."""
    degrees = (np.bincount(ops, minlength=graph.num_ops) for ops in (graph.receivers, graph.senders))
    first, last = (np.flatnonzero(degree == 0) for degree in degrees)
    return first, last


def _draw_edges(ax: Axes, graph: OpGraph, placement: Placement, layout: Layout, points_per_unit: float) -> list[Line2D]:
    """Draw edges with their arrowheads; return entries of the legend for those that stand out."""
    from matplotlib.collections import PolyCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    device = placement.device_of_op
    crossing = device[graph.senders] != device[graph.receivers]
    thin = float(np.clip(points_per_unit / 20, 0.4, 1.0))
    handles = []
    for kind, chosen, label in (
        ("near", ~crossing & ~layout.is_long, ""),
        ("skip", ~crossing & layout.is_long, "skips layers"),
        ("crossing", crossing, "crosses devices, as wide as its bytes"),
    ):
        if not chosen.any():
            continue
        widths = np.full(graph.num_edges, thin * (1.0 if kind == "near" else 1.6))
        if kind == "crossing":
            widths = _widths_by_bytes(graph, chosen, thin * 1.6)
        # one path for all edges of a width: as vectors a path of its own for each would be five times as large
        for width in np.unique(widths[chosen]).tolist():
            alike = chosen & (widths == width)
            points = np.stack([layout.start[alike], layout.control[alike], layout.end[alike]], axis=1).reshape(-1, 2)
            codes = np.tile([Path.MOVETO, Path.CURVE3, Path.CURVE3], int(alike.sum()))
            style = {"facecolor": "none", "edgecolor": EDGE_COLORS[kind], "linewidth": width, "zorder": 1}
            ax.add_patch(PathPatch(Path(points, codes), **style))
        ax.add_collection(PolyCollection(layout.heads[chosen], facecolors=EDGE_COLORS[kind], zorder=1), autolim=False)
        if label:
            handles.append(Line2D([], [], color=EDGE_COLORS[kind], linewidth=1.4, label=label))
    return handles


def _widths_by_bytes(graph: OpGraph, chosen: NDArray[np.bool_], thin: float) -> NDArray[np.float64]:
    """Return a width per edge: from `thin` for the fewest bytes to `_WIDEST` times that, in four steps."""
    num_bytes = graph.tensor_bytes[graph.consumed_tensor]
    most = float(num_bytes[chosen].max(initial=0.0))
    if most <= 0:
        return np.full(graph.num_edges, thin)
    widths: NDArray[np.float64] = thin * (1 + (_WIDEST - 1) / 3 * np.round(3 * num_bytes / most))
    return widths


def _name_ends(ax: Axes, graph: OpGraph, layout: Layout, ends: tuple[NDArray[np.int64], list[str]], word: str) -> None:
    """Mark inputs or outputs in the colours of their devices, and write their names below them if they are few."""
    ops, colors = ends
    style: dict[str, Any] = {
        "marker": ">" if word == "in" else "s",
        "facecolors": colors,
        "edgecolors": COLORS["text"] if len(ops) <= _NAMED else colors,
        "linewidths": 0.6,
        "zorder": 3,
    }
    ax.scatter(layout.x[ops], layout.y[ops], s=16, **style)
    if len(ops) > _NAMED:
        return
    for op in ops.tolist():
        name = shorten(graph.op_names[op], _NAME_LENGTH)
        at = (float(layout.x[op]), float(layout.y[op] + 0.5))
        # the text leads away from the border of the figure
        rightmost = layout.x[op] > (layout.x.min() + layout.x.max()) / 2
        ax.text(
            *at, plain_label(f"{word}: {name}"), fontsize=7, color=COLORS["text"], va="top",
            ha="right" if rightmost else "left",
        )  # fmt: skip


def _draw_legend(ax: Axes, placement: Placement, lines: list[Line2D]) -> None:
    """Put the legend above the drawing, where it covers nothing."""
    from matplotlib.lines import Line2D

    device = placement.device_of_op
    handles = [
        Line2D(
            [], [], marker="o", linestyle="", color=device_color(d),
            label=plain_label(f"{placement.team_name(d)}: {count} op{'s' * (count != 1)}"),
        )
        for d, count in zip(*(each.tolist() for each in np.unique(device, return_counts=True)), strict=True)
    ]  # fmt: skip
    legend_above(ax, [*handles, *lines])

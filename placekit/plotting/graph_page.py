"""A page that shows a computation graph by device, to zoom into; ops say what they are when they are pointed at."""

from __future__ import annotations

import html
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.io.visible import device_color, visible
from placekit.plotting.canvas import shorten
from placekit.plotting.layout import Layout, dot_radius, lay_out
from placekit.plotting.plot_graph import EDGE_COLORS, ends_of

if TYPE_CHECKING:
    from placekit.model.graph import OpGraph
    from placekit.model.placement import Placement

MAX_ELEMENTS = 60_000
"""Ops and edges that a browser still moves smoothly; of larger graphs only the edges that cross devices are drawn."""
MAX_NAMED = 3000
"""Ops whose names are written when the page is zoomed in; of larger graphs they appear when pointed at."""
_NAMED, _NAME_LENGTH = 8, 16
_STEP = 30.0
"""Units between two layers, and between two ops of a layer."""
_ASPECT = 1.6
"""Width by height of a page that rows should fill."""


def graph_page(graph: OpGraph, placement: Placement, weight: ArrayLike, title: str) -> str:
    """Return one self-contained HTML page.

    The areas of the dots grow with `weight`: seconds, or operations.

    Notes
    -----
    Ops stand as in :func:`~placekit.plotting.plot_graph.draw_graph`; a graph much longer than wide is folded into
    rows, every other one from right to left. Skip connections are arcs. O(ops log ops + edges).
    """
    weight = np.asarray(weight, dtype=np.float64)
    radius = dot_radius(weight)
    layout = lay_out(graph, radius, _ASPECT)
    device = placement.device_of_op
    crossing = device[graph.senders] != device[graph.receivers]
    drawn = crossing if graph.num_ops + graph.num_edges > MAX_ELEMENTS else np.ones(graph.num_edges, dtype=bool)
    parts = []
    for kind, chosen in (
        ("e", drawn & ~crossing & ~layout.is_long),
        ("s", drawn & ~crossing & layout.is_long),
        ("c", drawn & crossing),
    ):
        parts += [
            f'<path class="{kind}" d="{_curves(layout, chosen)}"/>',
            f'<path class="{kind}h" d="{_heads(layout, chosen)}"/>',
        ]
    x, y, radius = _STEP * layout.x, _STEP * layout.y, _STEP * radius
    inputs, outputs = (set(ops.tolist()) for ops in ends_of(graph))
    named = graph.num_ops <= MAX_NAMED
    for op in range(graph.num_ops):
        d = int(device[op])
        told = f"{graph.op_names[op]}\n{graph.op_types[op]} on {placement.team_name(d)}"
        end = "i" if op in inputs else "o" if op in outputs else ""
        parts.append(
            f'<circle class="d{d}{f" {end}" if end else ""}" cx="{x[op]:.0f}" cy="{y[op]:.0f}" r="{radius[op]:.1f}">'
            f"<title>{_text(told)}</title></circle>"
        )
        if named:
            below, name = y[op] + radius[op] + 3.5, _text(shorten(graph.op_names[op], _NAME_LENGTH))
            parts.append(f'<text class="n" x="{x[op]:.0f}" y="{below:.1f}">{name}</text>')
    parts += _end_labels(graph, x, y)
    used = np.unique(device).tolist()
    style = "".join(f".d{d}{{fill:{device_color(d)}}}" for d in used)
    legend = "".join(
        f'<label><input type="checkbox" checked data-device="d{d}">'
        f'<svg viewBox="-6 -6 12 12"><circle class="d{d}" r="5"/></svg>'
        f"{_text(placement.team_name(d))}: {int((device == d).sum())} ops</label>"
        for d in used
    )
    left, top, right, bottom = (_STEP * each for each in layout.box)
    margin = 1.5 * _STEP
    box = f"{left - margin:.0f} {top - margin:.0f} {right - left + 2 * margin:.0f} {bottom - top + 2 * margin:.0f}"
    values = {
        "title": _text(title), "heading": _text(title), "style": style, "legend": legend, "box": box,
        "crossing": EDGE_COLORS["crossing"], "skip": EDGE_COLORS["skip"], "near": EDGE_COLORS["near"],
        "parts": "\n".join(parts),
    }  # fmt: skip
    page = resources.files("placekit.plotting").joinpath("graph_page.html").read_text(encoding="utf-8")
    for name, value in values.items():
        page = page.replace(f"[[{name}]]", value)
    return page


def _curves(layout: Layout, chosen: NDArray[np.bool_]) -> str:
    """Return the lines of the `chosen` edges as the data of one path."""
    ends = (_STEP * np.concatenate([layout.start, layout.control, layout.end], axis=1))[chosen]
    return "".join(
        f"M{a:.0f} {b:.0f}Q{c:.0f} {d:.0f} {e:.1f} {f:.1f}" if bent else f"M{a:.0f} {b:.0f}L{e:.1f} {f:.1f}"
        for (a, b, c, d, e, f), bent in zip(ends.tolist(), layout.is_long[chosen].tolist(), strict=True)
    )


def _heads(layout: Layout, chosen: NDArray[np.bool_]) -> str:
    corners = (_STEP * layout.heads[chosen]).reshape(-1, 6).tolist()
    return "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}L{e:.1f} {f:.1f}Z" for a, b, c, d, e, f in corners)


def _end_labels(graph: OpGraph, x: NDArray[np.float64], y: NDArray[np.float64]) -> list[str]:
    """Return names of inputs and outputs, which are always visible, if they are few."""
    labels = []
    for word, ops in zip(("in", "out"), ends_of(graph), strict=True):
        for op in ops.tolist() if len(ops) <= _NAMED else ():
            # the text leads away from the border of the page
            anchor = "end" if x[op] > (x.min() + x.max()) / 2 else "start"
            labels.append(
                f'<text class="end" text-anchor="{anchor}" x="{x[op]:.0f}" y="{y[op] + 0.8 * _STEP:.0f}">'
                f"{word}: {_text(graph.op_names[op])}</text>"
            )
    return labels


def _text(text: str) -> str:
    return html.escape("\n".join(visible(line) for line in text.split("\n")))

"""A page that shows a computation graph by device, to zoom into; ops say what they are when they are pointed at."""

from __future__ import annotations

import html
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.io.visible import visible
from placekit.plotting.canvas import COLORS
from placekit.plotting.plot_graph import DEVICE_COLORS, layered_positions

if TYPE_CHECKING:
    from placekit.model.graph import OpGraph
    from placekit.model.placement import Placement

__all__ = ["MAX_ELEMENTS", "graph_page"]

MAX_ELEMENTS = 60_000
"""Ops and edges that a browser still moves smoothly; of larger graphs only the edges that cross devices are drawn."""
_STEP = 30.0
"""Units between two layers, and between two ops of a layer."""
_ASPECT = 1.6
"""Width by height of a page that rows should fill."""


def graph_page(graph: OpGraph, placement: Placement, weight: ArrayLike, title: str) -> str:
    """Return one self-contained HTML page.

    Parameters
    ----------
    graph
        The graph.
    placement
        A placement of its ops; they have the colours of their devices or teams.
    weight
        ``[num_ops]`` what the areas of the dots grow with: seconds, or operations.
    title
        Heading of the page.

    Notes
    -----
    Ops stand as in :func:`~placekit.plotting.plot_graph.plot_graph`; a graph much longer than wide is folded into
    rows, every other one from right to left. O(ops log ops + edges).
    """
    x, y = _in_rows(*(_STEP * each for each in layered_positions(graph)))
    device = placement.device_of_op
    radius = 3.0 + 9.0 * np.sqrt(np.asarray(weight) / max(float(np.max(weight, initial=0.0)), 1e-300))
    crossing = device[graph.senders] != device[graph.receivers]
    drawn = crossing if graph.num_ops + graph.num_edges > MAX_ELEMENTS else np.ones(graph.num_edges, dtype=bool)
    parts = []
    for kind, chosen in (("e", drawn & ~crossing), ("c", drawn & crossing)):
        ends = zip(graph.senders[chosen].tolist(), graph.receivers[chosen].tolist(), strict=True)
        lines = "".join(f"M{x[u]:.0f} {y[u]:.0f}L{x[v]:.0f} {y[v]:.0f}" for u, v in ends)
        parts.append(f'<path class="{kind}" d="{lines}"/>')
    for op in range(graph.num_ops):
        d = int(device[op])
        told = f"{graph.op_names[op]}\n{graph.op_types[op]} on {placement.team_name(d)}"
        parts.append(
            f'<circle class="d{d}" cx="{x[op]:.0f}" cy="{y[op]:.0f}" r="{radius[op]:.1f}">'
            f"<title>{_text(told)}</title></circle>"
        )
    used = np.unique(device).tolist()
    style = "".join(f".d{d}{{fill:{DEVICE_COLORS[d % len(DEVICE_COLORS)]}}}" for d in used)
    legend = "".join(
        f'<label><input type="checkbox" checked data-device="d{d}">'
        f'<svg viewBox="-6 -6 12 12"><circle class="d{d}" r="5"/></svg>'
        f"{_text(placement.team_name(d))}: {int((device == d).sum())} ops</label>"
        for d in used
    )
    left, top = float(x.min(initial=0.0)) - _STEP, float(y.min(initial=0.0)) - _STEP
    box = f"{left:.0f} {top:.0f} {np.ptp(x) + 2 * _STEP:.0f} {np.ptp(y) + 2 * _STEP:.0f}"
    values = {
        "title": _text(title), "heading": _text(title), "style": style, "legend": legend, "box": box,
        "crossing": COLORS["transfer"], "parts": "\n".join(parts),
    }  # fmt: skip
    page = resources.files("placekit.plotting").joinpath("graph_page.html").read_text(encoding="utf-8")
    for name, value in values.items():
        page = page.replace(f"[[{name}]]", value, 1)
    return page


def _in_rows(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fold what is long into rows, to and fro, so that edges between rows stay short."""
    if not len(x):
        return x, y
    width, height = float(np.ptp(x)) + _STEP, float(np.ptp(y)) + 2 * _STEP
    rows = max(int(np.sqrt(width / (_ASPECT * height))), 1)
    length = np.ceil(width / rows / _STEP) * _STEP
    row, along = np.divmod(x - x.min(), length)
    return np.where(row % 2 == 1, length - _STEP - along, along), y + row * height


def _text(text: str) -> str:
    return html.escape("\n".join(visible(line) for line in text.split("\n")))

"""Layout of a computation graph: where ops stand, how edges bend around them, and where arrows end.

Lengths are in layers: neighbouring layers, and neighbouring ops of one layer, are one unit apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from placekit.model.graph import OpGraph

_SWEEPS = 6
_MAX_BULGE = 4.0
_HEAD_LENGTH, _HEAD_WIDTH = 0.24, 0.18


@dataclass(frozen=True, eq=False)
class Layout:
    """Coordinates of ops and edges; y grows downwards."""

    # x, y: ``[num_ops]`` centre of every op
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    # start, control, end: ``[num_edges, 2]`` every edge as a quadratic curve. It ends at the border of its receiver
    start: NDArray[np.float64]
    control: NDArray[np.float64]
    end: NDArray[np.float64]
    heads: NDArray[np.float64]  # ``[num_edges, 3, 2]`` corners of the arrowheads
    # ``[num_edges]`` True for an edge that passes over at least one layer: a skip connection
    is_long: NDArray[np.bool_]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of all ops and edges."""
        middle = 0.25 * self.start + 0.5 * self.control + 0.25 * self.end
        points = np.concatenate([np.stack([self.x, self.y], axis=1), middle, np.zeros((int(not len(self.x)), 2))])
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        return float(left), float(top), float(right), float(bottom)


def dot_radius(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Radius of every op, in layers; the area grows with the weight."""
    radius: NDArray[np.float64] = 0.1 + 0.3 * np.sqrt(weight / max(float(np.max(weight, initial=0.0)), 1e-300))
    return radius


def lay_out(graph: OpGraph, radius: NDArray[np.float64], aspect: float) -> Layout:
    """Place ops in layers from inputs to outputs, and bend edges that pass over a layer around its ops.

    1. Ops stand where `layered_positions` puts them. A graph much longer than wide is folded into rows, every other
       one from right to left.
    2. An edge over several layers of a row becomes an arc: the longer, the higher, so that nested skip connections
       stay apart.

    Rows should fill `aspect`, width by height; `radius` is that of `dot_radius`.

    Notes
    -----
    O(ops log ops + edges).
    """
    layer, place = layered_positions(graph)
    span = np.abs(layer[graph.receivers] - layer[graph.senders])
    bulge = np.where(span > 1, np.minimum(0.5 * np.sqrt(span), _MAX_BULGE), 0.0)
    is_long = bulge > 0
    up = place[graph.senders] + place[graph.receivers] <= 0
    height = float(np.ptp(place)) + 2.0 + float(bulge.max(initial=0.0)) if len(layer) else 1.0
    width = float(np.ptp(layer)) + 1.0 if len(layer) else 1.0
    rows = max(int(np.sqrt(width / (aspect * height))), 1)
    length = float(np.ceil(width / rows))
    row, along = np.divmod(layer, length)
    bulge = np.where(row[graph.senders] == row[graph.receivers], bulge, 0.0)
    above, below = (float(bulge[chosen].max(initial=0.0)) for chosen in (up, ~up))
    x = np.where(row % 2 == 1, length - 1.0 - along, along)
    y = place + row * (float(np.ptp(place)) + 2.2 + above + below if len(layer) else 0.0)
    start, end = (np.stack([x[ops], y[ops]], axis=1) for ops in (graph.senders, graph.receivers))
    control = (start + end) / 2
    control[:, 1] += np.where(up, -2.0, 2.0) * bulge
    heads, end = _arrowheads(control, end, radius[graph.receivers])
    return Layout(x, y, start, control, end, heads, is_long)


def _arrowheads(
    control: NDArray[np.float64], tip: NDArray[np.float64], radius: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the arrowheads of edges to the centres `tip` of dots, and where their lines end."""
    along = tip - control
    along = along / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-12)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    tip = tip - along * radius[:, None]
    back = tip - _HEAD_LENGTH * along
    side = 0.5 * _HEAD_WIDTH * across
    return np.stack([tip, back + side, back - side], axis=1), tip - 0.5 * _HEAD_LENGTH * along


def layered_positions(graph: OpGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``[num_ops]`` coordinates of every op: its layer, and its place across the layer.

    The layer is the longest path from an input; ops without inputs stand just before their first consumer. Within a
    layer ops are ordered by the mean place of their neighbours, a few sweeps in both directions (Sugiyama, Tagawa and
    Toda, 1981), and set one unit apart around the middle. O(sweeps * (ops log ops + edges)).
    """
    senders, receivers = graph.senders, graph.receivers
    layer = np.zeros(graph.num_ops, dtype=np.int64)
    for u, v in graph.ordered_edges:
        layer[v] = max(layer[v], layer[u] + 1)
    first_use = np.full(graph.num_ops, np.iinfo(np.int64).max)
    np.minimum.at(first_use, senders, layer[receivers])
    is_source = np.bincount(receivers, minlength=graph.num_ops) == 0
    layer = np.where(is_source & (first_use < np.iinfo(np.int64).max), np.maximum(first_use - 1, 0), layer)
    place = _centred(layer, graph.rank.astype(np.float64))
    for sweep in range(_SWEEPS):
        here, there = (receivers, senders) if sweep % 2 == 0 else (senders, receivers)
        total = np.bincount(here, weights=place[there], minlength=graph.num_ops)
        degree = np.bincount(here, minlength=graph.num_ops)
        wanted = np.where(degree > 0, total / np.maximum(degree, 1), place)
        place = _centred(layer, wanted + 1e-9 * graph.rank)
    return layer.astype(np.float64), place


def _centred(layer: NDArray[np.int64], key: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[num_ops]`` places in every layer in the order of `key`, one unit apart around 0."""
    order = np.lexsort((key, layer))
    sizes = np.bincount(layer)
    begins = np.cumsum(sizes) - sizes
    place = np.empty(len(layer))
    place[order] = np.arange(len(layer)) - begins[layer[order]]
    return place - (sizes[layer] - 1) / 2

"""The figures of the report: how methods compare over all problems of an objective, and over time."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.benchmarks.report.groups import Group, labels_of
from placekit.benchmarks.statistics import anytime_gap
from placekit.plotting.canvas import axes_or_new, figure_of, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Picture", "picture_of", "plot_anytime"]

_COLORS = (
    "#3b6ea8", "#e08e45", "#4c9f70", "#c44e52", "#8172b3", "#8c6d46", "#d98cb3", "#7f7f7f", "#a8a13b", "#4bb3c3",
)  # fmt: skip
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Picture:
    """A figure with its caption; the URL has all of it."""

    caption: str
    url: str


def style_of(label: str, labels: Sequence[str]) -> dict[str, Any]:
    """Return colour and line style of a method: the same in every figure that has the same methods."""
    at = list(labels).index(label)
    return {"color": _COLORS[at % len(_COLORS)], "linestyle": _STYLES[at // len(_COLORS) % len(_STYLES)]}


def plot_anytime(groups: Sequence[Group], ax: Axes | None = None) -> Axes:
    """Draw the median gap to the best proven bound over time, per method; the time of a warm start is included."""
    groups = [group for group in groups if group.bound_s is not None]
    ends = [
        row["runtime_s"] + (row["warm_start_s"] or 0.0) for g in groups for row in g.all_rows if row["error"] is None
    ]
    times_s = np.geomspace(1e-3, max([*ends, 1.0]), 160)
    labels = labels_of(groups)
    ax = axes_or_new(ax, 7.2, 3.2)
    for label in labels:
        curves = [
            anytime_gap([(line[0], line[1], line[2]) for line in row["trace"]], group.bound_s, times_s - before)
            for group in groups
            for row in group.rows.get(label, ())
            if row["error"] is None and group.bound_s is not None
            for before in [row["warm_start_s"] or 0.0]
        ]
        if curves:
            gaps = np.median(curves, axis=0) * 100 + 1e-3
            ax.step(times_s, gaps, where="post", label=plain_label(label), **style_of(label, labels))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(8e-4, 120)
    ax.set_yticks([1e-3, 1e-2, 1e-1, 1, 10, 100], ["0", "0.01", "0.1", "1", "10", "100"])  # the lowest line is 0
    ax.set_xlabel("time (s)")
    ax.set_ylabel("median gap to the best bound (%)")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def picture_of(axes: Axes, caption: str) -> Picture:
    """Return a figure as an SVG that stands in the page itself."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    family = ["DejaVu Sans", "sans-serif"]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": caption, "font.family": family}):
        figure_of(axes).savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, dpi=120)
    return Picture(caption, f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}")

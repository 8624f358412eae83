"""The figures of the report: how methods compare over all problems of an objective, and over time."""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.benchmarks.report.groups import Group, labels_of
from placekit.benchmarks.statistics import anytime_gap
from placekit.io.visible import visible
from placekit.plotting.canvas import axes_or_new, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Picture", "inline_svg", "plot_anytime"]

_COLORS = (
    "#3b6ea8", "#e08e45", "#4c9f70", "#c44e52", "#8172b3", "#8c6d46", "#d98cb3", "#7f7f7f", "#a8a13b", "#4bb3c3",
)  # fmt: skip
_STYLES = ("-", "--", ":", "-.")
_TIP = "tip:"
"""Begins the id of what tells something when the pointer rests on it."""


@dataclass(frozen=True)
class Picture:
    """A figure with its caption."""

    caption: str
    svg: str


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
            steps = _corners(times_s, np.median(curves, axis=0) * 100 + 1e-3)
            (line,) = ax.step(*steps, where="post", label=plain_label(label), **style_of(label, labels))
            line.set_gid(f"{_TIP}{label}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(8e-4, 120)
    ax.set_yticks([1e-3, 1e-2, 1e-1, 1, 10, 100], ["0", "0.01", "0.1", "1", "10", "100"])  # the lowest line is 0
    ax.set_xlabel("time (s)")
    ax.set_ylabel("median gap to the best bound (%)")
    return _with_legend(ax)


def inline_svg(figure: Figure, title: str) -> str:
    """Return a figure as an ``<svg>`` element that scales to its column; `title` says what it shows.

    Text stays text. Ids are made unique by the title, because all figures of a page share one space of names; those
    that nothing refers to are dropped. Coordinates are rounded to 1/100 point.
    """
    import matplotlib as mpl

    title = visible(title)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": ["DejaVu Sans", "sans-serif"]}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, dpi=120)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    assert width is not None  # every figure of matplotlib has one
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(rf'<g id="{_TIP}([^"]*)">', lambda found: f"<g><title>{visible(found[1])}</title>", text)
    referred = re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', text)
    salt = "f" + hashlib.sha256(title.encode()).hexdigest()[:8]
    short = {name: f"{salt}-{at}" for at, name in enumerate(dict.fromkeys(one or other for one, other in referred))}
    text = re.sub(r' id="([^"]+)"', lambda old: f' id="{short[old[1]]}"' if old[1] in short else "", text)
    text = re.sub(r'(xlink:href="#|url\(#)([^")]+)', lambda old: old[1] + short[old[2]], text)
    text = re.sub(r">\s*\n\s*<", "><", text)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(?<=\d\.\d\d)\d+", "", tag[0]), text)  # not in texts
    name = html.escape(title, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{name}" style="max-width:{float(width[1]):.0f}pt"', 1)


def _corners(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of a step function at which it changes, and its last one."""
    kept = np.append(np.diff(y, prepend=np.nan)[:-1] != 0, True)
    return x[kept], y[kept]


def _with_legend(ax: Axes) -> Axes:
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax

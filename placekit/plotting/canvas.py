"""Axes that touch no figure of whoever calls; units, labels and lanes that figures share; figures as files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.io.atomic import write_bytes
from placekit.io.needs import require
from placekit.io.visible import visible
from placekit.model.errors import PlacekitError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE_FORMATS = ("png", "svg", "pdf")
COLORS = {"compute": "#3b6ea8", "transfer": "#e08e45", "bound": "#4c9f70", "objective": "#3b6ea8", "text": "#444444"}
"""One colour per meaning, the same in every figure; told apart also in grey and by the colour-blind."""


def plain_label(text: str) -> str:
    r"""Return `text` so that matplotlib draws it as it is: between dollar signs it would read formulas.

    Examples
    --------
    >>> print(plain_label("cost in $ or in $"))
    cost in \$ or in \$
    """
    return visible(text).replace("$", r"\$")


def shorten(name: str, length: int) -> str:
    """Return `name` in at most `length` characters: its end says most, as in a path; empty if nothing useful fits.

    Examples
    --------
    >>> shorten("encoder/layer.0/query", 30), shorten("encoder/layer.0/query", 8), shorten("encoder", 2)
    ('encoder/layer.0/query', '…0/query', '')
    """
    if len(name) <= length:
        return name
    return "…" + name[len(name) - length + 1 :] if length >= 4 else ""


def time_scale(longest_s: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that reads best for times up to `longest_s`.

    Examples
    --------
    >>> time_scale(61.9), time_scale(0.0032), time_scale(4e-5)
    ((1.0, 's'), (1000.0, 'ms'), (1000000.0, 'us'))
    """
    if longest_s >= 1.0:
        return 1.0, "s"
    return (1e3, "ms") if longest_s >= 1e-3 or longest_s == 0 else (1e6, "us")


def time_text(time_s: float) -> str:
    """Return a time as people read it: four digits at most, but no digits of whole units lost.

    Examples
    --------
    >>> time_text(61.92), time_text(0.0032), time_text(5.12827e-4), time_text(123456.7)
    ('61.92 s', '3.2 ms', '512.8 us', '123457 s')
    """
    factor, unit = time_scale(time_s)
    value = time_s * factor
    return f"{value:.0f} {unit}" if value >= 1e4 else f"{value:.4g} {unit}"


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return a figure that belongs to no global state: pyplot, its windows and its back-ends are never touched."""
    require("matplotlib", "a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def axes_or_new(ax: Axes | None, width_in: float = 7.0, height_in: float = 3.0) -> Axes:
    """Return `ax`, or the axes of a new figure, without the two spines that carry no scale."""
    if ax is None:
        ax = new_figure(width_in, height_in).subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure that `ax` is part of."""
    from matplotlib.figure import Figure

    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)  # root=True never gives a subfigure
    return figure


def legend_above(ax: Axes, handles: Sequence[Artist] | None = None, title: str = "") -> None:
    """Put legend and title above the axes, in lines of their own, where they cover neither data nor labels."""
    found: Sequence[Artist] = ax.get_legend_handles_labels()[0] if handles is None else handles
    columns = min(max(len(found), 1), 6)
    rows = -(-len(found) // columns)
    if title:
        ax.set_title(plain_label(title), fontsize=10, loc="left", pad=6 + 13 * rows)
    ax.legend(
        handles=found, ncols=columns, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
    )  # fmt: skip


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write `figure` to `path`, in the format of its suffix. The write is atomic."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FIGURE_FORMATS:
        raise PlacekitError(f"cannot draw {path}: suffix {suffix!r} is none of {', '.join(FIGURE_FORMATS)}")
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix, dpi=150)
    write_bytes(path, stream.getvalue())

"""Axes to draw on, without touching the figures of whoever calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.io.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLORS", "axes_or_new", "figure_of", "new_figure", "plain_label"]

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


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return a figure that belongs to no global state: pyplot, its windows and its back-ends are never touched."""
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

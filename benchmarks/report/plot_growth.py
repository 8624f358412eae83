"""Figure: time and memory of the methods over the size of generated problems, with the fitted exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placekit.benchmarks.report.growth import Growth, fit_growth
from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import COLORS, axes_or_new, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIT_FROM", "QUANTITIES", "growth_of", "plot_growth", "plot_scaling"]

Row = Mapping[str, Any]

FIT_FROM = 1000
"""Smallest size that a fit looks at: below it, fixed costs hide the growth."""
QUANTITIES: Mapping[str, tuple[str, float]] = {
    "time_s": ("time (s)", 1.0),
    "memory_bytes": ("memory of the solve (MB)", 1e-6),
}
"""Fields of a row that are drawn: label of the axis, and what a value is multiplied with."""
STYLES: Mapping[str, tuple[str, str]] = {
    "dpl": ("#3b6ea8", "o"),
    "dp": ("#b03a48", "s"),
    "local-search": ("#4c9f70", "^"),
    "local-search from dpl": ("#e08e45", "D"),
}
"""Colour and marker of a method; told apart also in grey."""
OTHER_STYLE = ("#777777", "v")
ENDINGS = {"limit": "stopped at the time limit", "unproved": "ended without proof"}
"""Endings of a row whose value is not the cost of an answer."""


def growth_of(rows: Sequence[Row], quantity: str) -> Growth | None:
    """Fit how `quantity` grows, from the rows of one method that came to their end; None with less than two sizes."""
    used = [row for row in rows if row["ended"] == "done" and row["num_ops"] >= FIT_FROM and (row[quantity] or 0) > 0]
    return fit_growth([row["num_ops"] for row in used], [row[quantity] for row in used])


def plot_growth(rows: Sequence[Row], quantity: str, ax: Axes | None = None) -> Axes:
    """Draw one line per method over the number of ops, on logarithmic axes.

    Filled markers are complete answers; a hollow marker is a solve that was stopped or gave up, whose value is not the
    cost of an answer. Dashes are the fitted power law, over the sizes that it was fitted to.

    Parameters
    ----------
    rows
        Rows of one family.
    quantity
        A field of `QUANTITIES`.
    ax
        Axes to draw on; those of a new figure if None.
    """
    ax = axes_or_new(ax, 4.6, 3.4)
    label, factor = QUANTITIES[quantity]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = sorted((row for row in rows if row["method"] == method), key=lambda row: row["num_ops"])
        mine = [row for row in mine if (row[quantity] or 0) > 0]
        if not mine:
            continue
        color, marker = STYLES.get(method, OTHER_STYLE)
        growth = growth_of(mine, quantity)
        done = [row for row in mine if row["ended"] == "done"]
        name = method if growth is None else f"{method}: $n^{{{growth.exponent:.2f}}}$" + _error(growth)
        ax.plot(*_points(mine, quantity, factor), color=color, linewidth=0.8, alpha=0.5)
        ax.plot(*_points(done, quantity, factor), color=color, marker=marker, markersize=5, linestyle="", label=name)
        rest = [row for row in mine if row["ended"] != "done"]
        ax.plot(
            *_points(rest, quantity, factor), color=color, marker=marker, markersize=7, linestyle="",
            markerfacecolor="white", markeredgewidth=1.4,
        )  # fmt: skip
        if growth is not None:
            ends = [row["num_ops"] for row in done if row["num_ops"] >= FIT_FROM]
            ends = [min(ends), max(ends)]
            ax.plot(ends, [growth.at(end) * factor for end in ends], color=color, linewidth=1.2, linestyle="--")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("ops")
    ax.set_ylabel(label)
    ax.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if ax.lines:
        ax.legend(frameon=False, fontsize=7.5, loc="upper left")
    return ax


def plot_scaling(rows: Sequence[Row]) -> Figure:
    """Lay out `plot_growth`: time above, memory below, one column per family.

    Parameters
    ----------
    rows
        Rows of the scaling benchmark, one per case.

    Raises
    ------
    InvalidProblemError
        There are no rows with numbers.
    """
    rows = [row for row in rows if row["ended"] == "done" or row["ended"] in ENDINGS]
    if not rows:
        raise InvalidProblemError("scaling: no rows to draw")
    families = list(dict.fromkeys(row["family"] for row in rows))
    figure = new_figure(4.4 * len(families), 7.2)
    axes = figure.subplots(len(QUANTITIES), len(families), squeeze=False, sharex=True, sharey="row")
    for column, family in enumerate(families):
        for above, quantity in enumerate(QUANTITIES):
            ax = plot_growth([row for row in rows if row["family"] == family], quantity, axes[above][column])
            if column:
                ax.set_ylabel("")
            if above < len(QUANTITIES) - 1:
                ax.set_xlabel("")
        axes[0][column].set_title(family, fontsize=11)
    for row_of_axes in axes:
        _make_room(row_of_axes)
    hollow = [text for ending, text in ENDINGS.items() if any(row["ended"] == ending for row in rows)]
    note = f"dashed: least squares from {FIT_FROM} ops, exponent with its standard error"
    if hollow:
        note += f"; hollow: {' or '.join(hollow)} (not fitted)"
    figure.supxlabel(note, fontsize=8.5, color=COLORS["text"])
    return figure


def _make_room(axes: Sequence[Axes]) -> None:
    """Set the limits that `axes` share, and leave the upper third to the legends."""
    ranges = [ax.dataLim.intervaly for ax in axes if ax.lines]
    if not ranges:
        return
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    for ax in axes:
        ax.set_ylim(low / 1.5, high * (high / low) ** 0.5 * 1.5)


def _error(growth: Growth) -> str:
    return "" if growth.standard_error is None else f" ± {growth.standard_error:.2f}"


def _points(rows: Sequence[Row], quantity: str, factor: float) -> tuple[list[int], list[float]]:
    return [row["num_ops"] for row in rows], [row[quantity] * factor for row in rows]

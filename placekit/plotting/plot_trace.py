"""Figure: the best objective and the best bound over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.plotting.canvas import COLORS, axes_or_new, legend_above, time_scale, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.solve.result import Result

__all__ = ["plot_trace"]


def plot_trace(result: Result, ax: Axes | None = None) -> Axes:
    """Draw objective and bound as steps over the time of the solve; the space between them is what is not known.

    Parameters
    ----------
    result
        Any result; one without a trace gives empty axes that say so.
    ax
        Axes to draw on; those of a new figure if None.
    """
    ax = axes_or_new(ax)
    ends = max(result.runtime_s, max((line.time_s for line in result.trace), default=0.0))
    drawn = False
    known = [value for line in result.trace for value in (line.objective, line.bound) if value is not None]
    factor, unit = time_scale(max(known, default=0.0))
    for name, label in (("objective", "best objective"), ("bound", "bound")):
        points = [
            (line.time_s, getattr(line, name) * factor) for line in result.trace if getattr(line, name) is not None
        ]
        if points:
            times, values = zip(*points, strict=True)
            ax.step(
                [*times, ends],
                [*values, values[-1]],
                where="post",
                color=COLORS[name],
                label=f"{label} {time_text(values[-1] / factor)}",
                linestyle="-" if name == "objective" else ":",
                marker=".",
                markersize=4,
            )
            drawn = True
    if not drawn:
        ax.text(0.5, 0.5, "no placement and no bound was found", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel("time of the solve (s)")
    ax.set_ylabel(f"objective ({unit})")
    if drawn:
        legend_above(ax)
    return ax

"""Figure: a result on one page, its loads above its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.plotting.canvas import new_figure
from placekit.plotting.plot_loads import plot_loads
from placekit.plotting.plot_trace import plot_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from placekit.solve.result import Result

__all__ = ["plot_result"]


def plot_result(result: Result) -> Figure:
    """Lay out `plot_loads` and `plot_trace`; a result without a placement has only a trace.

    Parameters
    ----------
    result
        Any result.
    """
    if result.placement is None:
        figure = new_figure(8.0, 3.0)
        plot_trace(result, figure.subplots())
        return figure
    loads_in = min(1.0 + 0.35 * len(result.device_loads), 12.0)
    figure = new_figure(8.0, loads_in + 2.6)
    above, below = figure.subplots(2, 1, height_ratios=[loads_in, 2.2])
    plot_loads(result, above)
    plot_trace(result, below)
    return figure

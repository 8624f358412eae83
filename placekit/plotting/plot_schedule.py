"""Figure: a schedule as a Gantt chart, ops as bars per device and transfers as thin bars with arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import COLORS, axes_or_new, figure_of, legend_above, plain_label, time_scale, time_text
from placekit.plotting.lanes import assign_lanes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from placekit.objectives.base import Schedule
    from placekit.solve.result import Result

_OPS_IN, _SENDS_IN = 0.56, 0.20
"""Height of a device's ops and of its transfers, as shares of its row."""
_MAX_LANES = 6
"""More events side by side on one device than this share lines: they would be too thin to see."""
_MAX_ARROWS = 150
"""Charts with more transfers between devices have no arrows, which would only hide the bars."""
_CHARACTER_PT = 4.4
"""Width of a character of a label, 7 points high."""


def plot_schedule(result: Result, ax: Axes | None = None) -> Axes:
    """Draw what every device does when: its ops, and below them what it sends to which device.

    Ops carry their names where these fit into the bars, shortened if need be. Ops that run beside each other on one
    device (a host that works at graph width) share its row. An arrow leads from the end of a transfer to the device
    that receives it.

    Parameters
    ----------
    result
        A result with a schedule.
    ax
        Axes to draw on; those of a new figure if None.

    Raises
    ------
    InvalidProblemError
        The result has no schedule, so there is nothing to draw.
    """
    schedule, placement = result.schedule, result.placement
    if schedule is None or placement is None or result.objective is None:
        what = f"result of {result.problem_name!r} ({result.objective_name}, status {result.status})"
        raise InvalidProblemError(f"{what} has no schedule to draw")
    names = placement.device_names
    ax = axes_or_new(ax, width_in=11.0, height_in=min(1.3 + 0.55 * len(names), 24.0))
    end_s = max(float(schedule.finish_s.max(initial=0.0)), result.objective, 1e-12)
    factor, unit = time_scale(end_s)
    ax.set_xlim(0, end_s * factor * 1.01)
    ax.set_ylim(len(names) - 0.45, -0.55)
    crosses = schedule.is_transfer & (schedule.peer >= 0)
    _draw_ops(ax, schedule, np.flatnonzero(~crosses), placement.op_names, factor)
    _draw_sends(ax, schedule, np.flatnonzero(crosses), factor)
    ax.axvline(result.objective * factor, color=COLORS["text"], linewidth=0.8, linestyle="--")
    if result.lower_bound is not None and result.lower_bound > 0:
        ax.axvline(result.lower_bound * factor, color=COLORS["bound"], linewidth=1.2, linestyle=":")
    ax.set_yticks(range(len(names)), [plain_label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"time ({unit})")
    title = f"{result.problem_name}: {result.objective_name} {time_text(result.objective)} by {result.method}"
    has_bound = bool(result.lower_bound and result.lower_bound > 0)
    _draw_legend(ax, title, bool(schedule.is_transfer.any()), has_bound=has_bound)
    return ax


def _draw_ops(
    ax: Axes, schedule: Schedule, events: NDArray[np.int64], op_names: tuple[str, ...], factor: float
) -> None:
    """Draw ops, and the transfers that keep their device itself busy, in lanes of the device's row."""
    from matplotlib.collections import PolyCollection

    device, start, width = _times(schedule, events, factor)
    lane = assign_lanes(device, schedule.start_s[events], schedule.finish_s[events])
    lanes = np.ones(int(device.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(lanes, device, np.minimum(lane + 1, _MAX_LANES))
    height = _OPS_IN / lanes[device]
    top = device - 0.5 * (_OPS_IN + _SENDS_IN) + (lane % lanes[device]) * height
    is_transfer = schedule.is_transfer[events]
    shades = np.where(is_transfer, COLORS["transfer"], COLORS["compute"]).tolist()
    corners = _rectangles(start, width, top, height)
    bars = PolyCollection(corners, facecolors=shades, edgecolors="white", linewidths=0.4)
    ax.add_collection(bars, autolim=False)
    figure = figure_of(ax)
    points_per_unit = ax.get_position().width * figure.get_figwidth() * 72 / ax.get_xlim()[1]
    tall_enough = height * 0.5 * 72 > 7  # a row is about half an inch high
    for event in np.flatnonzero(tall_enough & ~is_transfer).tolist():
        text = _shorten(op_names[schedule.op[events[event]]], int(width[event] * points_per_unit / _CHARACTER_PT))
        if text:
            x, y = start[event] + width[event] / 2, top[event] + height[event] / 2
            ax.text(x, y, plain_label(text), ha="center", va="center", fontsize=7, color="white", clip_on=True)


def _draw_sends(ax: Axes, schedule: Schedule, events: NDArray[np.int64], factor: float) -> None:
    """Draw transfers between devices below their sender's ops; arrows to the receivers if they are not too many."""
    from matplotlib.collections import PolyCollection

    device, start, width = _times(schedule, events, factor)
    lane = assign_lanes(device, schedule.start_s[events], schedule.finish_s[events])
    lanes = np.ones(int(device.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(lanes, device, np.minimum(lane + 1, _MAX_LANES))
    height = _SENDS_IN / lanes[device]
    top = device + 0.5 * (_OPS_IN - _SENDS_IN) + 0.03 + (lane % lanes[device]) * height
    corners = _rectangles(start, width, top, height * 0.8)
    bars = PolyCollection(corners, facecolors=COLORS["transfer"])
    ax.add_collection(bars, autolim=False)
    if len(events) > _MAX_ARROWS:
        return
    for event in range(len(events)):
        to = int(schedule.peer[events[event]])
        edge = 0.5 * (_OPS_IN + _SENDS_IN)
        begin = (start[event] + width[event], top[event] + height[event] * 0.4)
        end = (begin[0], to - edge if to > device[event] else to - edge + _OPS_IN)
        style = {"arrowstyle": "-|>", "color": COLORS["transfer"], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, begin, arrowprops={**style, "mutation_scale": 5, "alpha": 0.75}, zorder=0.5)


def _times(
    schedule: Schedule, events: NDArray[np.int64], factor: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    start, finish = schedule.start_s[events] * factor, schedule.finish_s[events] * factor
    return schedule.device[events], start, finish - start


def _rectangles(
    left: NDArray[np.float64], width: NDArray[np.float64], top: NDArray[np.float64], height: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """``[4, 2]`` corners of every bar."""
    x = np.stack([left, left + width, left + width, left], axis=1)
    y = np.stack([top, top, top + height, top + height], axis=1)
    return list(np.stack([x, y], axis=2))


def _shorten(name: str, length: int) -> str:
    """Return `name` in at most `length` characters: its end says most, as in a path; empty if nothing useful fits.

    Examples
    --------
    >>> _shorten("encoder/layer.0/query", 30), _shorten("encoder/layer.0/query", 8), _shorten("encoder", 2)
    ('encoder/layer.0/query', '…0/query', '')
    """
    if len(name) <= length:
        return name
    return "…" + name[len(name) - length + 1 :] if length >= 4 else ""


def _draw_legend(ax: Axes, title: str, has_transfers: bool, *, has_bound: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(color=COLORS["compute"], label="op")]
    if has_transfers:
        handles.append(Patch(color=COLORS["transfer"], label="transfer"))
    handles.append(Line2D([], [], color=COLORS["text"], linewidth=0.8, linestyle="--", label="objective"))
    if has_bound:
        handles.append(Line2D([], [], color=COLORS["bound"], linewidth=1.2, linestyle=":", label="bound"))
    legend_above(ax, handles, title)

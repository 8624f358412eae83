"""Figure: a schedule as a Gantt chart, ops as bars per device and transfers as thin bars with arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.io.trace import assign_lanes
from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import (
    COLORS,
    axes_or_new,
    figure_of,
    legend_above,
    plain_label,
    shorten,
    time_scale,
    time_text,
)

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
_HAIRLINES = 200
"""More bars than this have no white edges."""
_MANY_EVENTS = 1500
"""Charts of more events show how busy devices are over time, since single bars would be hairlines."""
_BINS = 240
_PATH_COLOR = "#1b1b1b"
_CHARACTER_PT = 4.4
"""Width of a character of a label, 7 points high."""


def plot_schedule(result: Result, ax: Axes | None = None) -> Axes:
    """Draw what every device does when: its ops, and below them what it sends to which device.

    Ops carry their names where these fit into the bars, shortened if need be. Ops that run beside each other on one
    device (a host that works at graph width) share its row. An arrow leads from the end of a transfer to the device
    that receives it. A dark line runs along a critical path: what waits for what until the last end. Of more than
    `_MANY_EVENTS` events, curves show the share of the time in which each device computes and sends. `ax` is that of a
    new figure if None.
    """
    from matplotlib.patches import Patch

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
    sends = schedule.is_transfer & (schedule.peer >= 0)
    if len(schedule) > _MANY_EVENTS:
        _draw_shares(ax, schedule, sends, len(names), factor)
    else:
        _draw_ops(ax, schedule, np.flatnonzero(~sends), placement.op_names, factor)
        _draw_sends(ax, schedule, np.flatnonzero(sends), factor)
    style: dict[str, Any] = {"color": COLORS["text"], "linewidth": 0.8, "linestyle": "--"}
    lines = [ax.axvline(result.objective * factor, label="objective", **style)]
    if result.lower_bound is not None and result.lower_bound > 0:
        style = {"color": COLORS["bound"], "linewidth": 1.2, "linestyle": ":"}
        lines.append(ax.axvline(result.lower_bound * factor, label="bound", **style))
    lines.append(_draw_path(ax, schedule, factor))
    ax.set_yticks(range(len(names)), [plain_label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"time ({unit})")
    words = ("share of time in ops", "in transfers") if len(schedule) > _MANY_EVENTS else ("op", "transfer")
    handles: list[Any] = [Patch(color=COLORS["compute"], label=words[0])]
    if schedule.is_transfer.any():
        handles.append(Patch(color=COLORS["transfer"], label=words[1]))
    title = f"{result.problem_name}: {result.objective_name} {time_text(result.objective)} by {result.method}"
    legend_above(ax, [*handles, *lines], title)
    return ax


def critical_path(schedule: Schedule) -> list[int]:
    """Return events of which each begins when the one before ends, up to the last end; the earliest first.

    An op begins when its device is free or when a tensor arrives, a transfer when its op ends or its device is free. Of
    several that end then, what moves a tensor is preferred. Where nothing ends then, the path begins.
    """
    if not len(schedule):
        return []
    order = np.argsort(schedule.finish_s, kind="stable")
    ends = schedule.finish_s[order]
    slack = 1e-9 * max(float(ends[-1]), 1e-300)
    path = [int(order[-1])]
    while len(path) <= len(schedule):
        event = path[-1]
        start_s, device = schedule.start_s[event], schedule.device[event]
        first, last = np.searchsorted(ends, [start_s - slack, start_s + slack], side="left")
        near = order[first:last]
        near = near[schedule.start_s[near] < start_s - slack]
        arrives = schedule.is_transfer[near] & (schedule.peer[near] == device) & (not schedule.is_transfer[event])
        chosen = near[arrives] if arrives.any() else near[schedule.device[near] == device]
        if not len(chosen):
            break
        path.append(int(chosen[0]))
    return path[::-1]


def _draw_path(ax: Axes, schedule: Schedule, factor: float) -> Any:
    """Draw the critical path: a line above its events; of few events down or up, too, where a tensor arrives."""
    path = critical_path(schedule)
    y = schedule.device[path] - 0.5 * (_OPS_IN + _SENDS_IN) - 0.03
    between = np.full(len(path), np.nan if len(schedule) > _MANY_EVENTS else 0.0)  # nan: no line down or up
    x = np.stack([schedule.start_s[path], schedule.finish_s[path], schedule.finish_s[path] + between], axis=1)
    (line,) = ax.plot(x.ravel() * factor, np.repeat(y, 3), color=_PATH_COLOR, linewidth=1.1, label="critical path")
    return line


def _draw_shares(ax: Axes, schedule: Schedule, sends: NDArray[np.bool_], num_devices: int, factor: float) -> None:
    """Draw for every device the share of each stretch of time in which it computes, and in which it sends."""
    end_s = float(schedule.finish_s.max(initial=0.0))
    bounds = np.linspace(0.0, end_s, _BINS + 1)
    height = _OPS_IN + _SENDS_IN
    for device in range(num_devices):
        low = device + 0.5 * height
        for chosen, color, is_filled in ((~sends, COLORS["compute"], True), (sends, COLORS["transfer"], False)):
            mine = chosen & (schedule.device == device)
            share = _busy_before(bounds, schedule.start_s[mine], schedule.finish_s[mine])
            share = np.minimum(np.diff(share) / max(end_s / _BINS, 1e-300), 1.0)
            if is_filled:
                ax.stairs(low - height * share, bounds * factor, baseline=low, fill=True, color=color)
            elif mine.any():
                ax.stairs(low - height * share, bounds * factor, baseline=None, color=color, linewidth=0.9)
        ax.axhline(low, color="#dddddd", linewidth=0.6, zorder=0)


def _busy_before(
    times: NDArray[np.float64], start_s: NDArray[np.float64], finish_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds of events that lie before each time; events at the same time count each."""
    total: NDArray[np.float64] = np.zeros(len(times))
    for sign, points in ((1.0, np.sort(start_s)), (-1.0, np.sort(finish_s))):
        count = np.searchsorted(points, times, side="right")
        total += sign * (times * count - np.concatenate([[0.0], np.cumsum(points)])[count])
    return total


class _Bars(NamedTuple):
    """Bars of events, in lanes of their device's row: where they begin, in units of the chart, and their sizes."""

    device: NDArray[np.int64]
    left: NDArray[np.float64]
    top: NDArray[np.float64]
    width: NDArray[np.float64]
    height: NDArray[np.float64]


def _draw_bars(
    ax: Axes, schedule: Schedule, events: NDArray[np.int64], factor: float, offset: float, height_in: float,
    **style: Any,
) -> _Bars:  # fmt: skip
    """Draw events in lanes of `height_in` together, `offset` below the middle of their device's row."""
    from matplotlib.collections import PolyCollection

    device, start_s, finish_s = schedule.device[events], schedule.start_s[events], schedule.finish_s[events]
    lane = assign_lanes(device, start_s, finish_s)
    lanes = np.ones(int(device.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(lanes, device, np.minimum(lane + 1, _MAX_LANES))
    height = height_in / lanes[device]
    left, width, top = (
        start_s * factor,
        (finish_s - start_s) * factor,
        device + offset + (lane % lanes[device]) * height,
    )
    if len(events) > _HAIRLINES:
        style["linewidths"] = 0.0  # white edges would hide bars that are as thin as they
    x = np.stack([left, left + width, left + width, left], axis=1)
    y = np.stack([top, top, top + height, top + height], axis=1)
    ax.add_collection(PolyCollection(list(np.stack([x, y], axis=2)), **style), autolim=False)
    return _Bars(device, left, top, width, height)


def _draw_ops(
    ax: Axes, schedule: Schedule, events: NDArray[np.int64], op_names: tuple[str, ...], factor: float
) -> None:
    """Draw ops, and the transfers that keep their device itself busy."""
    is_transfer = schedule.is_transfer[events]
    shades = np.where(is_transfer, COLORS["transfer"], COLORS["compute"]).tolist()
    style = {"facecolors": shades, "edgecolors": "white", "linewidths": 0.4}
    bars = _draw_bars(ax, schedule, events, factor, -0.5 * (_OPS_IN + _SENDS_IN), _OPS_IN, **style)
    points_per_unit = ax.get_position().width * figure_of(ax).get_figwidth() * 72 / ax.get_xlim()[1]
    tall_enough = bars.height * 0.5 * 72 > 7  # a row is about half an inch high
    for event in np.flatnonzero(tall_enough & ~is_transfer).tolist():
        text = shorten(op_names[schedule.op[events[event]]], int(bars.width[event] * points_per_unit / _CHARACTER_PT))
        if text:
            x, y = bars.left[event] + bars.width[event] / 2, bars.top[event] + bars.height[event] / 2
            ax.text(x, y, plain_label(text), ha="center", va="center", fontsize=7, color="white", clip_on=True)


def _draw_sends(ax: Axes, schedule: Schedule, events: NDArray[np.int64], factor: float) -> None:
    """Draw transfers between devices below their sender's ops; arrows to the receivers if they are not too many."""
    color, edge = COLORS["transfer"], 0.5 * (_OPS_IN + _SENDS_IN)
    style: dict[str, Any] = {"facecolors": color, "edgecolors": "white", "linewidths": 0.4}
    bars = _draw_bars(ax, schedule, events, factor, 0.5 * (_OPS_IN - _SENDS_IN) + 0.03, 0.8 * _SENDS_IN, **style)
    for event in range(len(events)) if len(events) <= _MAX_ARROWS else ():
        to = int(schedule.peer[events[event]])
        begin = (bars.left[event] + bars.width[event], bars.top[event] + bars.height[event] * 0.5)
        end = (begin[0], to - edge if to > bars.device[event] else to - edge + _OPS_IN)
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, begin, arrowprops={**arrow, "mutation_scale": 5, "alpha": 0.75}, zorder=0.5)

"""The picture of an answer: which device has which blocks, and how full every memory is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placekit.io.visible import device_color
from placekit.language.commands.answer_parts import main_speed
from placekit.language.planning.answer import Answer
from placekit.language.report import DeviceMemory
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidProblemError
from placekit.model.sizes import format_bytes
from placekit.plotting.canvas import COLORS, legend_above, new_figure, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GIB = float(2**30)
_PARTS = {"weights": ("weight_bytes", 1.0), "cache": ("cache_bytes", 0.55), "buffers": ("activation_bytes", 0.25)}
"""Parts of a memory, from dark to pale: a colour is a device here."""


def plot_answer(answer: Answer) -> Figure:
    """Draw the blocks in their order above one bar of memory per device; a colour is a device.

    A block whose attention and feed-forward layers or experts are on several devices has a part of its cell for each.

    Raises
    ------
    InvalidProblemError
        If nothing fits: there is no plan to draw.
    """
    if answer.report is None:
        raise InvalidProblemError(f"{answer.model.called} does not fit: there is no plan to draw")
    memory = answer.report.memory
    figure = new_figure(8.0, 1.9 + 0.42 * len(memory))
    above, below = figure.subplots(2, 1, height_ratios=[0.9, 0.5 + 0.42 * len(memory)])
    _draw_blocks(answer, above)
    _draw_memory(answer, memory, below)
    return figure


def _draw_blocks(answer: Answer, ax: Axes) -> None:
    placement, problem = answer.result.placement, answer.plan.task.problem
    assert placement is not None
    number, home = block_numbers(problem.graph), placement.device_of_op
    blocks = np.unique(number[number >= 0])
    host = next((at for at, device in enumerate(problem.platform.devices) if device.is_host), None)
    cells: dict[int, list[tuple[int, float, float]]] = {}  # by device: block, begin and height of its part
    for block in blocks.tolist():
        at = dict.fromkeys(home[number == block].tolist())
        if host is not None and block < blocks[0] + answer.plan.task.hosted_blocks:
            at[host] = None  # which computes a part of the first blocks for their device
        for part, device in enumerate(at):
            cells.setdefault(device, []).append((block, part / len(at), 1 / len(at)))
    for device, held in cells.items():
        x, bottom, height = zip(*held, strict=True)
        name = f"{placement.team_name(device)}: {_held_told(answer, len(held), is_host=device == host)}"
        ax.bar(
            x, height, 1.0, bottom, color=device_color(device), edgecolor="white", linewidth=0.4,
            label=plain_label(name),
        )  # fmt: skip
    ax.set_xlim(blocks.min() - 0.5, blocks.max() + 0.5)
    ax.set_ylim(1, 0)  # the first device of a block, that of its attention, is the upper part
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_xlabel("block", fontsize=8)
    ax.tick_params(labelsize=8)
    legend_above(ax, title=f"{answer.model.called}: {main_speed(answer)}; blocks by device")


def _held_told(answer: Answer, num_blocks: int, *, is_host: bool) -> str:
    task = answer.plan.task
    whole = num_blocks - (task.hosted_blocks if is_host else 0)
    parts = [str(whole)] if whole else []
    return " and ".join([*parts, f"{task.hosted_layers} of {task.hosted_blocks}"] if whole < num_blocks else parts)


def _draw_memory(answer: Answer, memory: tuple[DeviceMemory, ...], ax: Axes) -> None:
    from matplotlib.patches import Patch

    rows = range(len(memory))
    used = [each.weight_bytes + each.cache_bytes + each.activation_bytes for each in memory]
    limits = [each.limit_bytes if each.limit_bytes is not None else use for each, use in zip(memory, used, strict=True)]
    ax.barh(
        rows, [each / _GIB for each in limits], height=0.65, fill=False, edgecolor=COLORS["text"], linewidth=0.8,
    )  # fmt: skip
    colors = [device_color(at) for at in _numbers(answer, memory)]
    begin = np.zeros(len(memory))
    for field, alpha in _PARTS.values():
        width = np.array([getattr(each, field) / _GIB for each in memory])
        ax.barh(rows, width, 0.65, begin, color=colors, alpha=alpha)
        begin += width
    longest = max(*limits, *used) / _GIB
    for row, (each, use) in enumerate(zip(memory, used, strict=True)):
        of = "" if each.limit_bytes is None else f" of {format_bytes(each.limit_bytes)}"
        ax.text(longest * 1.02, row, f"{format_bytes(use)}{of}", va="center", fontsize=8, color=COLORS["text"])
    ax.set_yticks(rows, [plain_label(each.device) for each in memory], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlim(0, longest * 1.35)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("memory (GiB)", fontsize=8)
    ax.tick_params(labelsize=8)
    handles = [Patch(color=COLORS["text"], alpha=alpha, label=part) for part, (_, alpha) in _PARTS.items()]
    legend_above(ax, [*handles, Patch(fill=False, edgecolor=COLORS["text"], label="limit")])


def _numbers(answer: Answer, memory: tuple[DeviceMemory, ...]) -> list[int]:
    """Return the number on the platform of the device, or of the one with the member, of every row."""
    number = {
        name: at for at, each in enumerate(answer.plan.task.problem.platform.devices) for name in each.member_names
    }
    return [number[each.device] for each in memory]

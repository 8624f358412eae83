"""Tables fit 80 columns, bars are to scale, progress is shown when it should be."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

import pytest
from rich.console import Console, RenderableType

from placekit.cli.output.progress import SHOWN_AFTER_S, SolveLine, StepBar
from placekit.cli.output.render import LoadBar, load_table, result_lines
from placekit.cli.output.units import format_time
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes
from placekit.objectives.evaluate import DeviceLoad
from placekit.solve.result import Incumbent
from placekit.solve.solve import solve


def text_of(renderable: RenderableType) -> str:
    """Return what is printed on a terminal of 80 columns."""
    console = Console(width=80, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.mark.parametrize(("share", "cells"), [(0.0, 0), (1.0, 10), (0.5, 5), (0.01, 1), (7.0, 10), (-1.0, 0)])
def test_bars_are_to_scale(share: float, cells: int) -> None:
    """A bar has ten cells when full, and never more; eighths are rounded where a console has no characters for them."""
    assert len(text_of(LoadBar(share)).rstrip()) == cells
    plain = Console(width=80, file=TextIOWrapper(BytesIO(), encoding="ascii"))
    with plain.capture() as captured:
        plain.print(LoadBar(share))
    assert captured.get().rstrip() == "#" * (cells if share != 0.01 else 0)


def test_load_table_fits_80_columns_with_long_names() -> None:
    """Long device names are folded; numbers are never cut."""
    loads = [
        DeviceLoad(f"CPU[{'0-127,' * 8}{i}]", "cpu", 1234.5678, 1234.0, 0.5678, 3.2e11, 9.9e11, 99999) for i in range(3)
    ]
    text = text_of(load_table(loads))
    assert max(map(len, text.splitlines())) <= 80
    for number in ("1234568", "1234000", "567.8", "298 GiB", "922 GiB", "99999"):
        assert number in text


def test_a_narrow_console_leaves_out_whole_columns() -> None:
    """What memory is made of is told before limits and bars; a wide console and a pipe have everything."""
    load = DeviceLoad("GPU.0", "gpu", 1, 0.5, 0.5, 3.2e11, 9.9e11, 1234, None, 1.2e11, 1e9)
    parts = ["weights", "activations", "queues", "limit"]
    for width, told in ((80, parts[:2]), (60, parts[:1]), (120, parts)):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(load_table([load, load]))
        text = captured.get()
        assert max(map(len, text.splitlines())) <= width
        assert [name for name in parts if name in text] == told
        assert ("█" in text) == (told == parts)


def test_device_names_with_brackets_are_not_markup() -> None:
    """``CPU[0-3]`` is a name, not a style."""
    assert "CPU[0-3]" in text_of(load_table([DeviceLoad("CPU[0-3]", "cpu", 1, 1, 0, 0, None, 1)]))


def test_unknown_values_are_said_to_be_unknown(diamond: Problem) -> None:
    """A baseline proves no bound: bound and gap are unknown, not zero."""
    result = solve(diamond, method="single:CPU")
    text = "".join(text_of(part) for part in result_lines(result))
    assert "unknown" in text
    assert "feasible" in text


def test_progress_starts_after_two_seconds() -> None:
    """Quick work shows nothing; after that the line has best, bound, gap and time."""
    line = SolveLine(60)
    assert line._visible() == ""
    line(Incumbent(0.5, 2e-3, 1e-3))
    text = text_of(line.render(SHOWN_AFTER_S + 1))
    for part in ("best 2 ms", "bound 1 ms", "gap 50 %", "3 s of 60 s", "Ctrl-C"):
        assert part in text


def test_progress_bar_counts_steps() -> None:
    """The bar shows steps, time and what happens now."""
    bar = StepBar()
    bar(3, 12, "CPU x1 f32: inference 4")
    text = text_of(bar.render(5.0))
    assert "3/12" in text
    assert "inference 4" in text


def test_units_read_well() -> None:
    """Small and large values keep a readable unit."""
    assert format_time(0.0) == "0 s"
    assert format_time(1e-9) == "0.001 us"
    assert format_bytes(2.0**60) == "1024 PiB"
    assert format_bytes(1020 * 1024) == "1020 KiB"

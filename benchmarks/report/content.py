"""Sections of the report, in order: text, tables and pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.benchmarks.report.groups import Group, labels_of, objectives_of, runtime_s
from placekit.benchmarks.report.measured import prediction
from placekit.benchmarks.report.sources import Source
from placekit.benchmarks.report.tables import (
    Table,
    across_table,
    case_table,
    command_table,
    machine_table,
    overview_table,
)
from placekit.benchmarks.statistics import anytime_gap
from placekit.benchmarks.store import Row
from placekit.plotting.canvas import axes_or_new, figure_of, plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = (
    "#3b6ea8", "#e08e45", "#4c9f70", "#c44e52", "#8172b3", "#8c6d46", "#d98cb3", "#7f7f7f", "#a8a13b", "#4bb3c3",
)  # fmt: skip
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Picture:
    """A figure with its caption; the URL has all of it."""

    caption: str
    url: str


def style_of(label: str, labels: Sequence[str]) -> dict[str, Any]:
    """Return colour and line style of a method: the same in every figure that has the same methods."""
    at = list(labels).index(label)
    return {"color": _COLORS[at % len(_COLORS)], "linestyle": _STYLES[at // len(_COLORS) % len(_STYLES)]}


def plot_anytime(groups: Sequence[Group], ax: Axes | None = None) -> Axes:
    """Draw the median gap to the best proven bound over time, per method; the time of a warm start is included."""
    groups = [group for group in groups if group.bound_s is not None]
    ends = [runtime_s(row) for group in groups for row in group.all_rows if row["error"] is None]
    times_s = np.geomspace(1e-3, max([*ends, 1.0]), 160)
    labels = labels_of(groups)
    ax = axes_or_new(ax, 7.2, 3.2)
    for label in labels:
        curves = [
            anytime_gap(row["trace"], group.bound_s, times_s - (row["warm_start_s"] or 0.0))
            for group in groups
            for row in group.rows.get(label, ())
            if row["error"] is None and group.bound_s is not None
        ]
        if curves:
            gaps = np.median(curves, axis=0) * 100 + 1e-3
            ax.step(times_s, gaps, where="post", label=plain_label(label), **style_of(label, labels))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(8e-4, 120)
    ax.set_yticks([1e-3, 1e-2, 1e-1, 1, 10, 100], ["0", "0.01", "0.1", "1", "10", "100"])  # the lowest line is 0
    ax.set_xlabel("time (s)")
    ax.set_ylabel("median gap to the best bound (%)")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def picture_of(axes: Axes, caption: str) -> Picture:
    """Return a figure as an SVG that stands in the page itself."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    family = ["DejaVu Sans", "sans-serif"]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": caption, "font.family": family}):
        figure_of(axes).savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, dpi=120)
    return Picture(caption, f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}")


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    title: str  # its heading
    level: int = 2  # 2 for a chapter, 3 for a part of one
    text: tuple[str, ...] = ()  # paragraphs
    tables: tuple[Table, ...] = ()  # tables
    pictures: tuple[Picture, ...] = ()  # figures
    is_appendix: bool = False  # True for what is looked up, not read: small print


def sections(groups: Sequence[Group], measured: Mapping[str, Row]) -> tuple[Section, ...]:
    """Return the sections of the report from the rows by problem, and from rows of measurements by case."""
    return (*_front(groups), *_measured(groups, measured), *_problems(groups, measured), *_back(groups))


def _front(groups: Sequence[Group]) -> Iterator[Section]:
    """Yield what is about all problems."""
    contradictions = tuple(each for group in groups if (each := group.contradiction) is not None)
    if contradictions:
        told = ("A bound lies above an objective that was reached. One of them is wrong: do not trust these rows.",)
        yield Section("Contradictions", text=told + contradictions)
    yield Section(
        "Overview",
        text=(
            "One line per problem: the best objective that any method found and the best bound that any method proved. "
            "The gap is (best - bound) / best; 0 % is an optimum with its proof. The speedup is over the best single "
            "device.",
        ),
        tables=(overview_table(groups),),
    )
    for objective, members in objectives_of(groups).items():
        yield _across(objective, members)


def _measured(groups: Sequence[Group], measured: Mapping[str, Row]) -> Iterator[Section]:
    answered = {row["case"] for group in groups for row in group.all_rows if row["objective_s"] is not None}
    timed = tuple(row for case, row in measured.items() if case in answered)
    tables = tuple(table for _, table in prediction(Source((), timed)) if table.rows)
    if tables:
        yield Section(
            "Predicted against measured",
            text=(
                "Placements that were executed, beside nothing else: time per sample in the steady state for "
                "throughput, of one sample for the other objectives. The times of each are with its problem; bench "
                "--retry measures those again that other load disturbed.",
            ),
            tables=tables,
        )


def _back(groups: Sequence[Group]) -> Iterator[Section]:
    """Yield what is looked up."""
    yield Section(
        "Machines and versions",
        text=("Runtimes of rows from different machines, or made beside each other or other load, do not compare.",),
        tables=(machine_table(groups),),
        is_appendix=True,
    )
    yield Section(
        "How to make every row again",
        text=(
            "Run in the folder of results; same seed, same answer. What learned until the clock stopped it is asked "
            "for the updates that it made. Searches and programs that the clock stopped depend on the machine. MODELS "
            "stands for the folder with the files that the suite names.",
        ),
        tables=(command_table(groups),),
        is_appendix=True,
    )


def _across(objective: str, groups: Sequence[Group]) -> Section:
    """Return the comparison of methods over all problems of an objective."""
    many = len(groups) > 1
    drawn: tuple[Picture, ...] = ()
    if any(group.bound_s is not None for group in groups):
        drawn = (picture_of(plot_anytime(groups), f"Gap over time, median over runs: {objective}"),)
    return Section(
        f"Methods compared: {objective}",
        text=(
            f"Over {len(groups)} problem{'s' if many else ''}. The gap is to the best bound that any method proved, "
            "with a bootstrap 95 % interval over seeds where there are several; a run without a placement counts as a "
            "gap of 100 %. A method that ran on more problems comes first: means over different problems do not "
            "compare. “Proven” counts the problems where some run proved an optimum itself.",
        ),
        tables=(across_table(groups),),
        pictures=drawn,
    )


def _problems(groups: Sequence[Group], measured: Mapping[str, Row]) -> Iterator[Section]:
    yield Section(
        "Every problem",
        text=(
            "Medians over seeds, with the range where runs differ. Bold: the best objective. The gap is to the best "
            "bound of any method; “own bound” is what the method proved itself.",
        ),
    )
    for group in groups:
        yield Section(group.title, 3, tables=(case_table(group, measured),))

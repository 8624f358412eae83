"""Sections of the report, in order: text, tables and pictures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placekit.benchmarks.report.details import Picture, pictures
from placekit.benchmarks.report.figures import inline_svg, plot_anytime, plot_scores
from placekit.benchmarks.report.groups import Group, objectives_of
from placekit.benchmarks.report.measured import error_sentence, measured_table
from placekit.benchmarks.report.summary import summary_table
from placekit.benchmarks.report.tables import (
    Table,
    across_table,
    case_table,
    command_table,
    machine_table,
    overview_table,
    warm_start_table,
)
from placekit.benchmarks.store import Row
from placekit.model.errors import InvalidFileError
from placekit.plotting.canvas import figure_of

__all__ = ["MAX_BYTES", "Section", "sections"]

logger = logging.getLogger(__name__)

MAX_BYTES = 2_800_000
"""Large pictures are left out where the page would become larger than this: it must stay below 3 MB."""
_CELL_BYTES = 25
"""Bytes around the text of a cell."""


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Parameters
    ----------
    title
        Its heading.
    level
        2 for a chapter, 3 for a part of one.
    text
        Paragraphs.
    tables
        Tables.
    pictures
        Figures.
    is_appendix
        True for what is looked up, not read: small print.
    """

    title: str
    level: int = 2
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    is_appendix: bool = False


def sections(groups: Sequence[Group], measured: Mapping[str, Row], results: Path) -> tuple[Section, ...]:
    """Return the sections of the report.

    Parameters
    ----------
    groups
        The rows, grouped by problem.
    measured
        What was measured for real, by case.
    results
        The folder of results, which has the problems.
    """
    front, back = (*_front(groups), *_measured(groups, measured)), tuple(_back(groups))
    return front + _problems(groups, measured, results, MAX_BYTES - _num_bytes(front + back)) + back


def _front(groups: Sequence[Group]) -> Iterator[Section]:
    """Yield what is about all problems."""
    contradictions = tuple(each for group in groups if (each := group.contradiction) is not None)
    if contradictions:
        told = ("A bound lies above an objective that was reached. One of them is wrong: do not trust these rows.",)
        yield Section("Contradictions", text=told + contradictions)
    yield Section(
        "Who wins where",
        text=(
            "The best method of every family, by the mean over runs and problems of its gap to the best bound that any "
            "method proved, with a bootstrap 95 % interval over seeds where there are several. A run without a "
            "placement counts as a gap of 100 %. A method that ran on more problems comes first: means over different "
            "problems do not compare. “Best known” and “proven” count the problems where some run found the best "
            "objective of all, or proved an optimum itself.",
        ),
        tables=(summary_table(groups),),
    )
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
    warm = warm_start_table(groups)
    if warm is not None:
        yield Section(
            "Warm against cold start",
            text=(
                "How long until a run is within 1 % of the best known objective of its problem, the time of the method "
                "that made the warm start included; geometric mean over problems of the ratio of medians, with a "
                "stratified bootstrap 95 % interval over seeds where there are several. Below 1 the warm start wins. "
                "Runs that never get there do not enter the ratio: see how many did.",
            ),
            tables=(warm,),
        )


def _measured(groups: Sequence[Group], measured: Mapping[str, Row]) -> Iterator[Section]:
    table = measured_table(groups, measured)
    if table is not None:
        yield Section(
            "Predicted against measured",
            text=(
                "The best placement of every method, executed beside nothing else: time per sample in the steady state "
                "for throughput, of one sample for the other objectives, with the range of the middle half of the "
                "rounds (IQR). The speedup is over the best single device, measured in the same turns.",
                error_sentence(measured),
            ),
            tables=(table,),
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
    drawn = [
        Picture(
            "Interquartile mean of scores, with 95 % intervals over seeds",
            _svg(plot_scores(groups), objective, "scores"),
        ),
    ]
    if any(group.bound_s is not None for group in groups):
        drawn.append(Picture("Gap over time, median over runs", _svg(plot_anytime(groups), objective, "anytime")))
    return Section(
        f"Methods compared: {objective}",
        text=(
            f"Over {len(groups)} problem{'s' if many else ''}. A score is 0 for the best single device and 1 for the "
            "best proven bound; the IQM is the mean of the middle half of all runs, with a bootstrap interval "
            "(stratified by problem) where a method has several seeds. A method that was not run on all problems is "
            "not comparable with the others by these means: see the number of problems.",
        ),
        tables=(across_table(groups),),
        pictures=tuple(drawn),
    )


def _svg(axes: object, objective: str, what: str) -> str:
    return inline_svg(figure_of(axes), f"{what} {objective}")  # type: ignore[arg-type]  # the axes of a plot function


def _problems(
    groups: Sequence[Group], measured: Mapping[str, Row], results: Path, num_bytes: int
) -> tuple[Section, ...]:
    """Return a section per problem; of their pictures the smallest, as many as fit into `num_bytes` with the tables."""
    found = []
    for group in groups:
        text: tuple[str, ...] = ()
        drawn: tuple[Picture, ...] = ()
        try:
            drawn = pictures(group, results)
        except InvalidFileError as error:
            logger.warning("no pictures of %s: %s", group.title, error)
            text = (f"No pictures: {error}",)
        found.append(Section(group.title, 3, text, (case_table(group, measured),), drawn))
    left = num_bytes - _num_bytes([replace(section, pictures=()) for section in found])
    limit = 0  # the length of the longest picture that is shown
    for size in sorted(len(picture.svg) for section in found for picture in section.pictures):
        left -= size
        if left < 0:
            break
        limit = size
    head = Section(
        "Every problem",
        text=(
            "Medians over seeds, with the range where runs differ. Bold: the best objective. The gap is to the best "
            "bound of any method; “own bound” is what the method proved itself.",
        ),
    )
    return head, *(_without_large_pictures(section, limit) for section in found)


def _without_large_pictures(section: Section, limit: int) -> Section:
    kept = tuple(picture for picture in section.pictures if len(picture.svg) <= limit)
    missing = [picture.caption.partition(":")[0] for picture in section.pictures if picture not in kept]
    told = (f"Not shown, as the page would become too large: {'; '.join(missing)}.",) if missing else ()
    return replace(section, text=section.text + told, pictures=kept)


def _num_bytes(sections: Sequence[Section]) -> int:
    cells = (cell for section in sections for table in section.tables for row in table.rows for cell in row)
    num_bytes = sum(len(cell.encode(errors="replace")) + _CELL_BYTES for cell in cells)
    return num_bytes + sum(len(picture.svg) for section in sections for picture in section.pictures)

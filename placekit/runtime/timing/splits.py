"""Splits measured for calibration, all of them in turns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placekit.cost_models.base import Progress
from placekit.cost_models.measured.calibration import MeasuredSplit
from placekit.cost_models.measured.stage_costs import stage_costs
from placekit.io.models.model import ModelSource
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.runtime.timing.contenders import Executor, PlacedContender
from placekit.runtime.timing.measurements import Measurements, Timings
from placekit.runtime.timing.timing import Timing


@dataclass(frozen=True, eq=False)
class MeasuredSplits:
    """Splits that ran, and how they were measured."""

    splits: tuple[MeasuredSplit, ...]  # those that ran, in the order in which they were given
    timings: Timings  # all of them
    executor: Executor  # how they ran

    def circumstances(self) -> dict[str, Any]:
        """Return how and when this was measured, as JSON values for the provenance of costs."""
        return {
            "executor": self.executor,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "noisy": self.timings.is_noisy,
        }


def measure_splits(
    source: ModelSource,
    problem: Problem,
    placements: Mapping[str, Placement],
    executor: Executor,
    timing: Timing | None = None,
    *,
    progress: Progress | None = None,
) -> MeasuredSplits:
    """Measure `placements` in turns.

    Pipelines are measured as streams if the settings of `timing` have any, serial execution sample by sample.
    Placements that do not run are left out, but for the first, which has to. One with teams is timed, but is no split:
    a calibration needs devices that work alone.
    """
    if not placements:
        raise InvalidProblemError(f"problem {problem.name!r}: no splits to measure")
    contenders = [PlacedContender(name, each, problem.platform, executor) for name, each in placements.items()]
    timings = (timing or Timing()).measure(source, contenders, progress=progress)
    splits = []
    for name, placement in placements.items():
        series = timings[name]
        measured_s = sample_s(series, executor)
        if measured_s is not None:
            stages = stage_costs(problem, placement)
            if stages.has_teams:
                continue
            busy_s = series.stage_busy_s
            known = busy_s if len(busy_s) == stages.num_stages else busy_s[:0]
            splits.append(MeasuredSplit(name, stages, measured_s, executor == "serial", known))
    return MeasuredSplits(tuple(splits), timings, executor)


def sample_s(series: Measurements, executor: Executor) -> float | None:
    """Return the seconds that `executor` takes per sample: latency where stages take turns, else the pace of a stream.

    None if that was not measured.
    """
    latency, throughput = series.latency, series.throughput
    if executor == "serial":
        return None if latency is None else latency.median
    return None if throughput is None else 1 / throughput.median

"""Comparison of methods by execution: their placements, every device alone and the runtime's own ways, in turns.

Where every placement is timed by itself, minutes lie between two methods, and the machine may change meanwhile. Here
all contenders of a problem take part in every round.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from placekit.benchmarks.cases.plan import Job
from placekit.benchmarks.circumstances import circumstances
from placekit.benchmarks.store import Row
from placekit.io.models.read_model import read_model
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.runtime.stages.plans import engine_named
from placekit.runtime.timing.contenders import Contender, Executor, PlacedContender, singles
from placekit.runtime.timing.measurements import Estimate, Measurements
from placekit.runtime.timing.timing import Timing, TimingSettings

logger = logging.getLogger(__name__)

_BURST_S = 0.5
"""Seconds of a burst; a stream of three rounds of what is under way takes longer on a slow machine."""


def measured_together(
    jobs: Sequence[Job],  # the jobs of one problem whose placements take part, one of every method
    runs: Mapping[str, Sequence[Row]],  # the rows of all runs of every method, by label
    rows: Mapping[str, Row],  # the rows of `jobs`, by case
    timing: Timing | None = None,  # how to measure; in 80 s, beside the start of all processes, if None
) -> list[Row]:
    """Measure the placements of one problem in turns, and return a row for each of `jobs`."""
    first = jobs[0]
    problem = first.problem
    assert isinstance(problem, Problem)  # `measurable` looks at that, and at the file
    assert first.model_file is not None
    is_latency = problem.objective.name != "throughput"
    executor: Executor = "serial" if problem.objective.name == "serial-latency" else "threads"
    told = [_told(job, executor, runs) for job in jobs]
    try:
        source = read_model(first.model_file)
        others: list[Contender] = [*singles(source.graph, problem.platform, executor)]  # the first of all has to run
        others += engine_named(source.engine).baselines(source, problem, executor, 2)
        placed = _placed(jobs, rows, problem, executor)
        timed = list({each.name: each for each in placed}.values())
        latency_s, stream_s = (_BURST_S, 0.0) if is_latency else (0.0, _BURST_S)
        settings = TimingSettings(
            rounds=5, max_rounds=7, warm_up_s=0.1, latency_s=latency_s, throughput_s=stream_s, time_limit_s=80.0
        )
        timings = (timing or Timing(settings, cache=None)).measure(source, [*others, *timed])
    except (PlacekitError, RuntimeError) as error:  # whatever a plugin does not like
        logger.warning("the placements of %s cannot be executed: %s", first.facts["model"], error)
        return [row | {"error": f"{type(error).__name__}: {error}"} for row in told]
    references = {each.name: _sample_s(timings[each.name], is_latency) for each in others}
    common = {
        "is_noisy": timings.is_noisy,
        "flags": list(timings.flags()),
        "references": {name: [each.median, each.iqr] for name, each in references.items() if each is not None},
    }
    found = []
    for row, job, each in zip(told, jobs, placed, strict=True):
        series = timings[each.name]
        estimate = _sample_s(series, is_latency)
        predicted_s = problem.objective.score(problem, each.placement.device_of_op).objective_s
        known: dict[str, Any] = {"error": series.error or f"{job.facts['label']}: nothing was measured"}
        if estimate is not None:
            known = {
                "measured_s": estimate.median,
                "measured_iqr_s": estimate.iqr,
                "prediction_error": predicted_s / estimate.median - 1,
            }
        found.append(row | known | common)
    return found


def _told(job: Job, executor: Executor, runs: Mapping[str, Sequence[Row]]) -> Row:
    """Return the row of a job without what is measured, with the search times of all runs of its method."""
    mine = [row for row in runs[str(job.facts["label"])] if row["error"] is None]
    row: Row = {"schema": "placekit/measured/1", "case": job.case.address, "executor": executor, "error": None}
    row |= {name: job.facts[name] for name in ("suite", "model", "platform", "objective", "contiguity", "label")}
    row |= {"seed": job.case.seed, "measured_s": None, "measured_iqr_s": None, "prediction_error": None}
    row["search_s"] = [row["runtime_s"] + (row["warm_start_s"] or 0.0) for row in mine]
    row["found_s"] = [row["info"][name] for row in mine if (name := "measured.sample_s") in row["info"]]
    row["measurements"] = [row["info"][name] for row in mine if (name := "measured.measurements") in row["info"]]
    return row | circumstances()


def _placed(
    jobs: Sequence[Job], rows: Mapping[str, Row], problem: Problem, executor: Executor
) -> list[PlacedContender]:
    """Return the placement of every job as a contender: one that several methods found is one contender."""
    known: dict[tuple[bytes, str], PlacedContender] = {}
    found = []
    for job in jobs:
        row = rows[job.case.address]
        devices, teams = np.asarray(row["device_of_op"], dtype=np.int64), row.get("team_of_device")
        placement = Placement.of(problem, devices, None, teams)
        new = PlacedContender(str(job.facts["label"]), placement, problem.platform, executor)
        found.append(known.setdefault((devices.tobytes(), str(teams)), new))
    return found


def _sample_s(series: Measurements, is_latency: bool) -> Estimate | None:
    """Return the seconds of a sample: alone, or of a stream; None if that was not measured."""
    if is_latency or series.throughput is None:
        return series.latency
    return series.throughput.reciprocal

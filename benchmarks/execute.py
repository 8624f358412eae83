"""Real timings of what a suite found: after all solves, one at a time, never beside anything else.

Of every method the best placement of each problem is executed, if the problem comes from a model and its devices are
here. Rows go to ``measured.jsonl`` in the folder of results, by the address of the case; what is there is not measured
again. The same placement found by several methods is measured once. The lock that keeps other measurements of this
machine away is that of :mod:`placekit.cost_models.openvino.timing`; that of :mod:`placekit.benchmarks.quiet` keeps the
solves of other suites away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.benchmarks.circumstances import circumstances
from placekit.benchmarks.plan import Job
from placekit.benchmarks.rows import append_row
from placekit.benchmarks.store import Row, Store
from placekit.errors import PlacekitError
from placekit.placement import Placement

if TYPE_CHECKING:
    from placekit.cost_models.openvino.timing import Timing

__all__ = ["measurable", "measure_jobs", "measured_row"]

logger = logging.getLogger(__name__)


def measurable(jobs: Iterable[Job], rows: Mapping[str, Row]) -> list[Job]:
    """Return the jobs whose placements can be executed: of every problem and method label the best one.

    Parameters
    ----------
    jobs
        The jobs of a plan.
    rows
        Their rows, by case.
    """
    best: dict[tuple[str, str], tuple[float, Job]] = {}
    for job in jobs:
        row = rows.get(job.case.address)
        can_run = all(device.openvino is not None for device in job.problem.platform.devices)
        if row is None or row["objective_s"] is None or job.model_file is None or not can_run:
            continue
        key = job.case.problem, str(job.facts["label"])
        if key not in best or row["objective_s"] < best[key][0]:
            best[key] = row["objective_s"], job
    return [job for _, job in best.values()]


def measure_jobs(
    jobs: Sequence[Job],
    store: Store,
    *,
    timing: Timing | None = None,
    retry: bool = False,
    on_step: Callable[[int, int, str], None] | None = None,
) -> int:
    """Measure the best placements of `jobs`, and return how many were measured now.

    Parameters
    ----------
    jobs
        The jobs of a plan; those without a row are left out.
    store
        Where the rows are; it must be locked.
    timing
        How to measure; as by default if None.
    retry
        Measure again what failed or was disturbed by other load.
    on_step
        Called with the number of finished measurements, of all, and what comes next.

    Raises
    ------
    PlacekitError
        A row cannot be written. A placement that cannot be executed gets a row that says why.
    """
    rows = store.rows()
    known = {
        case for case, row in store.measured().items() if not (retry and (row["error"] is not None or row["is_noisy"]))
    }
    wanted = [job for job in measurable(jobs, rows) if job.case.address not in known]
    done: dict[tuple[str, bytes], Row] = {}
    for number, job in enumerate(wanted):
        if on_step is not None:
            on_step(number, len(wanted), f"{job.facts['model']} {job.facts['label']}")
        row = rows[job.case.address]
        devices = np.asarray(row["device_of_op"], dtype=np.int64)
        key = job.case.problem, devices.tobytes()
        if key not in done:
            done[key] = measured_row(job, Placement.of(job.problem, devices), timing)
        append_row(store.measured_path, done[key] | {"case": job.case.address})
    return len(wanted)


def measured_row(job: Job, placement: Placement, timing: Timing | None = None) -> Row:
    """Execute a placement, and return its row; ``measured_s`` compares with the objective.

    A pipeline is measured by its throughput (the reciprocal compares with the objective ``throughput``), the other
    objectives by the latency of one sample, with subgraphs one after another for ``serial-latency``.

    Parameters
    ----------
    job
        The case.
    placement
        What to run.
    timing
        How to measure; as by default if None.
    """
    from placekit.cost_models.openvino.time_placement import time_placement
    from placekit.io.model import read_model

    objective = job.problem.objective.name
    executor: Any = "serial" if objective == "serial-latency" else "threads"
    row: Row = {"schema": "placekit/measured/1", "case": job.case.address, "executor": executor, "error": None}
    row |= {"measured_s": None, "measured_iqr_s": None, "prediction_error": None, **circumstances()}
    assert job.model_file is not None  # `measurable` looks at that
    try:
        timed = time_placement(
            read_model(job.model_file), job.problem, placement, executor=executor, with_baselines=False, timing=timing
        )
    except PlacekitError as error:
        logger.warning("%s by %s cannot be measured: %s", job.facts["model"], job.facts["label"], error)
        return row | {"error": str(error)}
    told = timed.to_dict()
    if objective == "throughput":
        per_s, iqr = told["throughput_per_s"], told["throughput_per_s_iqr"]
        measured_s, iqr_s = (None, None) if not per_s else (1 / per_s, iqr / per_s**2)  # d(1/x) = dx / x^2
    else:
        measured_s, iqr_s = told["latency_s"], told["latency_s_iqr"]
    predicted_s = job.problem.objective.score(job.problem, placement.device_of_op).objective_s
    error_share = None if not measured_s else predicted_s / measured_s - 1
    kept = ("latency_s", "throughput_per_s", "best_single_device", "speedup", "latency_speedup", "flags", "is_noisy")
    return row | {
        "measured_s": measured_s,
        "measured_iqr_s": iqr_s,
        "prediction_error": error_share,
        **{name: told[name] for name in kept},
    }

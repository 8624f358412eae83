"""Execution of the placements that a suite found: after all solves, one at a time, never beside anything else.

Of every method the best placement of each problem is executed, or every one, if the problem comes from a model and its
devices are here: it is timed, or every tensor between its stages is compared with the whole model. Rows go to
``measured.jsonl`` in the folder of results, by the address of the case; what is there is not executed again. The same
placement found by several methods is executed once. The lock that keeps other measurements of this machine away is
that of :mod:`placekit.runtime.timing.timing`; a measurement that other load disturbed says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from placekit.advice.decision import LEAST_GAIN
from placekit.benchmarks.cases.plan import Job
from placekit.benchmarks.circumstances import circumstances
from placekit.benchmarks.store import Row, Store, append_row
from placekit.benchmarks.together import measured_together
from placekit.io.models.model import ModelSource
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.runtime.timing.compare import PLACEMENT, PlacementTiming, time_placement
from placekit.runtime.timing.measurements import Estimate
from placekit.runtime.timing.timing import Timing, TimingSettings
from placekit.training.problem import TrainingProblem

logger = logging.getLogger(__name__)


def measurable(jobs: Iterable[Job], rows: Mapping[str, Row], *, is_every: bool = False) -> list[Job]:
    """Return the jobs whose placements can be executed: of every problem and method label the best one.

    `rows` are those of the jobs, by case. `is_every` asks for all placements, not only the best ones.
    """
    able = [job for job in jobs if _can_run(job, rows.get(job.case.address))]
    if is_every:
        return able
    best: dict[tuple[str, str], tuple[float, Job]] = {}
    for job in able:
        row = rows[job.case.address]
        score_s = row.get("info", {}).get("measured.sample_s", row["objective_s"])  # as it learned
        key = job.case.problem, str(job.facts["label"])
        if key not in best or score_s < best[key][0]:
            best[key] = score_s, job
    return [job for _, job in best.values()]


def _can_run(job: Job, row: Row | None) -> bool:
    has_placement = row is not None and row["objective_s"] is not None and row.get("device_of_op") is not None
    if not has_placement or job.model_file is None or isinstance(job.problem, TrainingProblem):
        return False
    return all(each.openvino is not None or "torch" in each.properties for each in job.problem.platform.devices)


def measure_jobs(
    jobs: Sequence[Job],  # the jobs of a plan; those without a row are left out
    store: Store,  # where the rows are; it must be locked
    how: bool | str = True,  # true, ``"every"``, ``"together"``, ``"outputs"`` or ``"verdicts"``, as in a suite
    *,
    with_baselines: bool = False,  # True to time OpenVINO's own ways of using all devices, too
    timing: Timing | None = None,  # how to measure; as by default if None
    retry: bool = False,  # measure again what failed or was disturbed by other load
    # called with the number of finished measurements, of all, and what comes next
    on_step: Callable[[int, int, str], None] | None = None,
) -> int:
    """Execute placements of `jobs`, and return how many were executed now."""
    rows = store.rows()
    known = {
        case
        for case, row in store.measured().items()
        if not (retry and (row["error"] is not None or row.get("is_noisy")))
    }
    able = measurable(jobs, rows, is_every=how in ("every", "outputs"))
    wanted = [job for job in able if job.case.address not in known]
    if how == "together":
        return _measure_together(jobs, able, wanted, store, timing, on_step)
    done: dict[tuple[str, bytes, str], Row] = {}
    for number, job in enumerate(wanted):
        if on_step is not None:
            on_step(number, len(wanted), f"{job.facts['model']} {job.facts['label']}")
        row = rows[job.case.address]
        devices = np.asarray(row["device_of_op"], dtype=np.int64)
        teams = row.get("team_of_device")
        key = job.case.problem, devices.tobytes(), str(teams)
        if key not in done:
            done[key] = _executed(job, devices, teams, how, timing, with_baselines=with_baselines)
        append_row(store.measured_path, done[key] | {"case": job.case.address})
    return len(wanted)


def _measure_together(
    jobs: Sequence[Job], able: Sequence[Job], wanted: Sequence[Job], store: Store, timing: Timing | None,
    on_step: Callable[[int, int, str], None] | None,
) -> int:  # fmt: skip
    """Measure every problem that has something to do: all methods of it, in turns. Return the number of placements."""
    rows = store.rows()
    problems = {job.case.problem: str(job.facts["model"]) for job in wanted}
    count = 0
    for number, (address, model) in enumerate(problems.items()):
        if on_step is not None:
            on_step(number, len(problems), model)
        runs: dict[str, list[Row]] = {}
        for job in jobs:
            if job.case.problem == address and job.case.address in rows:
                runs.setdefault(str(job.facts["label"]), []).append(rows[job.case.address])
        mine = [job for job in able if job.case.problem == address]
        for row in measured_together(mine, runs, rows, timing):
            append_row(store.measured_path, row)
        count += len(mine)
    return count


def _executed(
    job: Job, devices: NDArray[np.int64], teams: list[int] | None, how: bool | str, timing: Timing | None, *,
    with_baselines: bool,
) -> Row:  # fmt: skip
    """Execute a placement in the way `how`, and return its row, or one that says why it cannot be executed."""
    from placekit.io.models.read_model import read_model

    assert job.model_file is not None  # `measurable` looks at that
    assert not isinstance(job.problem, TrainingProblem)
    problem, placement = job.problem, Placement.of(job.problem, devices, None, teams)
    is_serial = how == "outputs" or (how != "verdicts" and problem.objective.name == "serial-latency")
    executor: Literal["serial", "threads"] = "serial" if is_serial else "threads"
    names = ("model", "platform", "objective", "contiguity", "label")
    row: Row = {"schema": "placekit/measured/1", "case": job.case.address, "executor": executor, "error": None}
    row |= {name: job.facts[name] for name in names} | {"seed": job.case.seed}
    row |= {"measured_s": None, "measured_iqr_s": None, "prediction_error": None, **circumstances()}
    try:
        source = read_model(job.model_file)
        if how == "outputs":
            return row | _checked(source, problem, placement, job.case.seed)
        if how == "verdicts":
            return row | _judged(source, problem, placement, timing)
        timed = time_placement(
            source, problem, placement, executor=executor, with_baselines=with_baselines, timing=timing
        )
        return row | _measured(timed, problem, placement)
    except (PlacekitError, RuntimeError) as error:  # whatever a plugin does not like
        logger.warning("%s by %s cannot be executed: %s", job.facts["model"], job.facts["label"], error)
        name = "" if isinstance(error, PlacekitError) else f"{type(error).__name__}: "
        return row | {"error": f"{name}{error}"}


def _checked(source: ModelSource, problem: Problem, placement: Placement, seed: int) -> Row:
    """Execute a placement stage by stage (OpenVINO in f32); return how far every tensor is from the whole model's."""
    from placekit.runtime.output_check import check_placement, in_f32
    from placekit.runtime.stages.plans import compile_plan, plan_stages

    plan = plan_stages(source, placement, problem.platform)
    check = check_placement(compile_plan(in_f32(plan)), seed=seed)
    tensors = (*check.cuts, *check.outputs)
    return {
        "num_stages": len(plan.stages),
        "num_tensors": len(tensors),
        "num_mismatches": sum(not each.is_equal for each in tensors),
        "max_error": check.max_relative_error,
    }


def _measured(timed: PlacementTiming, problem: Problem, placement: Placement) -> Row:
    """Return what was measured; ``measured_s`` compares with the objective.

    A pipeline is measured by its throughput (the reciprocal compares with the objective ``throughput``), the other
    objectives by the latency of one sample, with subgraphs one after another for ``serial-latency``.
    """
    told = timed.to_dict()
    if problem.objective.name == "throughput":
        per_s, iqr = told["throughput_per_s"], told["throughput_per_s_iqr"]
        sample = Estimate(per_s, iqr).reciprocal if per_s else None
        measured_s, iqr_s = (sample.median, sample.iqr) if sample else (None, None)
    else:
        measured_s, iqr_s = told["latency_s"], told["latency_s_iqr"]
    predicted_s = problem.objective.score(problem, placement.device_of_op).objective_s
    kept = ("latency_s", "throughput_per_s", "best_single_device", "speedup", "latency_speedup", "flags", "is_noisy")
    return {
        "measured_s": measured_s,
        "measured_iqr_s": iqr_s,
        "prediction_error": None if not measured_s else predicted_s / measured_s - 1,
        **{name: told[name] for name in kept},
        "speedup_over": {each["name"]: each["speedup_of_placement"] for each in told["contenders"][1:]},
    }


def _judged(source: ModelSource, problem: Problem, placement: Placement, timing: Timing | None) -> Row:
    """Take the verdict on a placement, execute what it advises, and return both.

    The row has the verdict and how many times what was executed is as fast as the simplest way: the best of every
    device alone and of all cores as one device, of which one is chosen in one half of the rounds and measured in the
    other. Where the verdict advises the simplest way, the placement is executed.
    """
    from placekit.advice.verdict import verdict
    from placekit.cost_models.openvino.devices import all_cores_of
    from placekit.cost_models.profiled import Profiled

    one = all_cores_of(problem.platform)
    whole = None
    if one is not None:
        whole = source.problem(one, Profiled().cost_table(source, one), objective=problem.objective)
    told = verdict(problem, placement, whole)
    if told.choice in ("split", "copies") and told.chosen is not None and told.chosen.placement is not None:
        placement = told.chosen.placement
    settings = TimingSettings(rounds=5, max_rounds=8, warm_up_s=0.2, latency_s=0.2, throughput_s=0.4, time_limit_s=45)
    timed = time_placement(
        source, problem, placement, executor="threads", timing=timing or Timing(settings), with_baselines=True
    )
    simplest = [*timed.singles.values(), *(name for name in timed.runtime if name == "all cores")]
    over = timed.timings.over_best(PLACEMENT, simplest)
    measured = timed.to_dict()
    return {
        "measured_s": 1 / measured["throughput_per_s"] if measured["throughput_per_s"] else None,
        "prediction_error": measured["prediction_error"],
        "flags": measured["flags"],
        "is_noisy": measured["is_noisy"],
        "speedup_over": {each["name"]: each["speedup_of_placement"] for each in measured["contenders"][1:]},
        "verdict": {
            "choice": told.choice,
            "sentence": told.sentence,
            "gain": told.gain,
            "error": max(told.error or 0.0, LEAST_GAIN),
            "measured_gain": over and over.median,
            "measured_iqr": over and over.iqr,
        },
    }

"""One solve of a suite: a job in, a row out. Runs in a worker, in a process or on a machine of its own."""

from __future__ import annotations

import gc
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from placekit.benchmarks.cases.plan import Case, Job
from placekit.benchmarks.cases.suite_problems import AnyProblem
from placekit.benchmarks.cases.suite_schema import TRAINING_PLAN
from placekit.benchmarks.cases.training import solve_training
from placekit.benchmarks.circumstances import circumstances, peak_bytes, reset_peak
from placekit.benchmarks.rewards import REWARD, measured_method, without_reward
from placekit.machine import resident_bytes
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.method import Method
from placekit.solve.registry import get_method
from placekit.solve.result import Incumbent, Result
from placekit.solve.solve import solve
from placekit.solve.stop import MaxIterations, MaxRuntime, Stop, StopReason, TargetGap
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult

MORE_TIME = 100
"""What is to stop by its number of updates gets this many times the time limit of the case."""
WARM_UP_S = 0.5
"""Seconds that a method may work for nothing before its first case in a worker: kernels are loaded, or compiled."""
MAX_TRACE = 200
"""Lines of the trace that a row keeps."""
_WARM: set[tuple[str, str, str]] = set()
"""Method, objective and contiguity of what this worker has run before."""


def solve_case(job: Job) -> dict[str, Any]:
    """Solve a case and return its row; an error becomes a row, too, so that a long sweep goes on.

    Ctrl-C raises KeyboardInterrupt: there is no row of a solve that was cut short.
    """
    try:
        return _solve(job)
    except Exception as error:
        return failed_row(job, f"{type(error).__name__}: {error}")


def failed_row(job: Job, error: str) -> dict[str, Any]:
    """Return the row of a case that gave no result."""
    return _described(job) | {"error": error, "status": "error", "objective_s": None, "bound_s": None}


def best_single_device(problem: Problem) -> tuple[str, float] | None:
    """Return the single device that does best with everything on it, and its objective; None if none is feasible."""
    best: tuple[str, float] | None = None
    for kind in range(len(problem.platform.kinds)):
        device = problem.platform.devices_of_kind(kind)[0]
        found = evaluate(problem, Placement.of(problem, np.full(problem.graph.num_ops, device)))
        if found.is_feasible and found.objective is not None and (best is None or found.objective < best[1]):
            best = problem.platform.device_names[device], found.objective
    return best


def stop_of(case: Case) -> Stop:
    """Return when the case stops."""
    stop: Stop = MaxRuntime(case.time_limit_s)
    if case.gap is not None:
        stop = stop | TargetGap(case.gap)  # type: ignore[operator]  # every criterion of placekit.solve.stop combines
    if case.max_evaluations is not None:
        stop = stop | MaxIterations(case.max_evaluations)  # type: ignore[operator]  # as above
    return stop


def time_to_best_s(trace: Sequence[Incumbent]) -> float | None:
    """Return when the best objective was first reached, in seconds; None if there was none."""
    best = min((line.objective for line in trace if line.objective is not None), default=None)
    return next((line.time_s for line in trace if line.objective is not None and line.objective == best), None)


def _solve(job: Job) -> dict[str, Any]:
    case = job.case
    start = None
    if case.warm_start is not None:
        assert not isinstance(job.problem, TrainingProblem)  # the plan leaves them out
        start = solve(job.problem, case.warm_start, stop=stop_of(case), seed=case.seed)
        _require_whole(start)

    def run(
        problem: AnyProblem, stop: Stop, from_start: Result | None, *, is_case: bool = True
    ) -> tuple[Result | PlanResult, dict[str, Any]]:
        if isinstance(problem, TrainingProblem):
            return solve_training(problem, case.method, stop, case.seed, case.params)
        method: Method = get_method(case.method, {**without_reward(case.params), **job.files})
        if REWARD in case.params and is_case:
            assert job.model_file is not None  # the plan leaves others out
            method = measured_method(case.method, {**case.params, **job.files}, problem, job.model_file)
        result = solve(problem, method, stop=stop, seed=case.seed, warm_start=from_start)
        return result, _placed(result)

    kernels = (case.method, str(job.facts["objective"]), str(job.facts["contiguity"]))
    if kernels not in _WARM:
        other = job.warm_up_problem
        limit = MaxRuntime(min(WARM_UP_S, case.time_limit_s))
        warm = run(job.problem if other is None else other, limit, start if other is None else None, is_case=False)
        _require_whole(warm[0])
        _WARM.add(kernels)
    gc.collect()
    reset_peak()
    before = resident_bytes()
    result, answer = run(job.problem, stop_of(case), start)
    _require_whole(result)
    peak = peak_bytes()
    return (
        _described(job)
        | _single_device(job)
        | {
            "command": command_of(job, result, start),
            "error": None,
            "status": str(result.status),
            "stop_reason": str(result.stop_reason),
            "objective_s": result.objective,
            "bound_s": result.lower_bound,
            "bound_name": result.bound_name,
            "runtime_s": result.runtime_s,
            "compile_s": result.compile_s,
            "time_to_best_s": time_to_best_s(result.trace),
            "warm_start_s": None if start is None else start.runtime_s,
            "warm_start_objective_s": None if start is None else start.objective,
            "evaluations": result.evaluations,
            "peak_bytes": peak,
            "memory_bytes": max(peak - int(before), 0) if peak and before else None,
            "violations": [violation.message for violation in result.violations[:5]],
            "trace": _thinned(result.trace),
            "info": _scalars(result.info),
            **answer,
            **(
                {"answer": result.to_dict(with_certificate=True)}
                if job.keeps_answer and isinstance(result, Result)
                else {}
            ),
        }
    )


def _placed(result: Result) -> dict[str, Any]:
    """Return what a row says of the placement: of its teams nothing where there are none."""
    placement = result.placement
    if placement is None:
        return {"device_of_op": None, "step_of_op": None}
    step, team = placement.step_of_op, placement.team_of_device
    told = {"device_of_op": placement.device_of_op.tolist(), "step_of_op": None if step is None else step.tolist()}
    return told if team is None else told | {"team_of_device": team.tolist()}


def _single_device(job: Job) -> dict[str, Any]:
    """Return what a row says of the best single device; the worker knows how to score, planning needs not load that."""
    single = None if isinstance(job.problem, TrainingProblem) else best_single_device(job.problem)
    return {} if single is None else {"single_device": single[0], "single_device_s": single[1]}


def _scalars(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is a number, a text or a truth value: the rest is for people who look at one result."""
    measured = {f"measured.{name}": value for name, value in info.get("measured", {}).items()}
    kept = {name: value for name, value in {**info, **measured}.items() if isinstance(value, bool | int | float | str)}
    return {name: value for name, value in kept.items() if isinstance(value, str) or math.isfinite(value)}


def _require_whole(result: Result | PlanResult) -> None:
    """Refuse a result whose solve Ctrl-C cut short: `solve` returns then as if nothing had happened."""
    if result.stop_reason is StopReason.USER:
        raise KeyboardInterrupt


def _described(job: Job) -> dict[str, Any]:
    return {
        "schema": "placekit/row/1",
        "case": job.case.address,
        **job.facts,
        **asdict(job.case),
        "single_device": None,
        "single_device_s": None,
        "command": command_of(job),
        **circumstances(),
    }


def command_of(
    job: Job,
    # result, start: what it gave, and what the method of the warm start gave, where they are known
    result: Result | PlanResult | None = None,
    start: Result | None = None,
) -> str:
    """Return the commands that make the row again, run from the folder of results.

    ``MODELS`` stands for the folder with the files that the suite names. What learned until the clock stopped it is
    asked for as many updates as it made: those make the same answer on a machine of any speed.
    """
    case, problem = job.case, str(job.facts["problem_file"])
    # `solve` has no such options, and no folder of files
    if case.max_evaluations is not None or job.files or REWARD in case.params:
        models = ["MODELS"] if job.files else []
        again = ["-o", ".", "--again", "--case", case.address, "--time-limit", _exactly(case.time_limit_s)]
        return shlex.join(["placekit", "bench", str(job.facts["suite_source"]), *models, *again])

    def line(method: str, params: Mapping[str, Any], made: Result | PlanResult | None, output: str, *more: str) -> str:
        time_limit_s = case.time_limit_s
        if made is not None and made.stop_reason is StopReason.TIME and made.info.get("updates"):
            params, time_limit_s = {**params, "updates": made.info["updates"]}, time_limit_s * MORE_TIME
        gap = [] if case.gap is None else ["--gap", _exactly(case.gap)]
        named = [f"--param={name}={value}" for name, value in params.items()]
        verb = "train-plan" if job.facts["objective"] == TRAINING_PLAN else "solve"
        limits = ["--seed", str(case.seed), "--time-limit", _exactly(time_limit_s), *gap]
        return shlex.join(["placekit", verb, problem, "-m", method, *named, *limits, *more, "-o", output])

    if case.warm_start is None:
        return line(case.method, case.params, result, "again.json")
    before = line(case.warm_start, {}, start, "start.json")
    return f"{before} && {line(case.method, case.params, result, 'again.json', '--warm-start', 'start.json')}"


def _exactly(value: float) -> str:
    """Return a number that reads back as the same one: it decides the address of a case."""
    return repr(value).removesuffix(".0")


def _thinned(trace: Sequence[Incumbent]) -> list[list[float | None]]:
    """Return at most about `MAX_TRACE` lines, spread evenly; the first and the last are kept."""
    step = max(1, len(trace) // MAX_TRACE)
    kept = [*trace[:-1:step], *trace[-1:]]
    return [[line.time_s, line.objective, line.bound] for line in kept]

r"""Time of a training step, by a simulation of the pipeline per microbatch.

Microbatch j runs on replica ``j mod d`` of every stage, forward through the stages and then backward. The time of a
stage is divided into a forward and a backward pass, with half of the transfers each. Gradients are exchanged after the
last backward pass of a stage.

- ``gpipe``: a replica does all forward passes, then all backward passes (Huang et al. 2019).
- ``1f1b``: a replica does as many forward passes as the plan has in flight, then backward and forward passes in turn
  (Narayanan et al. 2019, "PipeDream"; a flush makes the schedule synchronous).
- ``interleaved``: every stage is two distant chunks, so a microbatch passes all devices twice, in stages of half the
  time (Narayanan et al. 2021). All stages need equal degrees, and the number of stages must divide the microbatches per
  replica.

A step takes at least the number of microbatches times the objective, which is the work of the slowest stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.placement import Placement
from placekit.objectives.base import Schedule
from placekit.solve.result import Result, Status
from placekit.solve.stop import StopReason, relative_gap
from placekit.training.evaluate import StageLoad
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult

SCHEDULES = ("gpipe", "1f1b", "interleaved")
CHUNKS = 2
"""Chunks per stage of the interleaved schedule."""


@dataclass(frozen=True, eq=False)
class StepSchedule:
    """Start and finish of every pass of one step. E passes, R replicas over all stages."""

    name: str  # name in `SCHEDULES`
    step_s: float  # seconds until the last gradients are exchanged
    bubble: float  # share of time in which devices wait
    # replica, stage, microbatch, is_backward, start_s, finish_s: ``[E]`` of every pass; in an interleaved schedule
    # `stage` counts chunks
    replica: NDArray[np.int64]
    stage: NDArray[np.int64]
    microbatch: NDArray[np.int64]
    is_backward: NDArray[np.bool_]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    stage_of_replica: NDArray[np.int64]  # ``[R]`` stage of every replica
    # ``[S]`` largest number of microbatches that a replica of each stage holds at once, in full stages
    peak_in_flight: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]  # ``[S]`` bytes per device at that time


_Task = tuple[int, int, bool]  # virtual stage, microbatch, is backward
_Event = tuple[int, int, bool, float, float, int]  # worker, microbatch, is backward, start, end, virtual stage


def simulate_step(stages: Sequence[StageLoad], num_microbatches: int, schedule: str = "1f1b") -> StepSchedule:
    """Simulate one step of a plan from the loads of its stages. O(stages * microbatches).

    Raises `UnknownNameError`: no schedule has that name; `InvalidProblemError`: the interleaved schedule cannot run the
    plan.

    Examples
    --------
    >>> load = StageLoad(3.0, 0.0, 0.0, 3.0, 1.0, 10.0, 2.0, 2, 1, 1, 1)
    >>> two = [load, replace(load, in_flight=1)]
    >>> simulate_step(two, 4, "gpipe").step_s, simulate_step(two, 4, "1f1b").step_s
    (15.0, 15.0)
    >>> simulate_step(two, 4, "gpipe").peak_in_flight.tolist(), simulate_step(two, 4, "1f1b").peak_in_flight.tolist()
    ([4.0, 4.0], [2.0, 1.0])
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError(f"no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    num_stages = len(stages)
    chunks = CHUNKS if schedule == "interleaved" else 1
    if schedule == "interleaved":
        _check_interleaved(stages, num_microbatches)
    degrees = [stage.data_degree for stage in stages]
    first = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    forward_s = [(stage.forward_s + stage.transfer_s / 2) * stage.data_degree for stage in stages]
    backward_s = [(stage.compute_s - stage.forward_s + stage.transfer_s / 2) * stage.data_degree for stage in stages]
    passes_s = np.array([forward_s, backward_s]).T / chunks
    orders: list[list[_Task]] = []
    for s, stage in enumerate(stages):
        for r in range(stage.data_degree):
            mine = list(range(r, num_microbatches, stage.data_degree))
            orders.append(_order(schedule, s, num_stages, mine, stage.in_flight))
    finish = np.full((2, num_stages * chunks, num_microbatches), np.nan)
    free, events = _run_orders(orders, passes_s, finish)
    if len(events) < sum(map(len, orders)):
        raise InvalidProblemError(f"schedule {schedule!r}: stages of this plan wait for each other")
    stage_of = np.searchsorted(first, np.arange(len(orders)), side="right") - 1
    sync_s = np.array([stage.sync_s for stage in stages]) * num_microbatches
    step_s = float((free + sync_s[stage_of]).max())
    weights = np.array([stage.tensor_degree for stage in stages])[stage_of]
    busy = np.zeros(len(orders))
    for worker, _, _, start, end, _ in events:
        busy[worker] += end - start
    bubble = 1 - float(((busy + sync_s[stage_of]) * weights).sum()) / (step_s * float(weights.sum())) if step_s else 0.0
    peak = _peaks(events, stage_of, num_stages) / chunks
    fixed = np.array([stage.memory_bytes - stage.in_flight * stage.held_bytes for stage in stages])
    table = np.array(events, dtype=np.float64).reshape(-1, 6)
    return StepSchedule(
        name=schedule,
        step_s=step_s,
        bubble=bubble,
        replica=table[:, 0].astype(np.int64),
        stage=table[:, 5].astype(np.int64),
        microbatch=table[:, 1].astype(np.int64),
        is_backward=table[:, 2] > 0,
        start_s=table[:, 3].copy(),
        finish_s=table[:, 4].copy(),
        stage_of_replica=stage_of,
        peak_in_flight=peak,
        peak_bytes=fixed + peak * np.array([stage.held_bytes for stage in stages]),
    )


def _run_orders(
    orders: list[list[_Task]],
    passes_s: NDArray[np.float64],  # ``[S, 2]`` seconds of forward and backward
    finish: NDArray[np.float64],  # ``[2, virtual stages, microbatches]`` written: seconds at which passes end
) -> tuple[NDArray[np.float64], list[_Event]]:
    """Run the tasks of every worker in their order, as far as it goes; return when workers are free, and events."""
    free, at = np.zeros(len(orders)), [0] * len(orders)
    events: list[_Event] = []
    progressed, last = True, finish.shape[1] - 1
    while progressed:
        progressed = False
        for worker, order in enumerate(orders):
            while at[worker] < len(order):
                virtual, j, is_backward = order[at[worker]]
                if is_backward:
                    needs = finish[1, virtual + 1, j] if virtual < last else finish[0, virtual, j]
                else:
                    needs = finish[0, virtual - 1, j] if virtual > 0 else 0.0
                if np.isnan(needs) or (is_backward and np.isnan(finish[0, virtual, j])):
                    break
                start = max(float(free[worker]), float(needs))
                end = start + float(passes_s[virtual % len(passes_s), int(is_backward)])
                finish[int(is_backward), virtual, j] = free[worker] = end
                events.append((worker, j, is_backward, start, end, virtual))
                at[worker] += 1
                progressed = True
    return free, events


def _check_interleaved(stages: Sequence[StageLoad], num_microbatches: int) -> None:
    degrees = {(stage.data_degree, stage.tensor_degree) for stage in stages}
    if len(degrees) > 1:
        raise InvalidProblemError(
            f"the interleaved schedule needs equal degrees of all stages; this plan has {sorted(degrees)}"
        )
    each = num_microbatches // stages[0].data_degree
    if each % len(stages):
        raise InvalidProblemError(
            f"the interleaved schedule needs microbatches per replica ({each}) that the {len(stages)} stages divide"
        )


def _order(schedule: str, s: int, num_stages: int, mine: list[int], in_flight: int) -> list[_Task]:
    """Return the passes of a replica of stage s in their order."""
    if schedule == "gpipe":
        return [(s, j, False) for j in mine] + [(s, j, True) for j in mine]
    if schedule == "1f1b":
        forward, backward = [(s, j, False) for j in mine], [(s, j, True) for j in mine]
        warm = min(in_flight - 1, len(mine))
    else:
        groups = [(k // num_stages % CHUNKS, k // (num_stages * CHUNKS) * num_stages + k % num_stages)
                  for k in range(len(mine) * CHUNKS)]  # fmt: skip
        forward = [(chunk * num_stages + s, mine[m], False) for chunk, m in groups]
        backward = [((CHUNKS - 1 - chunk) * num_stages + s, mine[m], True) for chunk, m in groups]
        warm = min((num_stages - s - 1) * 2 + (CHUNKS - 1) * num_stages, len(forward))
    order = forward[:warm]
    for f, b in zip(forward[warm:], backward, strict=False):
        order += [f, b]
    return order + backward[len(forward) - warm :]


def _peaks(
    events: list[tuple[int, int, bool, float, float, int]], stage_of: NDArray[np.int64], num_stages: int
) -> NDArray[np.float64]:
    """Return ``[S]`` the largest number of microbatches (of chunks) between their forward start and backward end."""
    changes: list[list[tuple[float, int]]] = [[] for _ in stage_of]
    for worker, _, is_backward, start, end, _ in events:
        changes[worker].append((end, -1) if is_backward else (start, 1))
    peak = np.zeros(num_stages)
    for worker, listed in enumerate(changes):
        held = 0
        for _, change in sorted(listed):  # at equal times the passes that end come first
            held += change
            peak[stage_of[worker]] = max(peak[stage_of[worker]], held)
    return peak


def best_by_step(
    problem: TrainingProblem, result: PlanResult, schedule: str, solve_plan: Callable[..., PlanResult]
) -> PlanResult:
    """Return the candidate plan with the shortest step under `schedule`; other plans may be better.

    Candidates are `result`, the plans of the baselines, and plans without data or tensor parallelism, with degrees in
    powers of two, or on fewer devices. The bound of the step is the number of microbatches times the bound of `result`.
    The step and its bubble are in ``info["step"]``. Raises `UnknownNameError`: no schedule has that name;
    `InvalidProblemError`: the schedule cannot run any candidate.
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError(f"no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    best: tuple[float, PlanResult, StepSchedule] | None = None
    why = ""
    candidates = [result, *_candidates(problem, solve_plan)]
    for candidate in candidates:
        if candidate.plan is None:
            continue
        try:
            step = simulate_step(candidate.stages, problem.num_microbatches, schedule)
        except InvalidProblemError as error:
            why = why or str(error)
            continue
        over = _over(step, problem.memory_bytes)
        rank = step.step_s if not over else np.inf
        if best is None or rank < best[0] or (over and rank == best[0] and step.step_s < best[2].step_s):
            best = rank, candidate, step
    if best is None:
        raise InvalidProblemError(why)
    _, chosen, step = best
    bound_s = problem.num_microbatches * (result.lower_bound or 0.0)
    told: dict[str, Any] = {
        "schedule": schedule,
        "step_s": step.step_s,
        "bubble": step.bubble,
        "bound_s": bound_s,
        "gap": relative_gap(step.step_s, bound_s),
        "candidates": len(candidates),
        "peak_bytes": step.peak_bytes.tolist(),
        "over_memory": _over(step, problem.memory_bytes),
    }
    if chosen is not result:
        bound = min(result.lower_bound or 0.0, chosen.objective or 0.0)
        chosen = replace(
            chosen, method=result.method, lower_bound=bound, bound_name=result.bound_name, trace=result.trace,
            status=Status.FEASIBLE if relative_gap(chosen.objective, bound) else Status.OPTIMAL,
            stop_reason=result.stop_reason, runtime_s=result.runtime_s, info=result.info,
        )  # fmt: skip
    return chosen.with_info("step", told)


def _over(step: StepSchedule, memory_bytes: float) -> list[str]:
    """Return violations of the stages that exceed the memory limit."""
    return [f"stage {s}" for s, size in enumerate(step.peak_bytes) if size > memory_bytes * (1 + MEMORY_TOLERANCE)]


def _candidates(problem: TrainingProblem, solve_plan: Callable[..., PlanResult]) -> list[PlanResult]:
    rules = problem.restrictions
    variants = [
        replace(rules, data_parallel=False), replace(rules, tensor_parallel=False), replace(rules, powers_of_two=True),
    ]  # fmt: skip
    found = [solve_plan(problem.replace(restrictions=changed), "dp") for changed in variants if changed != rules]
    return found + [solve_plan(problem, name) for name in ("equal-split", "pipedream-2bw", "data-parallel")]


def step_as_result(result: PlanResult, step: StepSchedule) -> Result:
    """Return a step as a result with a schedule, for pictures and traces.

    Devices are the replicas of the stages; ops are the passes of microbatches. Memory rises when a forward pass begins
    and falls when the backward pass ends.
    """
    stage_of = step.stage_of_replica
    inside = np.arange(len(stage_of)) - np.searchsorted(stage_of, stage_of)
    names = tuple(f"stage {s}.{r}" for s, r in zip(stage_of.tolist(), inside.tolist(), strict=True))
    passes = [
        f"stage {s} {'B' if back else 'F'}{j}"
        for s, j, back in zip(step.stage.tolist(), step.microbatch.tolist(), step.is_backward.tolist(), strict=True)
    ]
    held = np.array([load.held_bytes for load in result.stages])
    fixed = np.array([load.memory_bytes - load.in_flight * load.held_bytes for load in result.stages])
    moments = np.where(step.is_backward, step.finish_s, step.start_s)
    level = fixed[stage_of].copy()
    lines: list[tuple[float, float, float]] = [(w, 0.0, level[w]) for w in range(len(stage_of))]
    for event in np.lexsort((~step.is_backward, moments)).tolist():
        w = int(step.replica[event])
        level[w] += held[stage_of[w]] * (-1 if step.is_backward[event] else 1)
        lines.append((w, float(moments[event]), float(level[w])))
    order = np.arange(len(step.replica))
    schedule = Schedule(
        device=step.replica, op=order, start_s=step.start_s, finish_s=step.finish_s,
        is_transfer=np.zeros(len(order), dtype=bool), peer=np.full(len(order), -1),
        peak_memory_bytes=step.peak_bytes[stage_of], memory=np.array(lines),
    )  # fmt: skip
    return Result(
        method=result.method, objective_name=f"step ({step.name})", problem_name=result.problem_name,
        status=Status.FEASIBLE, stop_reason=StopReason.FINISHED,
        placement=Placement(tuple(passes), names, step.replica), objective=step.step_s, lower_bound=None,
        bound_name=None, device_loads=(), violations=(), trace=(), runtime_s=0.0, evaluations=1, seed=result.seed,
        schedule=schedule,
    )  # fmt: skip

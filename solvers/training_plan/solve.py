"""Solving of training problems: a method plans, and the judge scores the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from placekit.kernels import TRAINING_PLAN, prepare
from placekit.model.errors import InvalidProblemError, UnknownNameError, did_you_mean
from placekit.solve.result import Incumbent
from placekit.solve.solve import interruptible, judged
from placekit.solve.stop import Stop, StopReason, wanted_until
from placekit.training.evaluate import StageLoad
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult, PlanRun


class PlanMethod(Protocol):
    """Method that offers plans and bounds of a training problem to a run."""

    name: ClassVar[str]
    guarantee: ClassVar[str]

    def run(self, run: PlanRun) -> StopReason:
        """Plan ``run.problem`` until done or told to stop; return why the method ended."""
        ...


PLAN_METHODS = ("dp", "equal-split", "data-parallel", "pipeline", "pipedream-2bw", "piper-greedy")
"""Names of all methods; ``auto`` is ``dp``."""


def plan_method(name: str, params: Mapping[str, Any] | None = None) -> PlanMethod:
    """Return the method called `name`.

    Raises `UnknownNameError`: no method has that name; `InvalidProblemError`: a parameter that it does not have.
    """
    from placekit.solvers.training_plan import baselines
    from placekit.solvers.training_plan.dp import TrainingDp

    if name in ("auto", "dp"):
        return TrainingDp.from_params(params or {})
    found: dict[str, Callable[[], PlanMethod]] = {
        "equal-split": baselines.EqualSplit,
        "data-parallel": baselines.DataParallel,
        "pipeline": baselines.Pipeline,
        "pipedream-2bw": baselines.PipeDream2BW,
        "piper-greedy": baselines.PiperGreedy,
    }
    if name not in found:
        raise UnknownNameError(
            f"no method {name!r} for training plans; there are {', '.join(PLAN_METHODS)}"
            + did_you_mean(name, PLAN_METHODS)
        )
    if params:
        raise InvalidProblemError(f"method {name!r} has no parameter {next(iter(params))!r}")
    return found[name]()


def solve_plan(
    problem: TrainingProblem,
    method: str = "dp",
    *,
    stop: Stop | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    on_progress: Callable[[Incumbent], None] | None = None,
) -> PlanResult:
    """Plan the training of `problem` by `method`, as :func:`placekit.solve.solve` does for placements.

    Parameters
    ----------
    problem
        Problem to plan.
    method
        A name of `PLAN_METHODS`.
    stop
        Stop condition, for example ``MaxRuntime(60) | TargetGap(0.01)``; by default the end of the method.
    seed
        Seed for the result; all methods here are deterministic.
    params
        Parameters of the method, by name.
    on_progress
        Called with every new line of the trace.

    Raises
    ------
    UnknownNameError
        No method has that name.
    JudgeDisagreementError
        The method contradicts the judge: a bug.

    Examples
    --------
    >>> from placekit.training.generate import chain_problem
    >>> result = solve_plan(chain_problem(4, num_devices=4))
    >>> str(result.status), result.plan.num_devices <= 4
    ('optimal', True)
    """
    worker = plan_method(method, params)
    run = PlanRun(problem, stop, seed, on_progress)
    prepare(TRAINING_PLAN)
    with interruptible(run), wanted_until(run.should_stop):
        reason = worker.run(run)
    return _sign(run, worker.name, reason)


def _sign(run: PlanRun, method: str, reason: StopReason) -> PlanResult:
    problem = run.problem
    loads: tuple[StageLoad, ...] = ()
    names: tuple[str, ...] = ()
    if run.plan is not None and run.evaluation is not None:
        loads = run.evaluation.stages
        chosen = {
            v: problem.layers[v].choices[stage.tensor_degree][c].name
            for stage in run.plan.stages
            for v, c in zip(stage.layers, stage.choices, strict=True)
        }
        names = tuple(chosen[v] for v in range(problem.num_layers))
    return PlanResult(
        **judged(run, method, reason),
        problem_name=problem.name,
        plan=run.plan,
        stages=loads,
        layer_names=tuple(layer.name for layer in problem.layers),
        choice_names=names,
        num_devices=problem.num_devices,
        memory_bytes=problem.memory_bytes,
        bandwidth_bytes_per_s=problem.bandwidth_bytes_per_s,
        num_microbatches=problem.num_microbatches,
    )

"""The verb for training plans: a method by name works on a problem, and the judge signs the result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Protocol

from placekit.errors import InvalidProblemError, KernelsPendingError, UnknownNameError, did_you_mean
from placekit.patience import waiting_while
from placekit.placement import Violation
from placekit.result import SOLVER_TOLERANCE, Incumbent, Status
from placekit.stop import Stop, StopReason
from placekit.training.evaluate import StageLoad
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult
from placekit.training.run import PlanRun

__all__ = ["PLAN_METHODS", "plan_method", "solve_plan"]


class PlanMethod(Protocol):
    """Anything that turns a training problem into plans and bounds, told to a run."""

    name: ClassVar[str]
    guarantee: ClassVar[str]

    def run(self, run: PlanRun) -> StopReason:
        """Work on ``run.problem`` until done or told to stop; return why it ended."""
        ...


PLAN_METHODS = ("dp", "equal-split", "data-parallel", "pipeline", "pipedream-2bw", "piper-greedy")
"""Names of all methods; ``auto`` is ``dp``."""


def plan_method(name: str, params: Mapping[str, Any] | None = None) -> PlanMethod:
    """Return the method called `name`.

    Raises
    ------
    UnknownNameError
        No method has that name.
    InvalidProblemError
        A parameter that it does not have.
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
    """Plan the training of `problem` by `method`; the twin of :func:`placekit.solve.solve`.

    Parameters
    ----------
    problem
        What to plan.
    method
        A name of `PLAN_METHODS`.
    stop
        When to stop, for example ``MaxRuntime(60) | TargetGap(0.01)``; by default when the method is done.
    seed
        Kept in the result; every method here is deterministic.
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
    with _interrupts(run), waiting_while(lambda: run.should_stop() is None):
        try:
            reason = worker.run(run)
        except KernelsPendingError as error:
            run.info["kernels"] = str(error)
            reason = run.should_stop() or StopReason.TIME
    if run.compile_s > 0:
        run.info["compile_s"] = run.compile_s
    return _sign(run, worker.name, reason)


@contextmanager
def _interrupts(run: PlanRun) -> Iterator[None]:
    """While planning, Ctrl-C asks the method to return its best; a second one raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if run.interrupted.is_set():
            signal.default_int_handler(signum, frame)
        run.interrupted.set()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _sign(run: PlanRun, method: str, reason: StopReason) -> PlanResult:
    """Assemble the result from what the run holds."""
    problem = run.problem
    loads: tuple[StageLoad, ...] = ()
    violations: tuple[Violation, ...] = ()
    names: tuple[str, ...] = ()
    if run.plan is not None and run.evaluation is not None:
        loads = run.evaluation.stages
        proved = run.gap is not None and run.gap <= SOLVER_TOLERANCE
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        reason = StopReason.PROVED if proved else reason
        chosen = {
            v: problem.layers[v].choices[stage.tensor_degree][c].name
            for stage in run.plan.stages
            for v, c in zip(stage.layers, stage.choices, strict=True)
        }
        names = tuple(chosen[v] for v in range(problem.num_layers))
    elif run.infeasible_because is not None:
        status, violations, reason = Status.INFEASIBLE, run.infeasible_because, StopReason.PROVED
    else:
        status = Status.UNKNOWN
        violations = run.nearest.violations if run.nearest else ()
    return PlanResult(
        method=method,
        problem_name=problem.name,
        status=status,
        stop_reason=reason,
        plan=run.plan,
        objective=run.objective,
        lower_bound=run.bound,
        bound_name=run.bound_name,
        stages=loads,
        violations=violations,
        trace=tuple(run.trace),
        runtime_s=run.elapsed_s,
        evaluations=run.evaluations,
        seed=run.seed,
        layer_names=tuple(layer.name for layer in problem.layers),
        choice_names=names,
        num_devices=problem.num_devices,
        memory_bytes=problem.memory_bytes,
        bandwidth_bytes_per_s=problem.bandwidth_bytes_per_s,
        num_microbatches=problem.num_microbatches,
        info=run.info,
    )

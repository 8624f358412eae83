"""`solve`: assemble a run, let a method work on it, and have the judge score the result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from placekit import machine
from placekit.kernels import FEW_OPS, LEARNED, prepare, prepare_when_called
from placekit.model.errors import InvalidProblemError, ProgramTooLargeError, UnsupportedProblemError
from placekit.model.placement import Placement, Violation
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes_exactly
from placekit.objectives.evaluate import DeviceLoad
from placekit.solve.infeasibility import find_infeasibility
from placekit.solve.lifting.relaxed import why_not, work
from placekit.solve.method import Method, Run
from placekit.solve.registry import answer_first, get_method
from placekit.solve.result import Incumbent, Result, Status
from placekit.solve.run import BaseRun
from placekit.solve.stop import Stop, StopReason, wanted_until


def solve(
    problem: Problem,
    method: str | Method = "auto",
    *,
    stop: Stop | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    warm_start: Placement | Result | None = None,
    on_progress: Callable[[Incumbent], None] | None = None,
) -> Result:
    """Place `problem` by `method`.

    Parameters
    ----------
    problem
        Problem to solve.
    method
        A name from the registry (``"auto"``, ``"ilp"``, ``"single:GPU"``, ...) or a method object. ``"auto"`` picks the
        strongest sequence for the problem, and takes at most a minute unless `stop` says otherwise.
    stop
        When to stop, for example ``MaxRuntime(60) | TargetGap(0.01)``; by default when the method is done. Memory is
        limited by `MaxMemory`, or else by most of what the machine has left.
    seed
        Seed of every random choice. Same seed, same answer, when the method ends by itself or by a limit in iterations;
        with a wall-clock limit, and with ``"auto"`` if it does not end before its stages have had their shares of a
        minute, the answer also depends on how far the machine came.
    params
        Parameters of the method, by name.
    warm_start
        A placement, or an earlier result, to start from.
    on_progress
        Called with every new line of the trace, possibly from another thread.

    Returns
    -------
    Result
        The best placement found, scored by `evaluate`, with the best proven bound. Ctrl-C and SIGTERM end the solve
        early and still return both.

    Raises
    ------
    UnknownNameError
        No method has that name.
    SolverUnavailableError
        The method needs a package that is not installed.
    UnsupportedProblemError
        The method cannot work on this problem.
    InvalidProblemError
        A memory limit that this process exceeds already.
    JudgeDisagreementError
        The method contradicts the judge: a bug.

    Examples
    --------
    >>> from placekit.model.graph import OpGraph
    >>> from placekit.model.platform import Platform
    >>> from placekit.model.costs import CostTable
    >>> graph = OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    >>> costs = CostTable(("cpu",), [[2.0], [1.0], [1.0]], [[0.0], [0.0]], [0, 0, 0])
    >>> result = solve(Problem(graph, Platform.of(cpu=2), costs), method="ilp")
    >>> result.objective, str(result.status)
    (2.0, 'optimal')
    """
    start = warm_start.placement if isinstance(warm_start, Result) else warm_start
    run = Run(problem, stop, seed, start, on_progress)  # its clock stands still while kernels are prepared
    solver = get_method(method, params, problem.objective.name) if isinstance(method, str) else method
    reason = why_not(solver, problem)
    if reason is not None:
        raise UnsupportedProblemError(f"method {solver.name!r} cannot solve {problem!r}: {reason}")
    prepare_kernels = prepare_when_called if problem.graph.num_ops <= FEW_OPS else prepare
    prepare_kernels(problem.objective.name, *([LEARNED] if ".learned." in type(solver).__module__ else []))
    with interruptible(run), wanted_until(run.should_stop), machine.limited_to(_memory_limit(stop)):
        end = _run_to_end(solver, run, start)
        return _sign(run, method if isinstance(method, str) else method.name, end)


def _run_to_end(solver: Method, run: Run, start: Placement | None) -> StopReason:
    """Let the method work, unless the problem is infeasible for a simple reason; return why it ended."""
    try:
        infeasible = find_infeasibility(run)
        if infeasible is None and start is not None:
            run.offer(start)
        end = infeasible or work(solver, run)
        if end is StopReason.ITERATIONS:
            answer_first(solver.name, run)
    except ProgramTooLargeError as error:
        run.info["skipped"] = str(error)
        return run.should_stop() or (StopReason.MEMORY if error.lacks_memory else StopReason.TIME)
    return end


def _memory_limit(stop: Stop | None) -> float:
    """Return the bytes that this process may hold: those of `stop`, or most of what the machine has left."""
    limit: float | None = getattr(stop, "memory_limit_bytes", None)
    if limit is None:
        return machine.default_limit_bytes()
    if limit <= machine.resident_bytes():
        raise InvalidProblemError(
            f"memory limit is {format_bytes_exactly(limit)}; this process holds "
            f"{format_bytes_exactly(machine.resident_bytes())} before it begins"
        )
    return limit


@contextmanager
def finishing() -> Iterator[None]:
    """While an answer is written, Ctrl-C or SIGTERM asks for what comes anyway; a second raises KeyboardInterrupt."""
    told: list[int] = []

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if told:
            signal.default_int_handler(signum, frame)
        told.append(signum)

    with _handled_by(on_signal):
        yield


@contextmanager
def interruptible(run: BaseRun[Any, Any, Any]) -> Iterator[None]:
    """While solving, Ctrl-C or SIGTERM asks the method for its best; a second one raises KeyboardInterrupt."""

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if run.interrupted.is_set():
            signal.default_int_handler(signum, frame)
        run.interrupted.set()

    with _handled_by(on_interrupt):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM call `handler`; nothing outside of the main thread, to which no signal comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, former in previous.items():
            signal.signal(each, former)


def _sign(run: Run, method: str, reason: StopReason) -> Result:
    """Assemble the result from what the run holds: the best placement, and what the judge said of it."""
    loads: tuple[DeviceLoad, ...] = ()
    score = None
    if run.evaluation is not None:
        loads, score = run.evaluation.device_loads, run.evaluation.score
    return Result(
        **judged(run, method, reason),
        objective_name=run.problem.objective.name,
        problem_name=run.problem.name,
        placement=run.placement,
        device_loads=loads,
        schedule=None if score is None else score.schedule,
        problem_hash=run.problem.content_hash,
        problem_terms=run.problem.terms,
        certificate=run.certificate,
        problem=run.problem,
    )


def judged(run: BaseRun[Any, Any, Any], method: str, reason: StopReason) -> dict[str, Any]:
    """Return the fields of a `BaseResult` that a run holds."""
    violations: tuple[Violation, ...] = ()
    if run.answer is not None:
        status = Status.OPTIMAL if run.is_proven else Status.FEASIBLE
        reason = StopReason.PROVED if run.is_proven else reason
    elif run.infeasible_because is not None:
        status, violations = Status.INFEASIBLE, run.infeasible_because
        reason = StopReason.PROVED
    else:
        status = Status.UNKNOWN
        violations = run.nearest.violations if run.nearest else ()
    return {
        "method": method,
        "status": status,
        "stop_reason": reason,
        "objective": run.objective,
        "lower_bound": run.bound,
        "bound_name": run.bound_name,
        "violations": violations,
        "trace": tuple(run.trace),
        "runtime_s": run.elapsed_s,
        "evaluations": run.evaluations,
        "seed": run.seed,
        "info": run.info,
        "tolerance": run.tolerance,
        "compile_s": run.compile_s,
        "load_s": run.load_s,
    }

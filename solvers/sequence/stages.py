"""Several methods one after the other on one solve: each starts from what the ones before it found."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from placekit.contiguity import Contiguity
from placekit.errors import KernelsPendingError, ProgramTooLargeError, SolverUnavailableError
from placekit.method import Method, Run
from placekit.patience import waiting_while
from placekit.solvers.generic.relaxed_links import work
from placekit.solvers.generic.within import Within
from placekit.solvers.registry import get_method
from placekit.stop import MaxRuntime, StopReason

__all__ = ["Stage", "run_stages"]

POLL_S = 0.05
"""Seconds between two looks at whether to stop."""
WAIT_S = 1.0
"""Seconds that a stage waits for its kernels before others have their turn."""
LATE_SHARE = 0.5
"""Most of the time left that a stage may take behind which one has its turn that had to wait for its kernels."""
WAIT_FOR_ANSWER = 0.25
"""Share of the time that it waits while there is no placement yet."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One method's turn.

    Parameters
    ----------
    method
        Its name.
    why
        Half a sentence for people: what it is here for.
    share
        Most of the time left that it may take, 0 to 1.
    contiguity
        A narrower contiguity under which it works: what it finds is feasible, what it proves does not count.
        None for the problem's own.
    params
        Its parameters.
    only_if
        Asked when it is its turn; it is left out if the answer is no. None for always.
    beside
        A stage whose method works at the same time, in a thread of its own, for as long as there is time: what it finds
        counts, what it proves does not.
    """

    method: str
    why: str
    share: float = 1.0
    contiguity: Contiguity | None = None
    params: dict[str, Any] = field(default_factory=dict)
    only_if: Callable[[Run], bool] | None = None
    beside: Stage | None = None


def run_stages(run: Run, stages: Iterable[Stage]) -> StopReason:
    """Let each stage work on `run` until the solve is to stop; ``run.info["stages"]`` tells what each one brought.

    A stage whose packages are not installed, or whose program is too large for the time or the memory that is left, is
    passed over, which the account says. One whose program was too large for its share of the time has its turn again
    when the others have left time, and one whose kernels are still being compiled, or packages imported, after the next
    one, which leaves it half of the time and goes on after it. The last one may take all that is left.
    """
    account: list[dict[str, Any]] = []
    run.info["stages"] = account
    todo = deque((stage, False) for stage in stages)
    while todo:
        stage, _ = todo.popleft()
        reason = run.should_stop()
        if reason is not None or run.infeasible_because is not None:
            return reason or StopReason.PROVED
        if stage.only_if is not None and not stage.only_if(run):
            continue
        is_late_behind = any(was_late for _, was_late in todo)
        share = min(stage.share, LATE_SHARE) if is_late_behind else stage.share if todo else 1.0
        start_s = run.elapsed_s
        line: dict[str, Any] = {"method": stage.method, "why": stage.why}
        account.append(line)
        try:
            patience = _patience(run, is_last=all(was_late for _, was_late in todo))
            with waiting_while(patience, for_kernels_only=True):
                is_cut_short = _run_stage(run, replace(stage, share=share), line)
            if is_cut_short and is_late_behind:
                todo.append((stage, False))
        except SolverUnavailableError as error:
            line["skipped"] = str(error)
            continue
        except ProgramTooLargeError as error:
            line["skipped"] = str(error)
            if share < 1.0 and not error.lacks_memory:
                todo.append((replace(stage, share=1.0), False))
        except KernelsPendingError as error:
            line["skipped"] = str(error)
            todo.insert(
                next((at + 1 for at, (_, was_late) in enumerate(todo) if not was_late), len(todo)), (stage, True)
            )
        line |= {"time_s": run.elapsed_s - start_s, "objective_s": run.objective, "bound_s": run.bound}
    return run.should_stop() or (StopReason.PROVED if run.infeasible_because is not None else StopReason.FINISHED)


def _patience(run: Run, *, is_last: bool) -> Callable[[], bool]:
    """Return what says whether a stage is to wait for its kernels: not long if there is an answer and more to do."""
    begin_s = run.elapsed_s
    left_s = math.inf if run.remaining_s is None else run.remaining_s
    return lambda: (
        run.should_stop() is None
        and (
            is_last
            or run.elapsed_s - begin_s < WAIT_S
            or (run.objective is None and run.elapsed_s - begin_s < WAIT_FOR_ANSWER * left_s)
        )
    )


def _run_stage(run: Run, stage: Stage, line: dict[str, Any]) -> bool:
    """Let a stage work for its share of the time, and return whether that was too short for it to end by itself."""
    objective = run.problem.objective.name
    method = get_method(stage.method, stage.params, objective)
    other = None if stage.beside is None else get_method(stage.beside.method, stage.beside.params, objective)
    with run.limited_to(None if run.remaining_s is None else stage.share * run.remaining_s):
        if stage.contiguity is not None and stage.contiguity is not run.problem.contiguity:
            _run_narrower(run, method, stage.contiguity)
        elif other is not None:
            line["beside"] = other.name
            _run_both(run, method, other)
        else:
            work(method, run)
        return run.should_stop() is StopReason.TIME


def _run_narrower(run: Run, method: Method, contiguity: Contiguity) -> None:
    """Let `method` work on the same problem under a narrower contiguity, and pass on what it finds."""
    problem = run.problem.replace(contiguity=contiguity)
    inner = Run(
        problem,
        None if run.remaining_s is None else MaxRuntime(run.remaining_s),
        run.seed,
        run.warm_start,
        on_progress=lambda _: _pass_on(inner, run),
    )
    inner.interrupted = run.interrupted
    work(method, inner)


def _run_both(run: Run, method: Method, other: Method) -> None:
    """Let `method` work on `run`, and `other` beside it from the best placement on, until neither may go on."""
    seed = int(run.rng.integers(2**31))
    left_s = math.inf if run.remaining_s is None else run.remaining_s
    inner = Run(run.problem, Within(run, left_s), seed, run.placement, on_progress=lambda _: _pass_on(inner, run))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, other, inner)
        try:
            work(method, run)
            while run.should_stop() is None and wait([future], timeout=POLL_S).not_done:
                pass  # in short steps, so that this thread keeps seeing signals
        finally:
            inner.interrupted.set()
        future.result()


def _pass_on(inner: Run, run: Run) -> None:
    if inner.placement is not None and inner.placement is not run.placement:
        run.offer(inner.placement)

"""Several methods one after the other on one solve: each starts from what the ones before it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from placekit.model.contiguity import Contiguity
from placekit.model.errors import ProgramTooLargeError, SolverUnavailableError
from placekit.solve.lifting.lift import Lift, LiftedRun, left_s
from placekit.solve.lifting.relaxed import work
from placekit.solve.method import Method, Run
from placekit.solve.registry import get_method
from placekit.solve.stop import StopReason, in_this_solve

POLL_S = 0.05
"""Seconds between two looks at whether to stop."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One method's turn."""

    method: str  # its name
    why: str  # half a sentence for people: what it is here for
    share: float = 1.0  # most of the time left that it may take, 0 to 1
    # a narrower contiguity under which it works: what it finds is feasible, what it proves does not count. None for the
    # problem's own.
    contiguity: Contiguity | None = None
    params: dict[str, Any] = field(default_factory=dict)  # its parameters
    # asked when it is its turn; it is left out if the answer is no. None for always.
    only_if: Callable[[Run], bool] | None = None
    # a stage whose method works at the same time, in a thread of its own, for as long as there is time: what it finds
    # counts, what it proves does not
    beside: Turn | None = None


def run_stages(run: Run, stages: Iterable[Turn], account: list[dict[str, Any]] | None = None) -> StopReason:
    """Let each stage work on `run` until the solve is to stop; ``run.info["stages"]`` tells what each one brought.

    A stage whose packages are not installed, or whose program is too large for the time or the memory that is left, is
    passed over, which the account says. One whose program was too large for its share of the time has its turn again
    when the others have left time. The last one may take all that is left. An `account` of earlier stages is continued.
    """
    account = [] if account is None else account
    run.info["stages"] = account
    todo = list(stages)
    while todo:
        reason = run.should_stop()
        if reason is not None:
            return reason
        stage = todo.pop(0)
        if stage.only_if is not None and not stage.only_if(run):
            continue
        start_s, share = run.elapsed_s, stage.share if todo else 1.0
        before = run.objective, run.bound
        line: dict[str, Any] = {"method": stage.method, "why": stage.why}
        account.append(line)
        try:
            with run.limited_to(share * left_s(run)):
                _run_stage(run, stage, line)
        except SolverUnavailableError as error:
            line["skipped"] = str(error)
            continue
        except ProgramTooLargeError as error:
            line["skipped"] = str(error)
            if share < 1.0 and not error.lacks_memory:
                todo.append(replace(stage, share=1.0))
        line |= {"time_s": run.elapsed_s - start_s, "objective_s": run.objective, "bound_s": run.bound}
        line["why"] = f"{stage.why}; {_brought(run, *before)}"
    return run.should_stop() or StopReason.FINISHED


def _brought(run: Run, objective: float | None, bound: float | None) -> str:
    """Say what a stage brought, before which the run had this objective and this bound."""
    told = []
    if run.infeasible_because is not None:
        told.append("proved that nothing is feasible")
    if run.objective is not None and objective is None:
        told.append("first placement")
    elif run.objective is not None and objective is not None and run.objective < objective:
        told.append(f"objective -{_percent(1 - run.objective / objective)}")
    if run.bound is not None and bound is None:
        told.append("first bound")
    elif run.bound is not None and bound is not None and run.bound > bound:
        told.append(f"bound +{_percent(run.bound / bound - 1)}" if bound > 0 else "bound above 0")
    return ", ".join(told) or "improved nothing"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "<0.01%"


def _run_stage(run: Run, stage: Turn, line: dict[str, Any]) -> StopReason:
    objective = run.problem.objective.name
    method = get_method(stage.method, stage.params, objective)
    if stage.contiguity is not None and stage.contiguity is not run.problem.contiguity:
        return _run_narrower(run, method, stage.contiguity)
    if stage.beside is None:
        return work(method, run)
    other = get_method(stage.beside.method, stage.beside.params, objective)
    line["beside"] = other.name
    return _run_both(run, method, other)


def _run_narrower(run: Run, method: Method, contiguity: Contiguity) -> StopReason:
    """Let `method` work on the same problem under a narrower contiguity, and pass on what it finds."""
    return work(method, LiftedRun(run, Lift(run.problem.replace(contiguity=contiguity))))


def _run_both(run: Run, method: Method, other: Method) -> StopReason:
    """Let `method` work on `run`, and `other` beside it from the best placement on, until neither may go on."""
    inner = LiftedRun(run, Lift(run.problem), seed=int(run.rng.integers(2**31)))
    inner.interrupted, inner.info = Event(), {}
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(in_this_solve(work), other, inner)
        try:
            reason = work(method, run)
            while run.should_stop() is None and wait([future], timeout=POLL_S).not_done:
                pass  # in short steps, so that this thread keeps seeing signals
        finally:
            inner.interrupted.set()
        future.result()
    return reason

"""Problem that a method works on: the given one, or a relaxation without what the method does not know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from placekit.model.errors import UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.solve.lift import reason_of
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solve.without_links import run_without_links, without_links
from placekit.solve.without_shared_memory import without_shared_memory, work_without_shared_memory

__all__ = ["knows_links", "why_not", "work"]


def why_not(method: Method, problem: Problem) -> str | None:
    """Explain in a sentence why `method` cannot work on `problem`, nor on a relaxation; None if the method can."""
    reason = method.supports(problem)
    if reason is None or not (problem.has_direct_links or problem.has_tight_blocks):
        return reason
    return None if _relaxing(method, problem) is not None else method.supports(_without_both(problem))


def knows_links(method: Method, problem: Problem) -> bool:
    """Return True if `method` takes the direct links of `problem` into account."""
    return method.supports(without_shared_memory(problem)) is None


def work(method: Method, run: Run) -> StopReason:
    """Let `method` work on `run`, or on a relaxation whose placements and bounds go to `run`.

    Raises
    ------
    UnsupportedProblemError
        The method can work on neither.
    """
    problem = run.problem
    has_nothing_to_relax = not (problem.has_direct_links or problem.has_tight_blocks)
    if has_nothing_to_relax or method.supports(problem) is None:  # which can take long: whoever chose it has asked
        return method.run(run)
    relaxing = _relaxing(method, problem)
    if relaxing is None:
        raise UnsupportedProblemError(
            f"method {method.name!r} cannot solve {problem!r}: {method.supports(_without_both(problem))}"
        )
    return relaxing(run)


def _relaxing(method: Method, problem: Problem) -> Callable[[Run], StopReason] | None:
    """Choose the relaxation that `method` supports, without shared memory first; None if there is none."""
    if problem.has_tight_blocks and method.supports(without_shared_memory(problem)) is None:
        return partial(work_without_shared_memory, method)
    if problem.has_direct_links and why_not(method, without_links(problem)) is None:
        return partial(_work_without_links, method)
    return None


def _work_without_links(method: Method, run: Run) -> StopReason:
    return reason_of(run, work(method, run_without_links(run)))


def _without_both(problem: Problem) -> Problem:
    return without_shared_memory(without_links(problem))

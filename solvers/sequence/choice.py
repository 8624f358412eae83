"""The best of several problems that are answers to one question, such as ways to cut a CPU into groups, in one solve.

1. Every problem gets a bound at once: what all of its devices have to work, and the objective's own quick bound.
2. They are solved in the order of these bounds. One whose bound is not below the best answer so far is left out: no
   placement of it can be better.
3. The answer is the best placement of any of them. The least of all bounds is a bound of the question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve.result import Incumbent, Result, Status
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime, Stop, StopReason
from placekit.solvers.generic.bounds.work_and_path import shared_work


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of one of the problems."""

    name: str  # its name
    # that of its result; ``"left out"`` if no placement of it can be better than the answer, or ``"not reached"`` in
    # the time
    status: str
    # objective_s, bound_s: seconds; None where not known
    objective_s: float | None
    bound_s: float | None
    runtime_s: float  # wall seconds that it took


def solve_best(
    problems: Mapping[str, Problem],  # by name, at least one, all with the same objective
    # method, seed, params, on_progress: as for :func:`placekit.solve.solve`
    method: str = "auto",
    *,
    # when to stop; a time limit is for all of them together, and what one leaves is for the others
    stop: Stop | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    on_progress: Callable[[Incumbent], None] | None = None,
) -> tuple[str, Result]:
    """Solve the problems, as far as they can be the best, and return the name and the result of the best one.

    Returns
    -------
    tuple[str, Result]
        Name and result. ``info["compared"]`` has a `Compared` of every problem as a dictionary, in their order, and
        ``info["bound_of_all_s"]`` the least of their bounds: no placement of any of them is better.

    Raises
    ------
    InvalidProblemError
        No problem, or different objectives.
    PlacekitError
        As :func:`placekit.solve.solve`.
    """
    if len({problem.objective for problem in problems.values()}) != 1:
        raise InvalidProblemError(f"problems {list(problems)}: there must be at least one, all with one objective")
    start_s = time.perf_counter()
    limit_s = None if stop is None else stop.time_limit_s
    bounds = {name: _quick_bound_s(problem) for name, problem in problems.items()}
    best: tuple[str, Result] | None = None
    compared: dict[str, Compared] = {}
    order = sorted(problems, key=lambda name: bounds[name])
    for number, name in enumerate(order):
        best_s = None if best is None else best[1].objective
        left_s = None if limit_s is None else limit_s - (time.perf_counter() - start_s)
        if best_s is not None and bounds[name] >= best_s:
            compared[name] = Compared(name, "left out", None, bounds[name], 0.0)
            continue
        if best is not None and (best[1].stop_reason is StopReason.USER or (left_s is not None and left_s <= 0)):
            compared[name] = Compared(name, "not reached", None, bounds[name], 0.0)
            continue
        share = stop
        if stop is not None and left_s is not None:
            share = stop | MaxRuntime(max(left_s, 0.0) / (len(order) - number))  # type: ignore[operator]  # criteria combine
        result = solve(problems[name], method, stop=share, seed=seed, params=params, on_progress=on_progress)
        bound_s = max((b for b in (result.lower_bound, bounds[name]) if b is not None and np.isfinite(b)), default=None)
        compared[name] = Compared(name, str(result.status), result.objective, bound_s, result.runtime_s)
        if best is None or _rank(result) < _rank(best[1]):
            best = name, result
    assert best is not None
    open_bounds = [each.bound_s for each in compared.values() if each.status != Status.INFEASIBLE]
    known = [each for each in open_bounds if each is not None]
    told = {
        "compared": [asdict(compared[name]) for name in problems],
        "bound_of_all_s": min(known) if known and len(known) == len(open_bounds) else None,
    }
    return best[0], replace(best[1], info={**best[1].info, **told}, runtime_s=time.perf_counter() - start_s)


def _quick_bound_s(problem: Problem) -> float:
    own = problem.objective.quick_bound(problem)
    work = shared_work(problem)
    return max(0.0 if own is None else own[0], 0.0 if work is None else work[0])


def _rank(result: Result) -> tuple[bool, float, bool]:
    """Answers by their objective; then what is not known to have none, before what is proven to."""
    is_answer = result.objective is not None
    return not is_answer, result.objective or 0.0, result.status is Status.INFEASIBLE

"""What must be true of every result on a problem whose optimum is known."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from placekit.errors import JudgeDisagreementError, PlacekitError, SolverUnavailableError, UnsupportedProblemError
from placekit.evaluate import evaluate
from placekit.problem import Problem
from placekit.result import Result, Status
from placekit.solve import solve
from placekit.stop import MaxRuntime, Stop
from placekit.verification.verify import Outcome, verify

from .tight import max_questions, tight

__all__ = ["ALWAYS_PROVES", "Asked", "Finding", "Rivals", "Told", "check", "check_result", "check_verified"]

JUDGE_ROUNDING = 1e-12
"""Relative; two placements of one value may differ by as much when the judge adds up."""
ALWAYS_PROVES = frozenset({"auto", "enumerate"})
"""Methods that prove every small problem."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim that is wrong.

    Parameters
    ----------
    what
        The class: ``"bound above the optimum"``, ``"exception KeyError"``, ...
    detail
        The values.
    """

    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class Asked:
    """How problems are solved.

    Parameters
    ----------
    method, params, seed
        The method, its parameters, and its seed.
    time_s
        Its time limit.
    tight_case
        Number by which sizes of solvers and their end are drawn (:mod:`.tight`); None for not.
    """

    method: str
    params: Mapping[str, object]
    seed: int
    time_s: float
    tight_case: int | None = None


class Rivals:
    """What methods have said of one problem: no bound is above an answer, whoever gave which."""

    def __init__(self) -> None:
        self.answer: tuple[float, str] = (math.inf, "")
        self.bound: tuple[float, str] = (0.0, "")

    def compare(self, result: Result) -> Finding | None:
        """Return what contradicts `result`; None if nothing does."""
        if result.objective is not None:
            self.answer = min(self.answer, (result.objective, result.method))
        if result.lower_bound is not None:
            self.bound = max(self.bound, (result.lower_bound, f"{result.method}, {result.bound_name}"))
        elif result.status is Status.INFEASIBLE:
            self.bound = math.inf, f"{result.method}, infeasible"
        if self.answer[0] < math.inf and self.bound[0] > self.answer[0] * (1 + JUDGE_ROUNDING):
            return Finding("bound above an answer", f"{self.bound[0]!r} s ({self.bound[1]}), answer {self.answer}")
        return None


Told = Counter[tuple[str, str, str]]
"""How often bounds were checked or trusted, by objective, name of the bound, and outcome."""


def check(problem: Problem, optimum_s: float | None, asked: Asked) -> Finding | None:
    """Solve `problem` and return what is wrong with the result; None if nothing is.

    A method that does not work on the problem is none of our business: it must say so by its own error.
    """
    result = _solved(problem, asked)
    if result is None or isinstance(result, Finding):
        return result
    must_prove = asked.method in ALWAYS_PROVES and asked.tight_case is None
    return check_result(problem, optimum_s, result, must_prove=must_prove)


def check_verified(
    problem: Problem, asked: Asked, told: Told | None = None, rivals: Rivals | None = None
) -> Finding | None:
    """As `check` for a problem too large to enumerate: what `verify` or other methods find wrong.

    `told` counts what the verifier said, `rivals` keeps what the methods did.
    """
    result = _solved(problem, asked)
    if result is None or isinstance(result, Finding):
        return result
    contradiction = None if rivals is None else rivals.compare(result)
    if contradiction is not None:
        return contradiction
    checks = verify(result, problem).checks
    for each in checks:
        if told is not None and each.subject in ("bound", "infeasible"):
            told[problem.objective.name, result.bound_name or each.subject, str(each.outcome)] += 1
    failed = [each for each in checks if each.outcome is Outcome.FAILED]
    return Finding(f"verify refuses the {failed[0].subject}", failed[0].detail) if failed else None


def _solved(problem: Problem, asked: Asked) -> Result | Finding | None:
    """Return the result, or what is wrong with the method; None if the method does not work on the problem."""
    sizes: AbstractContextManager[object] = nullcontext()
    stop: Stop = MaxRuntime(asked.time_s)
    if asked.tight_case is not None:
        sizes = tight(asked.seed, asked.tight_case)
        stop = max_questions(asked.seed, asked.tight_case, asked.time_s)
    try:
        with sizes:
            return solve(problem, asked.method, stop=stop, seed=asked.seed, params=dict(asked.params))
    except (UnsupportedProblemError, SolverUnavailableError):
        return None
    except JudgeDisagreementError as error:
        return Finding("judge disagreement", str(error))
    except PlacekitError as error:
        return Finding(f"error {type(error).__name__}", str(error))
    except Exception as error:  # any other exception is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Finding(f"exception {type(error).__name__}", f"{error} at {last.filename}:{last.lineno}")


def check_result(problem: Problem, optimum_s: float | None, result: Result, *, must_prove: bool) -> Finding | None:
    """Return what is wrong with `result`, given the enumerated optimum (None: infeasible); None if nothing is."""
    if result.status is Status.INFEASIBLE and optimum_s is not None:
        return Finding("feasible called infeasible", f"a placement of {optimum_s!r} s exists")
    if optimum_s is None:
        if result.placement is not None:
            return Finding("infeasible answer", "enumeration finds no placement")
        return (
            Finding("infeasibility not proven", str(result.stop_reason))
            if must_prove and (result.status is not Status.INFEASIBLE)
            else None
        )
    bound_s = result.lower_bound
    if bound_s is not None and bound_s > optimum_s * (1 + JUDGE_ROUNDING):
        return Finding("bound above the optimum", f"{result.bound_name}: {bound_s!r} s, optimum {optimum_s!r} s")
    if result.placement is None or result.objective is None:
        return Finding("no answer", f"{result.stop_reason}; optimum {optimum_s!r} s") if must_prove else None
    judged = evaluate(problem, result.placement)
    if not judged.is_feasible or judged.objective is None:
        return Finding("infeasible answer", str(judged.violations[0]))
    if judged.objective != result.objective:
        return Finding("judge says otherwise", f"{result.objective!r} s, judge {judged.objective!r} s")
    if judged.objective < optimum_s * (1 - JUDGE_ROUNDING):
        return Finding("below the enumerated optimum", f"{judged.objective!r} s, enumerated {optimum_s!r} s")
    off = result.objective - optimum_s
    if result.status is Status.OPTIMAL and off > result.tolerance * result.objective * (1 + 1e-3):
        detail = f"{result.objective!r} s by {result.bound_name}, optimum {optimum_s!r} s"
        return Finding("called optimal, is not", detail)
    if must_prove and result.status is not Status.OPTIMAL:
        return Finding("not proven", f"{result.objective!r} s, bound {bound_s!r} s, optimum {optimum_s!r} s")
    return None

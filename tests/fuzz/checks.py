"""What must be true of every result: of a small problem, whose optimum is known, and of a larger one."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import process_time

from placekit.machine import num_usable_cpus
from placekit.model.errors import JudgeDisagreementError, PlacekitError, SolverUnavailableError, UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import OPTIMALITY_TOLERANCE, Result, Status
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime, Stop, StopReason
from placekit.verification.verify import Outcome, verify

from .apart import limit_cpu
from .tight import max_questions, tight

JUDGE_ROUNDING = 1e-12
"""Relative; two placements of one value may differ by as much when the judge adds up."""
ALWAYS_PROVES = frozenset({"auto", "enumerate"})
"""Methods that prove every small problem."""
NEED_NO_SEARCH: dict[str, dict[str, object]] = {"single": {}, "greedy": {}, "random": {"samples": 200}}
"""Methods that `auto` has to match wherever they have an answer, with their parameters."""
SLOW_CPU_S = 2.0
"""CPU seconds of a solve that are too many for fewer than `SMALL_OPS` ops on at most `SMALL_DEVICES` devices, and over
its time limit for any problem."""
SMALL_OPS, SMALL_DEVICES = 10, 5


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
    may_be_slow
        True for methods that take all the time that they get.
    is_asked_twice
        True to solve again, and to compare the two answers.
    limits_cpu
        True to end this process where a solve does not end (:func:`.apart.limit_cpu`).
    """

    method: str
    params: Mapping[str, object]
    seed: int
    time_s: float
    tight_case: int | None = None
    may_be_slow: bool = False
    is_asked_twice: bool = False
    limits_cpu: bool = False

    def stop(self) -> Stop:
        """Return a new criterion: the time limit, or one that ends half of all solves at some question."""
        if self.tight_case is None:
            return MaxRuntime(self.time_s)
        return max_questions(self.seed, self.tight_case, self.time_s)

    @property
    def is_cut_short(self) -> bool:
        """True if the solve may end anywhere."""
        return self.time_s < 1 or not isinstance(self.stop(), MaxRuntime)


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
    solved = _solved(problem, asked)
    if solved is None or isinstance(solved, Finding):
        return solved
    must_prove = asked.method in ALWAYS_PROVES and asked.tight_case is None
    return check_result(problem, optimum_s, solved.result, must_prove=must_prove) or _compared(problem, asked, solved)


def check_verified(
    problem: Problem, asked: Asked, told: Told | None = None, rivals: Rivals | None = None
) -> Finding | None:
    """As `check` for a problem too large to enumerate: what `verify` or other methods find wrong.

    `told` counts what the verifier said, `rivals` keeps what the methods did.
    """
    solved = _solved(problem, asked)
    if solved is None or isinstance(solved, Finding):
        return solved
    result = solved.result
    contradiction = None if rivals is None else rivals.compare(result)
    if contradiction is not None:
        return contradiction
    checks = verify(result, problem).checks
    for each in checks:
        if told is not None and each.subject in ("bound", "infeasible"):
            told[problem.objective.name, result.bound_name or each.subject, str(each.outcome)] += 1
    failed = [each for each in checks if each.outcome is Outcome.FAILED]
    if failed:
        return Finding(f"verify refuses the {failed[0].subject}", failed[0].detail)
    return _compared(problem, asked, solved)


@dataclass(frozen=True, slots=True)
class _Solved:
    """A result, and the CPU seconds of this process that it took."""

    result: Result
    cpu_s: float


def _compared(problem: Problem, asked: Asked, solved: _Solved) -> Finding | None:
    """Return what is wrong with a result beside others: its time, the second answer, what needs no search."""
    return _slow(problem, asked, solved) or _differs(problem, asked, solved) or _lags(problem, asked, solved.result)


def _slow(problem: Problem, asked: Asked, solved: _Solved) -> Finding | None:
    """Find too much CPU time, by a second solve: the first may have compiled and imported."""
    is_small = problem.graph.num_ops < SMALL_OPS and problem.platform.num_devices <= SMALL_DEVICES
    uses_all = asked.may_be_slow or asked.tight_case is not None or not is_small
    most_s = SLOW_CPU_S + (num_usable_cpus() * asked.time_s if uses_all else 0.0)
    if solved.cpu_s <= most_s:
        return None
    again = _solved(problem, asked)
    if not isinstance(again, _Solved) or again.cpu_s <= most_s:
        return None
    return Finding("slow", f"{again.cpu_s:.1f} s of CPU, limit {asked.time_s:g} s; {again.result.stop_reason}")


def _differs(problem: Problem, asked: Asked, solved: _Solved) -> Finding | None:
    """Find two answers by one seed, where no limit can have made the difference."""
    if not asked.is_asked_twice or not _is_unlimited(solved.result, asked):
        return None
    again = _solved(problem, asked)
    if not isinstance(again, _Solved) or not _is_unlimited(again.result, asked):
        return None
    one, other = solved.result, again.result
    if (one.status, one.objective, one.placement) == (other.status, other.objective, other.placement):
        return None
    return Finding("two answers by one seed", f"{one.status} {one.objective!r} s, {other.status} {other.objective!r} s")


def _is_unlimited(result: Result, asked: Asked) -> bool:
    """Return whether a solve ended so early that no share of its limit can have ended a part of it."""
    by_limit = result.stop_reason in (StopReason.TIME, StopReason.MEMORY)
    return not by_limit and result.runtime_s < 0.02 * asked.time_s


def _lags(problem: Problem, asked: Asked, result: Result) -> Finding | None:
    """Find what `auto` did not find, and a method without search did; with sizes drawn small it may be worse."""
    if asked.method != "auto" or asked.is_cut_short or result.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return None
    for rival, params in NEED_NO_SEARCH.items():
        other = _solved(problem, replace(asked, method=rival, params=params, tight_case=None))
        if not isinstance(other, _Solved) or other.result.objective is None:
            continue
        detail = f"{rival} {other.result.objective!r} s; auto {result.objective!r} s, {result.stop_reason}"
        if result.objective is None:
            return Finding("auto has no answer", detail)
        if asked.tight_case is None and result.objective > other.result.objective * (1 + OPTIMALITY_TOLERANCE):
            return Finding("auto is worse", detail)
    return None


def _solved(problem: Problem, asked: Asked) -> _Solved | Finding | None:
    """Return the result, or what is wrong with the method; None if the method does not work on the problem."""
    sizes: AbstractContextManager[object] = (
        nullcontext() if asked.tight_case is None else tight(asked.seed, asked.tight_case)
    )
    if asked.limits_cpu:
        limit_cpu(asked.time_s)
    begin_s = process_time()
    try:
        with sizes:
            result = solve(problem, asked.method, stop=asked.stop(), seed=asked.seed, params=dict(asked.params))
        return _Solved(result, process_time() - begin_s)
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

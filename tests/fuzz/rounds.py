"""Rounds of the fuzzer: a problem by its number, and what is asked of it by which methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from placekit.io.files.problem_json import write_problem
from placekit.model.problem import Problem
from placekit.solvers.training_plan.solve import PLAN_METHODS
from placekit.training.piper_json import write_piper

from .apart import Died, limit_cpu, messages
from .chains import METHODS as CHAIN_METHODS
from .chains import best_cut, check_chain, random_chain_problem
from .checks import Asked, Finding, Rivals, Told, check, check_verified
from .minimise import minimise
from .optimum import enumerated_optimum
from .plans import check_plan, optimum_of_plans, random_plan_problem
from .problems import random_problem

EXACT = ("auto", "enumerate", "bound", "chain", "dp", "ilp", "cpsat", "mincut")
"""Methods that prove something: they see every problem."""
SEARCHES: dict[str, dict[str, object]] = {
    "single": {},
    "round-robin": {},
    "random": {"samples": 200},
    "greedy": {},
    "pipedream": {},
    "metis": {},
    "scotch": {},
    "dpl": {},
    "heft": {},
    "m-topo": {},
    "m-etf": {},
    "m-sct": {},
    "local-search": {"patience": 2, "steps": 50},
    "greedy+local-search+cpsat": {"local-search.patience": 2, "local-search.steps": 50},
}
"""Methods that prove nothing, with parameters that end them soon: a few of them see each problem."""
LEARNED = ("hsdag", "gdp", "placeto", "rnn", "doppler", "imitation", "policy-free")
SEARCHES_PER_PROBLEM = 3
LEARNED_EVERY = 200
"""One problem in so many is learned."""
TWICE = 0.05
"""Share of solves that are done again with the same seed."""
LARGER_OPS = (5, 13)
"""Fewest and most ops of a problem that the judge does not enumerate."""
LARGER_S = 2.0
"""Time limit of a larger problem, which may need all of it."""
SHORT_S = (0.0, 0.02, 0.3)
"""Time limits of some solves with small sizes."""
ENUMERATION_S = 300.0
"""CPU seconds for what is not a solve, at most."""
MINIMISE_S = 60.0
"""Seconds to make a finding smaller."""


class Mode(StrEnum):
    """What is done with a problem."""

    SMALL = "small"
    """It is enumerated, and every proof has to meet the optimum."""
    TIGHT = "tight"
    """The same, with sizes of solvers drawn small, and ends anywhere."""
    LARGER = "larger"
    """It is too large to enumerate: results are verified, and compared."""
    CHAINS = "chains"
    """A language model in whole blocks, of which all cuts, orders of devices and teams are enumerated."""
    PLANS = "plans"
    """A training problem, of which all plans are enumerated."""


SHARES = {Mode.SMALL: 0.62, Mode.TIGHT: 0.26, Mode.LARGER: 0.04, Mode.CHAINS: 0.03, Mode.PLANS: 0.05}
"""How often each mode comes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is drawn.

    Parameters
    ----------
    seed
        Seed of all problems.
    time_s
        Time limit of a solve.
    out
        Folder of findings.
    mode, objective, methods
        One mode, one objective and some methods only; None for all.
    ops
        Fewest and most ops of larger problems.
    is_apart
        True in a process of its own, whose CPU time may be limited.
    """

    seed: int
    time_s: float
    out: Path
    mode: Mode | None = None
    objective: str | None = None
    methods: tuple[str, ...] | None = None
    ops: tuple[int, int] = LARGER_OPS
    is_apart: bool = True


class Solve(NamedTuple):
    """One solve of a problem: the method's name, and what finds what is wrong."""

    method: str
    asked: Asked
    problem: Any
    check: Callable[[], Finding | None]
    again: Callable[[Problem], Finding | None] | None = None
    """Checks a smaller problem; None for problems that are small enough."""


Send = Callable[[tuple[Any, ...]], None]


def rounds(send: Send, options: Options, first: int, skipped: int) -> None:
    """Solve problems from number `first` on, but for the first methods of it, until this process is ended.

    Sends ``("begin", case, at, method)``, ``("end",)``, ``("found", text)``, ``("small", text)`` and
    ``("told", counter, cpu_s)``.
    """
    case, before_s = first, 0.0
    while True:
        if options.is_apart:
            limit_cpu(ENUMERATION_S)
        told: Told = Counter()
        for at, each in enumerate(solves(options, case, told)):
            if at < skipped:
                continue
            send(("begin", case, at, each.method))
            found = each.check()
            send(("end",))
            if found is not None:
                send(("found", f"{found.what}: {found.detail}"))
                _write(each, found, options.out / f"{each.method.replace('+', '_')}-{options.seed}-{case}.json", send)
            if options.is_apart:
                limit_cpu(ENUMERATION_S)
        send(("told", told, process_time() - before_s))
        case, skipped, before_s = case + 1, 0, process_time()


def solves(options: Options, case: int, told: Told | None = None) -> Iterator[Solve]:
    """Yield every solve of problem number `case`."""
    rng = np.random.default_rng([options.seed, case, 1])
    mode = options.mode or Mode(rng.choice(list(SHARES), p=list(SHARES.values())))
    if mode is Mode.PLANS:
        yield from _plan_solves(options, case)
        return
    if mode is Mode.CHAINS:
        yield from _chain_solves(options, case)
        return
    sizes = options.ops if mode is Mode.LARGER else None
    problem = random_problem(options.seed, case, options.objective, sizes)
    optimum_s = enumerated_optimum(problem) if sizes is None else None
    rivals = Rivals()
    time_s = min(options.time_s, LARGER_S) if mode is Mode.LARGER else options.time_s
    if mode is Mode.TIGHT and rng.random() < 0.2:
        time_s = float(rng.choice(SHORT_S))
    for method, params in _methods(rng, case, options.methods):
        asked = Asked(
            method, params, options.seed, time_s, case if mode is Mode.TIGHT else None,
            may_be_slow=method in LEARNED, is_asked_twice=rng.random() < TWICE, limits_cpu=options.is_apart,
        )  # fmt: skip
        if mode is Mode.LARGER:
            first = partial(check_verified, problem, asked, told, rivals)
            yield Solve(method, asked, problem, first, partial(check_verified, asked=asked))
        else:
            yield Solve(
                method, asked, problem, partial(check, problem, optimum_s, asked), partial(_enumerated, asked=asked)
            )


def _enumerated(problem: Problem, asked: Asked) -> Finding | None:
    return check(problem, enumerated_optimum(problem), asked)


def _plan_solves(options: Options, case: int) -> Iterator[Solve]:
    problem = random_plan_problem(options.seed, case)
    optimum_s = optimum_of_plans(problem)
    for method in PLAN_METHODS:
        asked = Asked(method, {}, options.seed, options.time_s, limits_cpu=options.is_apart)
        yield Solve(f"plan-{method}", asked, problem, partial(check_plan, problem, optimum_s, asked))


def _chain_solves(options: Options, case: int) -> Iterator[Solve]:
    problem = random_chain_problem(options.seed, case)
    optimum_s = best_cut(problem)
    for method in CHAIN_METHODS:
        asked = Asked(method, {}, options.seed, options.time_s, limits_cpu=options.is_apart)
        yield Solve(f"chain-{method}", asked, problem, partial(check_chain, problem, optimum_s, asked))


def _methods(
    rng: np.random.Generator, case: int, only: tuple[str, ...] | None
) -> Iterator[tuple[str, dict[str, object]]]:
    some = rng.choice(sorted(SEARCHES), SEARCHES_PER_PROBLEM, replace=False).tolist()
    learned = [str(rng.choice(LEARNED))] if case % LEARNED_EVERY == LEARNED_EVERY - 1 else []
    for method in only or (*EXACT, *some, *learned):
        yield method, SEARCHES.get(method, {})


def _write(each: Solve, found: Finding, path: Path, send: Send) -> None:
    """Write a finding, and write it again if it can be made smaller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(each.problem, Problem):
        write_piper(each.problem, path)
        return
    write_problem(each.problem, path)
    ends_s = perf_counter() + MINIMISE_S

    def still_fails(smaller: Problem) -> bool:
        again = None if each.again is None else each.again(smaller)
        return again is not None and again.what == found.what

    small = minimise(each.problem, still_fails, lambda: perf_counter() < ends_s)
    write_problem(small, path)
    send(("small", f"{path}: {small!r}"))


def minimise_hang(options: Options, case: int, at: int, path: Path) -> str:
    """Write the problem of a solve that did not end, made smaller; return what was written."""
    each = next(solve for number, solve in enumerate(solves(options, case)) if number == at)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(each.problem, Problem):
        write_piper(each.problem, path)
        return str(path)
    write_problem(each.problem, path)
    ends_s = perf_counter() + 2 * MINIMISE_S
    asked = replace(each.asked, time_s=min(each.asked.time_s, 1.0), is_asked_twice=False)

    def still_hangs(smaller: Problem) -> bool:
        try:
            list(messages(_alone, smaller, asked))
        except Died:
            return True
        return False

    small = minimise(each.problem, still_hangs, lambda: perf_counter() < ends_s)
    write_problem(small, path)
    return f"{path}: {small!r}"


def _alone(_: Send, problem: Problem, asked: Asked) -> None:
    check_verified(problem, asked)

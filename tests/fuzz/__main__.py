"""``python -m tests.fuzz --minutes 10 --seed 0``: solve random problems by every method, and check.

Every finding is made smaller and written as a problem file into the folder; the exit status is 1 if there is any. With
``--ops 5:60`` problems are too large to enumerate: results are checked by `placekit.verify` and against each other, and
it is counted which bounds could be checked, and which have to be trusted. With ``--tight`` the sizes above which
solvers do less are drawn small, so that small problems are treated like large ones.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

import numpy as np

from placekit.io.problem_json import write_problem
from placekit.problem import Problem

from .checks import Asked, Finding, Rivals, Told, check, check_verified
from .minimise import minimise
from .optimum import enumerated_optimum
from .problems import OBJECTIVE_NAMES, random_problem

EXACT = ("auto", "enumerate", "bound", "dp", "ilp", "cpsat", "mincut")
"""Methods that prove something: they see every problem."""
SEARCHES: dict[str, dict[str, object]] = {
    "single": {},
    "round-robin": {},
    "random": {},
    "greedy": {},
    "pipedream": {},
    "metis": {},
    "dpl": {},
    "heft": {},
    "cpop": {},
    "peft": {},
    "critical-path": {},
    "m-topo": {},
    "m-etf": {},
    "m-sct": {},
    "local-search": {"patience": 2, "steps": 50},
    "lns": {"patience": 2},
    "greedy+local-search+lns": {"local-search.patience": 2, "local-search.steps": 50, "lns.patience": 2},
}
"""Methods that prove nothing, with parameters that end them soon: a few of them see each problem."""
LEARNED = ("hsdag", "gdp", "placeto", "rnn", "doppler", "imitation", "policy-free")
SEARCHES_PER_PROBLEM = 3
LEARNED_EVERY = 200
"""One problem in so many is learned."""
SOLVE_S = 20.0
"""Time limit of a solve."""
MINIMISE_S = 60.0
"""Seconds to make a finding smaller."""


def main(arguments: list[str] | None = None) -> int:
    """Run until the minutes are over."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, about (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all problems (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first problem (default: 0)")
    parser.add_argument("--cases", type=int, default=None, help="number of problems at most")
    parser.add_argument("--objective", choices=OBJECTIVE_NAMES, default=None, help="one objective only")
    parser.add_argument("--methods", default=None, help="these methods only, with commas between")
    parser.add_argument("--ops", type=_sizes, default=None, metavar="MIN:MAX", help="larger problems, not enumerated")
    parser.add_argument("--tight", action="store_true", help="draw the sizes small above which solvers do less")
    parser.add_argument("--time-limit", type=float, default=SOLVE_S, help=f"seconds of a solve (default: {SOLVE_S:g})")
    parser.add_argument("-o", "--out", type=Path, default=Path("fuzz"), help="folder of findings (default: fuzz)")
    options = parser.parse_args(arguments)
    ends_s = perf_counter() + 60 * options.minutes
    solves: Counter[str] = Counter()
    told: Told = Counter()
    num_findings, case = 0, options.first
    last = None if options.cases is None else options.first + options.cases
    while perf_counter() < ends_s and (last is None or case < last):
        problem = random_problem(options.seed, case, options.objective, options.ops)
        optimum_s = enumerated_optimum(problem) if options.ops is None else None
        rivals = Rivals()
        for method, params in _methods(options.seed, case, options.methods):
            asked = Asked(method, params, options.seed, options.time_limit, case if options.tight else None)
            found = check_verified(problem, asked, told, rivals) if options.ops else check(problem, optimum_s, asked)
            solves[method] += 1
            if found is not None:
                num_findings += 1
                print(f"seed {options.seed}, problem {case}, {method}: {found.what}: {found.detail}", flush=True)
                small = _smaller(problem, asked, found, is_enumerated=options.ops is None)
                path = options.out / f"{method.replace('+', '_')}-{options.seed}-{case}.json"
                options.out.mkdir(parents=True, exist_ok=True)
                write_problem(small, path)
                print(f"  {path}: {small!r}", flush=True)
            if perf_counter() >= ends_s:
                break
        case += 1
    print(
        f"seed {options.seed}, problems {options.first} to {case - 1}: {sum(solves.values())} solves, "
        f"{num_findings} findings"
    )
    print(", ".join(f"{method} {count}" for method, count in sorted(solves.items())))
    for (objective, name, outcome), count in sorted(told.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{objective:<16} {count:>5}  {outcome:<8} {name}")
    return 1 if num_findings else 0


def _sizes(text: str) -> tuple[int, int]:
    fewest, most = map(int, text.split(":"))
    return fewest, most


def _methods(seed: int, case: int, only: str | None) -> list[tuple[str, dict[str, object]]]:
    if only is not None:
        return [(method, SEARCHES.get(method, {})) for method in only.split(",")]
    rng = np.random.default_rng([seed, case, 1])
    some = rng.choice(sorted(SEARCHES), SEARCHES_PER_PROBLEM, replace=False).tolist()
    found = [(method, dict[str, object]()) for method in EXACT] + [(method, SEARCHES[method]) for method in some]
    if case % LEARNED_EVERY == LEARNED_EVERY - 1:
        found.append((str(rng.choice(LEARNED)), {}))
    return found


def _smaller(problem: Problem, asked: Asked, found: Finding, *, is_enumerated: bool) -> Problem:
    ends_s = perf_counter() + MINIMISE_S

    def still_fails(smaller: Problem) -> bool:
        again = check(smaller, enumerated_optimum(smaller), asked) if is_enumerated else check_verified(smaller, asked)
        return again is not None and again.what == found.what

    return minimise(problem, still_fails, lambda: perf_counter() < ends_s)


if __name__ == "__main__":
    sys.exit(main())

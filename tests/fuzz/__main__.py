"""``python -m tests.fuzz --solves 100000 --seed 0``: solve random problems by every method, and check every claim.

A problem is small and enumerated, small and treated like a large one, larger and verified, a language model in blocks,
or one of training plans; ``--mode`` takes one of these only. Findings are made smaller and written as problem files;
the exit status is 1 if there is any. All solves run in a process of their own: one that does not end within its limit
is a finding, too.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from .apart import Died, messages
from .checks import Told
from .problems import OBJECTIVE_NAMES
from .rounds import LARGER_OPS, Mode, Options, minimise_hang, rounds

SOLVE_S = 10.0
"""Time limit of a solve."""
TELL_EVERY = 1000
"""Solves between two lines of progress."""


class _Tally:
    """What was done so far."""

    def __init__(self, first: int) -> None:
        self.solves: Counter[str] = Counter()
        self.told: Told = Counter()
        self.num_findings, self.cpu_s = 0, 0.0
        self.first = self.case = first
        self.at, self.method = 0, ""


def main(arguments: list[str] | None = None) -> int:
    """Run until the minutes, problems or solves are over."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="how long, about (default: no limit)")
    parser.add_argument("--solves", type=int, default=None, help="number of solves (default: no limit)")
    parser.add_argument("--cases", type=int, default=None, help="number of problems (default: no limit)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all problems (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first problem (default: 0)")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=None, help="one mode only")
    parser.add_argument("--objective", choices=OBJECTIVE_NAMES, default=None, help="one objective only")
    parser.add_argument("--methods", type=_names, default=None, help="these methods only, with commas between")
    parser.add_argument("--ops", type=_sizes, default=LARGER_OPS, metavar="MIN:MAX", help="ops of larger problems")
    parser.add_argument("--time-limit", type=float, default=SOLVE_S, help=f"seconds of a solve (default: {SOLVE_S:g})")
    parser.add_argument("-o", "--out", type=Path, default=Path("fuzz"), help="folder of findings (default: fuzz)")
    given = parser.parse_args(arguments)
    options = Options(
        given.seed, given.time_limit, given.out, given.mode, given.objective, given.methods, tuple(given.ops)
    )
    tally = _Tally(given.first)
    last = None if given.cases is None else given.first + given.cases
    ends_s = None if given.minutes is None else perf_counter() + 60 * given.minutes

    def is_over() -> bool:
        return (
            (last is not None and tally.case >= last)
            or (given.solves is not None and sum(tally.solves.values()) >= given.solves)
            or (ends_s is not None and perf_counter() >= ends_s)
        )

    while not is_over():
        try:
            for message in messages(rounds, options, tally.case, tally.at):
                _count(tally, message, options)
                if is_over():
                    break
        except Died as died:
            _found(tally, str(died), options)
            path = options.out / f"{tally.method.replace('+', '_')}-{options.seed}-{tally.case}.json"
            print(f"  {minimise_hang(options, tally.case, tally.at, path)}", flush=True)
            tally.solves[tally.method] += 1
            tally.at += 1
    _summarise(tally, given.first, options.seed)
    return 1 if tally.num_findings else 0


def _count(tally: _Tally, message: tuple[Any, ...], options: Options) -> None:
    kind, *values = message
    if kind == "begin":
        tally.case, tally.at, tally.method = values
    elif kind == "end":
        tally.solves[tally.method] += 1
        done = sum(tally.solves.values())
        if done % TELL_EVERY == 0:
            print(
                f"{done} solves of {tally.case - tally.first + 1} problems, {tally.num_findings} findings", flush=True
            )
    elif kind == "found":
        _found(tally, values[0], options)
    elif kind == "small":
        print(f"  {values[0]}", flush=True)
    else:  # the end of a problem
        tally.told += values[0]
        tally.cpu_s += values[1]
        tally.case, tally.at = tally.case + 1, 0


def _found(tally: _Tally, text: str, options: Options) -> None:
    tally.num_findings += 1
    print(f"seed {options.seed}, problem {tally.case}, {tally.method}: {text}", flush=True)


def _summarise(tally: _Tally, first: int, seed: int) -> None:
    for (objective, name, outcome), count in sorted(tally.told.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{objective:<16} {count:>5}  {outcome:<8} {name}")
    print(", ".join(f"{method} {count}" for method, count in sorted(tally.solves.items())))
    done = f"{sum(tally.solves.values())} solves of {tally.case - first} problems in {tally.cpu_s:.0f} s of CPU"
    print(f"{done}, {tally.num_findings} findings, seed {seed}")


def _sizes(text: str) -> tuple[int, int]:
    fewest, most = map(int, text.split(":"))
    return fewest, most


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.mutants ROOM``: change one line of a room at a time, and see whether its tests notice.

Drawn are all removed ``raise`` statements, and other mutants by a seed. Mutants that no test notices are printed, but
for those that ``equivalent.toml`` lists with a reason. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"  # what is compiled cannot be changed, and what is changed would be compiled
from .drawing import Mutant, draw
from .trials import is_noticed, warm_up

TESTS = {
    "placekit/verification": ["tests/verification", "tests/cli/test_forged_results.py"],
    "placekit/objectives": ["tests/objectives", "tests/test_evaluate.py", "tests/verification/test_judge.py"],
}
"""Tests of a room, the quick ones first; of any other room those in the folder of ``tests/`` with its name."""
SECONDS_PER_MUTANT = 60
"""CPU time of a trial at most."""


def main(arguments: list[str] | None = None) -> int:
    """Draw mutants, run the tests of each, and print those that survive."""
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("room", type=Path, help="folder or file that is changed, like placekit/verification")
    parser.add_argument("--mutants", type=int, default=100, help="mutants beside the removed raises (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument("--limit", type=float, default=SECONDS_PER_MUTANT, help="CPU seconds of each (default: 60)")
    parser.add_argument("--tests", nargs="+", default=None, help="tests to run (default: those of the room)")
    given = parser.parse_args(arguments)
    os.nice(19)
    paths = sorted(given.room.rglob("*.py")) if given.room.is_dir() else [given.room]
    tests = given.tests or tests_of(given.room)
    seconds = warm_up(tests, 20 * given.limit)
    if seconds is None:
        print(f"mutants: the tests fail without any change: {' '.join(tests)}", file=sys.stderr)
        return 2
    limit_s = max(given.limit, 3 * seconds)
    listed, met, tally = equivalents(), set[tuple[str, str, str]](), Counter[str]()
    for mutant in draw(paths, given.mutants, given.seed):
        key = key_of(mutant)
        met.add(key)
        outcome = "equivalent" if key in listed else "killed"
        if outcome == "killed" and not is_noticed(mutant.path, mutant.source, tests, limit_s):
            outcome = "survived"
            print(f"survived: {mutant}", flush=True)
        tally["drawn"] += 1
        tally[outcome] += 1
        tally["rules"] += mutant.is_rule
    print(
        f"{tally['drawn']} drawn ({tally['rules']} of them removed rules), {tally['killed']} killed, "
        f"{tally['equivalent']} equivalent, {tally['survived']} survive"
    )
    return int(tally["survived"] > 0)


def tests_of(room: Path) -> list[str]:
    """Return the tests of the room that holds a file or folder."""
    for folder in (room, *room.parents):
        if str(folder) in TESTS:
            return TESTS[str(folder)]
        if folder.parts[1:] and (mirror := Path("tests", *folder.parts[folder.parts[0] == "placekit" :])).is_dir():
            return [str(mirror)]
    return [str(Path("tests", room.parts[0]))]


def key_of(mutant: Mutant) -> tuple[str, str, str]:
    """Return what names a mutant in ``equivalent.toml``: its file, line and changed line."""
    return str(mutant.path), mutant.before, mutant.after


def equivalents() -> set[tuple[str, str, str]]:
    """Return the mutants that are known to change nothing that a test could see."""
    listed = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())
    return {
        (file, each["line"], mutant)
        for file, entries in listed.items()
        for each in entries
        for mutant in each["mutants"]
        if each["reason"]
    }


if __name__ == "__main__":
    sys.exit(main())

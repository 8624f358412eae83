"""``python -m tests.mutants ROOM ...``: change one line of a room at a time, and see whether its tests notice.

Drawn are all removed ``raise`` statements, and other mutants by a seed. Mutants that no test notices are printed, but
for those that ``equivalent.toml`` lists with a reason. The exit status is 1 if there is any. ``--again OUTPUT`` tries
the survivors of a run again.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from .drawing import Mutant, draw, draw_again
from .touched import is_run, tests_of_line
from .trials import is_noticed, warm_up

TESTS = {
    "placekit/verification": [
        *sorted(map(str, Path("tests/verification").glob("test_[!c]*.py"))),
        "tests/cli/test_forged_results.py",
    ],
    "placekit/objectives": [
        "tests/objectives",
        "tests/test_evaluate.py",
        "tests/test_teams.py",
        "tests/verification/test_judge.py",
        "tests/verification/test_random_problems.py",
    ],
    "placekit/cost_models/sheets": [
        f"tests/cost_models/test_{name}.py"
        for name in ("analytic", "cards", "described", "machines", "rates", "sheet_memory")
    ],
    "placekit/exports": [
        *(
            f"tests/exports/test_{name}.py"
            for name in ("refusals", "netron", "model_explorer", "onnxruntime", "names_of_programs", "device_map")
        ),
        "tests/runtime/test_hetero_sidecar.py",
        "tests/cli/test_export.py",
    ],
    "placekit/language": [
        f"tests/language/test_{name}.py" for name in ("counts", "decoder", "task", "context", "precision", "model")
    ],
    "placekit/language/runtimes": [
        *(
            f"tests/language/test_{name}.py"
            for name in ("runtime_records", "rpc", "machines", "runtime_memory", "every_runtime")
        ),
        *(f"tests/exports/test_{name}.py" for name in ("arguments", "llama_cpp_layers", "names_of_programs")),
        *(f"tests/language/test_{name}.py" for name in ("module_lines", "stage_lines", "read_line")),
    ],
}
"""Tests of a room, but for what takes long; of any other room those in the folder of ``tests/`` with its name."""
SECONDS_PER_MUTANT = 20
"""CPU time of a trial at most, or twice what the tests take without a change if that is more."""


def main(arguments: list[str] | None = None) -> int:
    """Draw mutants, run the tests of each, and print those that survive."""
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("rooms", type=Path, nargs="+", help="folders or files to change, like placekit/verification")
    parser.add_argument("--mutants", type=int, default=100, help="mutants beside the removed raises (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the draw to begin with: a run that was stopped goes on"
    )
    parser.add_argument("--again", type=Path, help="output of a run: try only the mutants that survived it")
    parser.add_argument("--limit", type=float, default=SECONDS_PER_MUTANT, help="CPU seconds of each (default: 20)")
    parser.add_argument("--tests", nargs="+", type=Path, default=None, help="tests to run (default: those of the room)")
    given = parser.parse_args(arguments)
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # what is compiled cannot be changed, and what is changed would be compiled
    os.nice(5)
    paths = sorted(path for room in given.rooms for path in (room.rglob("*.py") if room.is_dir() else [room]))
    files = given.tests or list(dict.fromkeys(file for room in given.rooms for file in tests_of(room)))
    seconds, lines = warm_up(paths, files, 20 * given.limit)
    limit_s = max(given.limit, 2 * sum(seconds.values()))
    listed, tally = equivalents(), Counter[str]()
    quick = defaultdict[Path, list[str]](list)  # tests that noticed changes of each source
    mutants = draw(paths, given.mutants, given.seed) if given.again is None else survivors_of(given.again, paths)
    for number, mutant in enumerate(mutants):
        if number < given.first:
            continue
        outcome = "equivalent" if (str(mutant.path), mutant.before, mutant.after) in listed else "killed"
        ran = tests_of_line(mutant.path, mutant.line, lines)
        files = [file for file in seconds if str(file) in ran] or list(seconds)
        if outcome == "killed" and not (
            is_run(mutant.path, mutant.line, lines)
            and is_noticed(mutant.path, mutant.source, files, quick[mutant.path], limit_s)
        ):
            outcome = "survived"
            print(f"survived: {mutant}", flush=True)
        tally["drawn"] += 1
        tally[outcome] += 1
        tally["rules"] += mutant.is_rule
        if tally["drawn"] % 10 == 0:
            print(f"go on with --first {number + 1}", file=sys.stderr)
    print(
        f"{tally['drawn']} drawn ({tally['rules']} of them removed rules), {tally['killed']} killed, "
        f"{tally['equivalent']} equivalent, {tally['survived']} survive"
    )
    return int(tally["survived"] > 0)


def survivors_of(output: Path, paths: list[Path]) -> Iterator[Mutant]:
    """Yield the mutants that survived a run, by what it printed, and print those that are no more."""
    printed = re.findall(r"^survived: (.+?):\d+: (.+)$", output.read_text(), re.MULTILINE)
    left = set(printed)
    for mutant in draw_again(paths, left.copy()):
        left.discard((str(mutant.path), mutant.change))
        yield mutant
    for file, change in sorted(left):
        print(f"no such line now: {file}: {change}")


def tests_of(room: Path) -> list[Path]:
    """Return the files of tests of the room that holds a file or folder."""
    for folder in (room, *room.parents):
        mirror = Path("tests", *folder.parts[folder.parts[0] == "placekit" :])
        found = [Path(each) for each in TESTS.get(str(folder), ())] or [mirror]
        if found[0].exists() and folder.parts[1:]:
            break
    return [file for each in found for file in ([each] if each.is_file() else sorted(each.rglob("test_*.py")))]


def equivalents() -> set[tuple[str, str, str]]:
    """Return mutants that no test could see, each by its file, its line and the changed line."""
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

"""Mutation testing finds what tests do not notice, and its list of equivalents is of lines that there are."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

from mutants import __main__ as mutants
from mutants import touched

ROOT = Path(__file__).resolve().parents[2]

ROOM = """
def check(number):
    if number > 9:
        raise ValueError(number)

def check_again(number):
    if number > 9:
        raise ValueError(number)
"""
TEST = """
import pytest
from placekit.tiny.rules import check, check_again

def test_large_numbers_are_refused():
    check(9)
    check_again(9)
    with pytest.raises(ValueError):
        check(10)
"""


def test_a_rule_without_a_test_survives(tmp_path: Path) -> None:
    """Of two removed rules one is noticed, and the other is printed with its place; the status says so.

    What was printed is tried again, wherever its line is now, and nothing else is.
    """
    files = {"placekit/tiny/rules.py": ROOM, "placekit/__init__.py": "", "tests/tiny/test_rules.py": TEST}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = [sys.executable, "-m", "tests.mutants", "placekit/tiny", "--mutants", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "survived: placekit/tiny/rules.py:8: 'raise ValueError(number)' -> 'pass'",
        "2 drawn (2 of them removed rules), 1 killed, 0 equivalent, 1 survive",
    ]
    (tmp_path / "printed.txt").write_text(done.stdout + "survived: placekit/tiny/rules.py:3: 'gone' -> 'pass'\n")
    (tmp_path / "placekit/tiny/rules.py").write_text("# moved\n" + ROOM)
    (tmp_path / "tests/tiny/test_rules.py").write_text(
        TEST + "    with pytest.raises(ValueError):\n        check_again(10)\n"
    )
    command[-2:] = ["--again", "printed.txt"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "no such line now: placekit/tiny/rules.py: 'gone' -> 'pass'",
        "2 drawn (2 of them removed rules), 2 killed, 0 equivalent, 0 survive",
    ]
    (tmp_path / "tests/tiny/test_rules.py").write_text(TEST + "    assert False\n")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = "mutants: a test fails without any change: tests/tiny/test_rules.py::test_large_numbers_are_refused\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_tests_that_run_a_function_try_its_mutants(tmp_path: Path) -> None:
    """The innermost one; all tests, which is none in particular, for what runs at import or is in no function."""
    path = tmp_path / "rules.py"
    path.write_text(ROOM + "\ndef outer():\n    def inner():\n        return 1\n    return inner\n\nLEAST = outer()\n")
    lines = {str(path): {3: ["a"], 4: ["b"], 7: ["c"], 12: ["d"], 13: ["", "d"], 16: [""]}}
    found = [touched.tests_of_line(path, line, lines) for line in (2, 3, 4, 8, 12, 13, 16)]
    assert found == [set(), {"a", "b"}, {"a", "b"}, {"c"}, {"d"}, set(), set()]


def test_lines_that_never_run_are_known(tmp_path: Path) -> None:
    """Statements of several lines run with any of them; the head of a loop is its own, and so is a decorator."""
    path = tmp_path / "rules.py"
    path.write_text(
        "@mark\ndef f(\n    a\n):\n    for b in a:\n        g(\n            b\n        )\n    else:\n        h()\n"
    )
    lines = {str(path): {1: [""], 5: ["a"], 7: ["a"]}}
    assert [line for line in range(1, 11) if touched.is_run(path, line, lines)] == [1, 5, 6, 7, 8, 9]
    lines[str(path)][2] = [""]
    assert [line for line in range(1, 11) if not touched.is_run(path, line, lines)] == [10]


def test_rooms_have_the_tests_that_are_named() -> None:
    """A file that was renamed would be looked for in vain; other rooms have the folder of their name."""
    named = [Path(file) for files in mutants.TESTS.values() for file in files]
    assert [str(file) for file in named if not (ROOT / file).exists()] == []
    assert [room for room in mutants.TESTS if not (ROOT / room).exists()] == []
    assert mutants.tests_of(Path("placekit/solve/lifting/lift.py")) == sorted(Path("tests/solve").rglob("test_*.py"))


def test_equivalents_are_of_lines_that_there_are() -> None:
    """An entry whose line was changed, or is in its file twice, may hide what a test should notice."""
    listed = tomllib.loads(Path(mutants.__file__).with_name("equivalent.toml").read_text())
    assert len(mutants.equivalents()) == sum(len(each["mutants"]) for entries in listed.values() for each in entries)
    for file, entries in listed.items():
        lines = [" ".join(line.split()) for line in (ROOT / file).read_text().splitlines()]
        once = {line for line in lines if lines.count(line) == 1}
        removed = {pair for pair in pairwise(lines) if pair[0].startswith("@")}  # of a decorator
        pairs = [(each["line"], mutant) for each in entries for mutant in each["mutants"]]
        assert [pair for pair in pairs if pair[0] not in once and pair not in removed] == [], file

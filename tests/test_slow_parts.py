"""Parts of the slow suite: together they are all tests, and none is in two."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import slow
from slow import PARTS, ROOT, part_of


def test_parts_cover_all_test_files_once() -> None:
    """Each file has a part, each path of a part has files of its own, and no path is in two parts."""
    files = slow.all_files()
    assert len(files) > 200
    assert [file for file in files if part_of(file) is None] == []
    paths = [path for part in PARTS.values() for path in part["paths"]]
    assert len(set(paths)) == len(paths)
    assert [path for path in paths if not any(file == path or file.startswith(f"{path}/") for file in files)] == []
    assert {part_of(file) for file in files} == set(PARTS)


def test_pytest_collects_from_no_other_files() -> None:
    """What the configuration names is what the parts are made of: the tests, and the package with its doctests."""
    named = (ROOT / "pyproject.toml").read_text()
    assert 'testpaths = ["tests", "placekit"]' in named
    helpers = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    written = [path.name for path in helpers if "    >>> " in path.read_text()]
    assert written == ["recurrent_lattices.py"], "doctests of helpers are run by `make test` only"


@pytest.fixture
def one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the suite be two files in two parts, of which the second fails; return its folder."""
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\n")
    (tmp_path / "tests" / "test_a.py").write_text("def test_a() -> None: ...\n")
    (tmp_path / "tests" / "deep" / "test_b.py").write_text("def test_b() -> None: raise OSError\n")
    (tmp_path / "placekit").mkdir()
    parts = {
        "core": {"paths": ["tests", "placekit"], "processes": 1},
        "deep": {"paths": ["tests/deep"], "processes": 1},
    }
    for name, value in {"ROOT": tmp_path, "PARTS": parts, "GREEN": tmp_path / "green.txt"}.items():
        monkeypatch.setattr(slow, name, value)
    return tmp_path


def test_a_part_that_ends_well_is_noted(one_part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line in this state is replaced; one that fails keeps its line, and the status says that it failed."""
    kept = ["core        busy   2020-01-01  aaaaaaa", "deep        quiet  2020-01-01  bbbbbbb"]
    (one_part / "green.txt").write_text("\n".join([kept[0], "core        quiet  2020-01-01  aaaaaaa", kept[1]]) + "\n")
    monkeypatch.setattr(sys, "argv", ["slow"])
    monkeypatch.setattr(slow, "QUIET", 1000.0)
    assert slow.main() == 1
    busy, quiet, deep = (one_part / "green.txt").read_text().splitlines()
    assert [busy, deep] == kept
    assert "2020" not in quiet
    assert re.match(r"core +quiet .* min on \d+ cores, CPU min +[\d.]+, of others +[\d.]+$", quiet)
    monkeypatch.setattr(sys, "argv", ["slow", "core"])
    assert slow.main() == 0


def test_other_processes_make_a_machine_busy(one_part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the CPU of all processes without that of the part: one core more for a minute, then none."""
    for others_s, state in ((60.0, "busy"), (0.0, "quiet")):
        monkeypatch.setattr(slow, "perf_counter", iter((0.0, 60.0)).__next__)
        monkeypatch.setattr(slow, "_cpu_of_all_s", iter((0.0, others_s + 30.0)).__next__)
        monkeypatch.setattr(slow, "_cpu_of_children_s", iter((0.0, 30.0)).__next__)
        assert slow.run_part("core") == 0
        assert f"core        {state:<7}" in (one_part / "green.txt").read_text()


def test_notes_of_green_parts_are_no_difference_from_the_commit(one_part: Path) -> None:
    """The parts are run one after the other, and each is noted; any other file that differs gives a plus sign."""
    (one_part / "green.txt").write_text("")
    (one_part / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init"], ["add", "."], [*author, "commit", "-m", "All"]):
        subprocess.run(["git", *arguments], cwd=one_part, check=True, capture_output=True)
    assert slow.run_part("core") == 0
    assert slow.run_part("core") == 0
    (one_part / "tests" / "test_a.py").write_text("def test_a() -> None: pass\n")
    assert "core" in (one_part / "green.txt").read_text()
    assert "+" not in (one_part / "green.txt").read_text()
    assert slow.run_part("core") == 0
    assert "+" in (one_part / "green.txt").read_text()


def test_an_unknown_part_is_one_line() -> None:
    """The parts there are stand in it."""
    command = [sys.executable, "-m", "tests.slow", "lerned"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no part 'lerned'; parts are core, fuzz" in done.stderr


def test_lines_of_green_parts_name_parts() -> None:
    """A part that was renamed leaves no line behind."""
    lines = slow.GREEN.read_text().splitlines() if slow.GREEN.is_file() else []
    assert [line for line in lines if line.split()[0] not in PARTS] == []


def test_ci_runs_every_part() -> None:
    """Once a week, a job for each."""
    told = (ROOT / ".github" / "workflows" / "slow.yml").read_text()
    found = re.search(r"part: \[(.+?)\]", told, re.DOTALL)
    assert found is not None
    assert re.findall(r"\w+", found[1]) == list(PARTS)
    assert "make test-slow PART=${{ matrix.part }}" in told

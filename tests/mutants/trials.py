"""Trials of mutants: each in a process of its own, forked from one in which all packages are imported.

The mutated source goes to the import system of that process, and never to a file. Kernels are interpreted.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from time import process_time
from types import CodeType

import pytest

from .touched import Lines, module_of, watched

MOST_BYTES = 8 * 2**30
"""Memory of a trial: a mutant may ask for all that there is."""
WALL_PER_CPU = 40
"""Wall seconds of a trial at most, per second of CPU time: a mutant may sleep, and the machine may be busy."""


MOST_QUICK = 12
"""Tests that are run before all others, at most."""


class _Loader(SourceFileLoader):
    """Loader of a source that is in no file."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, _: str) -> CodeType:
        return self.source_to_code(self.source.encode(), self.path)


class _Finder(MetaPathFinder):
    """Finder of one module with another source."""

    def __init__(self, path: Path, source: str) -> None:
        self.name, self.path, self.source = module_of(path), path.resolve(), source

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, str(self.path), self.source)
        inside = [str(self.path.parent)] if self.path.stem == "__init__" else None
        return spec_from_file_location(fullname, self.path, loader=loader, submodule_search_locations=inside)


def is_noticed(path: Path, source: str, files: list[Path], quick: list[str], cpu_s: float) -> bool:
    """Return whether tests fail, or take more than `cpu_s` seconds, with another source of a file.

    The tests in `quick` are run before all `files`. A test that fails becomes the first of them: it is likely to notice
    the next change of that source, too.
    """
    with tempfile.NamedTemporaryFile("r+") as told:

        def trial() -> int:
            sys.meta_path.insert(0, _Finder(path, source))
            for tests in ([quick] if quick else []) + [[str(file)] for file in files]:
                failed = _First()
                if _run(tests, failed):
                    Path(told.name).write_text(failed.name)
                    return 1
            return 0

        status, name = _forked(trial, cpu_s), told.read()
    if name:
        quick[:] = [name, *(each for each in quick if each != name)][:MOST_QUICK]
    return status != 0


class _First:
    """Plugin of pytest that keeps the name of the first test that fails."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.name = self.name or report.nodeid


def warm_up(sources: list[Path], files: list[Path], cpu_s: float) -> tuple[dict[Path, float], Lines]:
    """Run files of tests unchanged, and import what they need.

    Returns the CPU seconds of each, the quick ones first, and the lines of `sources` that it ran. Raises SystemExit if
    a test fails.
    """
    with tempfile.NamedTemporaryFile("r+") as told:

        def trial() -> int:
            seconds: list[float] = []

            def run(file: Path) -> bool:
                began_s, failed = process_time(), _First()
                if _run([str(file)], failed):
                    Path(told.name).write_text(failed.name or str(file))
                    return False
                seconds.append(process_time() - began_s)
                return True

            lines = watched(sources, files, run)
            if lines is None:
                return 1
            names = [
                name for name, each in sys.modules.items() if "site-packages" in str(getattr(each, "__file__", ""))
            ]
            Path(told.name).write_text(json.dumps([seconds, names, [*lines.items()]]))
            return 0

        if _forked(trial, cpu_s) != 0:
            raise SystemExit(f"mutants: a test fails without any change: {told.read()}")
        seconds, names, lines = json.load(told)
    for name in names:
        with suppress(Exception):  # what cannot be imported out of turn, each trial imports by itself
            importlib.import_module(name)
    by_line = {path: {int(line): ran for line, ran in of_path.items()} for path, of_path in lines}
    return dict(sorted(zip(files, seconds, strict=True), key=lambda each: each[1])), by_line


def _run(tests: list[str], *plugins: object) -> int:
    """Run tests up to the first that fails, and return pytest's status."""
    for out in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return int(
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", *tests], plugins)
    )


def _forked(work: Callable[[], int], cpu_s: float) -> int:
    """Return the status of some work in a process with limits, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (round(cpu_s) + 1, round(cpu_s) + 2))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            signal.alarm(round(cpu_s) * WALL_PER_CPU)
            status = work()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):  # what the tests started and left
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)

"""Files of tests that run a function: only they can notice a change of its body, and none that of a line never run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path

import coverage

Lines = dict[str, dict[int, list[str]]]
"""Files of tests that ran each line of each source, by its path; ``""`` for a line that ran while it was imported."""


def module_of(path: Path) -> str:
    """Return the name by which a file of a room is imported: every room is a subpackage of placekit."""
    parts = path.with_suffix("").parts
    parts = parts if parts[0] == "placekit" else ("placekit", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def watched(sources: list[Path], files: list[Path], run: Callable[[Path], bool]) -> Lines | None:
    """Call `run` with each file of tests, and return which lines of the sources it ran; None if one is False."""
    full = {str(path.resolve()): str(path) for path in sources}
    watch = coverage.Coverage(data_file=None, config_file=False, include=list(full))
    watch.start()
    try:
        for path in sources:
            importlib.import_module(module_of(path))
        for file in files:
            watch.switch_context(str(file))
            if not run(file):
                return None
    finally:
        watch.stop()
    return {path: watch.get_data().contexts_by_lineno(name) for name, path in full.items()}


def tests_of_line(path: Path, line: int, lines: Lines) -> set[str]:
    """Return the files of tests that run the function around a line; none if that is not known of all that do."""
    inside: tuple[int, int] | None = None
    for node in ast.walk(ast.parse(path.read_text())):  # inner functions come after outer ones
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or 0):
            inside = node.body[0].lineno, node.end_lineno or 0
    if inside is None:
        return set()
    first, last = inside
    found = {file for at, ran in lines.get(str(path), {}).items() if first <= at <= last for file in ran}
    return set() if "" in found else found


def is_run(path: Path, line: int, lines: Lines) -> bool:
    """Return whether any test, or an import, runs the statement that begins in a line, or that a line belongs to."""
    own: tuple[int, int] | None = None
    for node in ast.walk(ast.parse(path.read_text())):  # inner statements come after outer ones
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body: list[ast.stmt] = getattr(node, "body", [])
            own = (node.lineno, (body[0].lineno - 1 if body else node.end_lineno) or 0)
    ran = lines.get(str(path), {})
    return own is None or not own[0] <= line <= max(own) or any(ran.get(at) for at in range(own[0], max(own) + 1))

"""The readme tells the truth: its Python runs and prints what it says, its commands exist."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main

import placekit

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2], match.start(), match.end()) for match in BLOCK.finditer(README)]


def followed_by_output() -> list[tuple[str, str]]:
    """Return the Python blocks that a ``text`` block follows at once, with its text."""
    return [
        (code, output)
        for (language, code, _, end), (next_language, output, start, _) in pairwise(BLOCKS)
        if (language, next_language) == ("python", "text") and not README[end:start].strip()
    ]


def without_times(text: str) -> str:
    """Return `text` with the wall time of the solve, which differs from run to run, as ``?``."""
    return re.sub(r", \d+\.\d\d s$", ", ? s", text, flags=re.MULTILINE)


def test_what_a_snippet_prints_stands_below_it() -> None:
    """No snippet prints without being run by the test below."""
    printing = [code for language, code, _, _ in BLOCKS if language == "python" and "print(" in code]
    assert printing
    assert printing == [code for code, _ in followed_by_output()]


@pytest.mark.parametrize(("code", "output"), followed_by_output())
def test_snippet_prints_its_output(code: str, output: str) -> None:
    """Every snippet with an output block prints exactly that, up to the wall time."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert without_times(printed.getvalue()) == without_times(output)


def test_first_result_takes_ten_statements_at_most() -> None:
    """The first example stays short."""
    assert len(ast.parse(followed_by_output()[0][0]).body) <= 10


@pytest.mark.parametrize("code", [code for language, code, _, _ in BLOCKS if language == "python"])
def test_every_snippet_uses_public_names(code: str) -> None:
    """Also a snippet that needs a model file compiles, and names only what placekit has."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pk":
            assert hasattr(placekit, node.attr), node.attr


def commands() -> list[str]:
    """Return the ``$ placekit ...`` lines."""
    lines = [line for language, code, _, _ in BLOCKS if language == "console" for line in code.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("command", commands())
def test_command_line_parses(command: str) -> None:
    """Every printed command has a known subcommand, and all of its options exist."""
    from placekit.cli.main import app

    program, name, *arguments = shlex.split(command)
    group: Any = typer.main.get_command(app)
    assert program == "placekit"
    group.get_command(None, name).make_context(name, arguments)


def test_files_that_the_readme_links_exist() -> None:
    """Every relative link leads to a file."""
    root = Path(__file__).parents[1]
    missing = [link for link in re.findall(r"\]\(([^)#:]+)\)", README) if not (root / link).exists()]
    assert not missing

"""The page on asynchronous problems tells the truth: its file reads, its snippet runs and prints what it says."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

import placekit as pk
from placekit.io.files.schemas import json_schema

PAGE = (Path(__file__).parents[1] / "docs" / "makespan.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(FILE,) = (text for language, text in BLOCKS if language == "json")
(SHOP,) = (text for language, text in BLOCKS if language == "python")
(SHOP_OUTPUT,) = (text for language, text in BLOCKS if language == "text")


def test_problem_on_the_page_is_the_one_it_describes(tmp_path: Path) -> None:
    """The file reads; two devices need 6 ms, as the text says, and one would need 8."""
    (tmp_path / "join.problem.json").write_text(FILE)
    problem = pk.read_problem(tmp_path / "join.problem.json")
    assert pk.solve(problem, method="heft").objective == pytest.approx(6e-3)
    assert pk.solve(problem, method="single").objective == pytest.approx(8e-3)


def test_schema_names_what_the_page_uses() -> None:
    """Every key of the file is in the JSON Schema that the page points to."""
    assert set(json.loads(FILE)) <= set(json_schema("problem")["properties"])


def test_snippet_on_shops_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text form of a job shop reads, and the problem file written from it is the same problem."""
    monkeypatch.chdir(tmp_path)
    assert without_seconds(printed_by(SHOP)) == without_seconds(SHOP_OUTPUT)
    written = pk.read_problem("three.problem.json")
    assert pk.solve(written, method="auto", stop=pk.MaxRuntime(120)).objective == 11


def printed_by(snippet: str) -> str:
    """Return what a snippet of the page prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "makespan.md", "exec"), {})
    return printed.getvalue()


def without_seconds(output: str) -> str:
    """Return an output without the time at the end of a line."""
    return re.sub(r", \d+\.\d\d s$", ", ? s", output, flags=re.MULTILINE)

"""The page on training plans tells the truth: its snippet runs and prints what it says, its commands exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from placekit.solvers.training_plan.solve import PLAN_METHODS

PAGE = (Path(__file__).parents[1] / "docs" / "training_plans.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_snippet_prints_what_the_page_says() -> None:
    """The snippet runs as it stands."""
    (snippet,) = (text for language, text in BLOCKS if language == "python")
    (output,) = (text for language, text in BLOCKS if language == "text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "training_plans.md", "exec"), {})
    assert printed.getvalue() == output


@pytest.mark.parametrize("method", PLAN_METHODS)
def test_every_method_is_described(method: str) -> None:
    """The table of methods has them all."""
    assert f"`{method}`" in PAGE

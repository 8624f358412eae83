"""The page on verification tells the truth: its snippet and its commands run, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from placekit.cli.main import main
from placekit.solve.certificates import CERTIFICATES

PAGE = (Path(__file__).parents[1] / "docs" / "verify.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMANDS,) = (text for language, text in BLOCKS if language == "console")
(SNIPPET,) = (text for language, text in BLOCKS if language == "python")
(OUTPUT,) = (text for language, text in BLOCKS if language == "text")


def test_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippet writes the problem that the commands solve and verify; its output is the one shown."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(SNIPPET, "verify.md", "exec"), {})
    assert printed.getvalue() == OUTPUT
    for command in COMMANDS.splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code


def test_every_kind_is_described() -> None:
    """The table names every kind of certificate."""
    for kind in CERTIFICATES:
        assert f"| `{kind}` |" in PAGE

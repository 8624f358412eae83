"""The tutorial tells the truth: its commands and snippets run in order, and print what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from placekit.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NEEDED = ("torch", "transformers")


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason="needs the extras zoo and learned")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two groups of cores need two cores")
def test_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends well, every snippet prints the output under it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "cache"))
    printed = ""
    for language, text in BLOCKS:
        if language == "toml":
            Path("laptop.toml").write_text(text)
        elif language == "console":
            for command in text.splitlines():
                monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
                with pytest.raises(SystemExit) as ended:
                    main()
                assert not ended.value.code, command + capsys.readouterr().err
        elif language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, "tutorial.md", "exec"), {})
            printed = output.getvalue()
        else:
            assert printed == text
    assert {"console", "python", "text"} <= {language for language, _ in BLOCKS}

"""What reaches the terminal: names of strangers are spelled, not obeyed; and what becomes of output that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from placekit.cli.console import check_writable, diagnostics, one_line, show_parts
from placekit.cli.output.render import fact_lines, plain_table
from placekit.model.errors import PlacekitError

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil"
SPELLED = "\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\u202eevil"


def test_names_in_tables_and_lines_are_spelled(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever renderable they are in."""
    table = plain_table("device", "ms")
    table.add_row(EVIL, "1")
    show_parts([table, fact_lines({"model": EVIL}), EVIL])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.count(SPELLED) == 3
    diagnostics().print(EVIL, soft_wrap=True)
    assert capsys.readouterr().err == f"{SPELLED}\n"
    assert one_line(f"a\n{EVIL}") == f"a {SPELLED}"


def test_colours_of_our_own_still_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only texts are spelled, styles are not."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = diagnostics()
    with console.capture() as captured:
        console.print(EVIL, style="red")
    assert captured.get().replace("\x1b[31m", "").replace("\x1b[0m", "") == f"{SPELLED}\n"
    with console.capture() as captured:
        console.print(Text(f"{EVIL}", style="red"))
    assert SPELLED.replace("\\x07", "") in captured.get()  # rich itself drops bells
    assert "\x1b[31m" in captured.get()


@pytest.mark.parametrize(
    "document",
    [
        {"maxFPGAs": 1, EVIL: 1, "nodes": 3},
        {"schema": "placekit/placement/1", EVIL: 1},
        {"schema": f"placekit/{EVIL}"},
        {"schema": "placekit/result/1", "status": EVIL},
    ],
)
def test_keys_in_messages_are_spelled(document: Any, call: Callable[..., Any], tmp_path: Path) -> None:
    """Unknown keys and wrong values are quoted in errors."""
    (tmp_path / "evil.json").write_text(json.dumps(document))
    done = call("show", str(tmp_path / "evil.json"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e" for c in done.stderr.removesuffix("\n"))


@pytest.mark.parametrize("path", ["", "/", "..", "x" * 5000, "a/" * 3000])
def test_outputs_that_can_be_no_file_are_refused_at_once(path: str, terminal: tuple[Path, int]) -> None:
    """Before anything is computed."""
    with pytest.raises(PlacekitError, match="cannot write"):
        check_writable(Path(path))
    check_writable(terminal[0])


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", [pytest.param(["devices"], marks=pytest.mark.slow), ["devices", "--json"], ["zoo"], ["--help"]]
)
def test_a_full_stdout_is_one_line(arguments: list[str]) -> None:
    """No traceback, and no success."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "placekit", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "error: No space left on device\n"


def test_a_closed_pipe_is_no_traceback() -> None:
    """`placekit zoo | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "placekit", "zoo"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_names_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a terminal has an edge to fold at; what is piped is searched and cut by other programs."""
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "model.decoder.layers.17.self_attn.k_proj" * 5
    table = plain_table("op", "ms")
    table.add_row(name, "1")
    show_parts([table, fact_lines({"op": name})])
    assert capsys.readouterr().out.count(name) == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_json", [False, True])
def test_a_file_on_stdout_is_alone_there(
    placekit: Callable[..., subprocess.CompletedProcess[str]], diamond_file: Path, is_json: bool
) -> None:
    """With ``-o -`` the placement can be piped; what is told beside it goes to stderr, and there is no result file."""
    done = placekit("solve", diamond_file, "-m", "ilp", "-o", "-", *(["--json"] if is_json else []))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("placekit/placement/")
    assert '"status": "optimal"' in done.stderr if is_json else "optimal" in done.stderr
    assert not list(diamond_file.parent.glob("*.result.json"))
    if is_json:
        return
    saved = placekit("problem", diamond_file, "-o", "-")
    assert json.loads(saved.stdout)["schema"].startswith("placekit/problem/")

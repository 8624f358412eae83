"""Fuzzing of commands: what is wrong with how they end, and a few broken files of every kind."""

from __future__ import annotations

import collections
import io
import itertools
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz import commands
from fuzz.commands import Ended, main, run_apart, wrong
from fuzz.mutations import MARK, broken

ORDERLY = Ended(2, "", "error: x.json: no\n", 0.1, 1e8)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"code": 0, "errors": "warning: two\nlines\n"}, None),
        ({"code": 1}, "exit code 1"),
        ({"code": -11}, "exit code -11"),
        ({"errors": "no\n"}, "with 0 errors"),
        ({"errors": "error: a\nerror: b\n"}, "with 2 errors"),
        ({"errors": "Traceback (most recent call last):\nKeyError: 1\n"}, "traceback: KeyError: 1"),
        ({"printed": MARK}, "a terminal obeys"),
        ({"took_s": 11.0}, "took 11.0 s"),
        ({"peak_bytes": 5e9}, "took 5.0 GB"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str | None, tmp_path: Path) -> None:
    """Exit codes, messages, what is printed, time and memory."""
    found = wrong(replace(ORDERLY, **change), tmp_path)
    assert (found or "").startswith(says or "") or (says or "") in (found or "")
    assert (found is None) == (says is None)


def test_raw_html_is_found(tmp_path: Path) -> None:
    """In whatever page a command wrote."""
    (tmp_path / "report.html").write_text(f"<b>{MARK}</b>")
    assert wrong(ORDERLY, tmp_path) == "report.html has raw HTML"


def test_work_is_done_apart(tmp_path: Path) -> None:
    """What it prints, its exit code, the signal that ends it, and the end that it is put to."""

    def work() -> None:
        sys.stdout.write(f"out {Path.cwd() == tmp_path}\n")
        sys.stderr.write("err\n")
        sys.exit(3)

    ended = run_apart(work, tmp_path)
    assert (ended.code, ended.printed, ended.errors) == (3, "out True\n", "err\n")
    assert ended.peak_bytes > 1e6
    assert run_apart(lambda: os.kill(os.getpid(), signal.SIGUSR1), tmp_path).code == -signal.SIGUSR1
    hangs = run_apart(lambda: time.sleep(60), tmp_path, 0.05)
    works = run_apart(lambda: collections.deque(itertools.repeat(0), maxlen=0).clear(), tmp_path, 0.5)
    assert (hangs.code, works.code) == (-signal.SIGKILL, -signal.SIGKILL)
    assert hangs.took_s > 20 * 0.05
    assert works.took_s > 0.5
    assert run_apart(lambda: time.sleep(0.3), tmp_path, 0.2).took_s < 0.2
    assert "ZeroDivisionError" in run_apart(lambda: sys.exit(1 // 0), tmp_path).errors


def test_files_are_broken_again_by_their_seed() -> None:
    """And mostly they are other files."""
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    content = {
        "x.pt": empty.getvalue(),
        "x.json": b'{"a": [1, 2, {"b": "c"}]}',
        "x.toml": b'[[device]]\nname = "CPU"\n',
        "x.bin": bytes(50),
    }
    for name, valid in content.items():
        made = [broken(name, valid, random.Random(seed)) for seed in range(50)]
        assert made == [broken(name, valid, random.Random(seed)) for seed in range(50)]
        assert len(set(made)) > 20


def test_a_finding_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the file, the command, and what makes it again."""
    monkeypatch.setattr(commands, "make_files", lambda folder, _: (folder / "suite.toml").write_text("name = 1"))
    monkeypatch.setattr(commands, "_placekit", lambda _: os._exit(0))
    assert main(["--cases", "2", "--kind", "suite"]) == 0
    monkeypatch.setattr(commands, "_make_valid", lambda folder, _: (folder / "suite.toml").write_text("name = 1"))
    monkeypatch.setattr(commands, "_placekit", lambda _: os._exit(9))
    assert main(["--cases", "1", "--kind", "suite"]) == 1
    assert "suite, seed 0, file 0: suite.toml, placekit bench suite.toml" in capsys.readouterr().out


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_commands_on_broken_files_end_orderly() -> None:
    """Broken files of every kind; `make fuzz` goes on from there."""
    for package in ("onnx", "openvino", "torch"):
        pytest.importorskip(package)
    # an interpreter of its own: the commands run in forks, which OpenVINO's threads of other tests do not survive
    driver = [sys.executable, "-m", "tests.fuzz.commands"]
    ended = subprocess.run(  # this interpreter
        [*driver, "--minutes", "60", "--cases", "50", "--first", "1000"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert not ended.returncode, ended.stdout + ended.stderr

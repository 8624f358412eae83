"""Solves share the machine, timings do not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from placekit.benchmarks.quiet import quiet
from placekit.model.errors import PlacekitError

HOLD = """
import sys
from pathlib import Path
from placekit.benchmarks.quiet import quiet
with quiet(Path(sys.argv[1]), is_alone={is_alone}):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path, *, is_alone: bool) -> subprocess.Popen[str]:
    """Start a process that holds the lock, to measure or to solve, until its input ends."""
    command = [sys.executable, "-c", HOLD.format(is_alone=is_alone), str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_runs_that_solve_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A second run solves while the first one does."""
    other = holder(tmp_path / "lock", is_alone=False)
    with quiet(tmp_path / "lock", is_alone=False):
        assert other.poll() is None
    other.communicate("")


@pytest.mark.parametrize("is_alone", [False, True])
def test_timings_wait_for_whoever_works_and_then_go_on(
    tmp_path: Path, is_alone: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring begins when the other run is over, and says once what it waits for; also if that run is killed."""
    other = holder(tmp_path / "lock", is_alone=is_alone)
    naps: list[float] = []

    def nap(duration_s: float) -> None:
        naps.append(duration_s)
        if len(naps) == 3:
            other.kill()
            other.wait()  # with a time limit it would sleep

    monkeypatch.setattr(time, "sleep", nap)
    with quiet(tmp_path / "lock", is_alone=True):
        assert other.poll() is not None
    assert len(naps) >= 3
    assert [record.getMessage() for record in caplog.records] == [
        "the timings of this suite wait: another run is solving or measuring"
    ]


def test_solves_wait_for_timings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another run measures, none begins to solve."""
    other = holder(tmp_path / "lock", is_alone=True)

    def nap(_: float) -> None:
        other.kill()
        other.wait()  # with a time limit it would sleep

    monkeypatch.setattr(time, "sleep", nap)
    with quiet(tmp_path / "lock", is_alone=False):
        assert other.poll() is not None


def test_a_lock_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message has the path."""
    with (
        pytest.raises(PlacekitError, match="absent/lock of suites cannot be opened"),
        quiet(tmp_path / "absent/lock", is_alone=False),
    ):
        pass

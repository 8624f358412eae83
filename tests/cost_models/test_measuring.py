"""The meter of other load, against made-up and real busy times."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from placekit.cost_models.measuring import LoadMeter


def stat(path: Path, *busy_ticks: int) -> Path:
    """Write a /proc/stat with the given user ticks per core (100 ticks are a second), all else idle."""
    lines = [f"cpu{i} {ticks} 0 0 500 0 0 0 0 0 0" for i, ticks in enumerate(busy_ticks)]
    path.write_text("\n".join(["cpu  0 0 0 0 0 0 0 0 0 0", *lines, "intr 12 3"]))
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Make wall and CPU time stand still until the test moves them."""
    now = {"wall": 10.0, "cpu": 1.0}
    monkeypatch.setattr(time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(time, "process_time", lambda: now["cpu"])
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)
    return now


def test_foreign_load_is_busy_time_that_is_not_ours(tmp_path: Path, clock: dict[str, float]) -> None:
    """In 2 s the watched core was busy for 2 s, of which 1.5 s were ours: a quarter was not; core 1 does not count."""
    path = tmp_path / "stat"
    with LoadMeter([0], stat(path, 100, 0)) as meter:
        clock.update(wall=12.0, cpu=2.5)
        stat(path, 300, 200)
    assert meter.reading.foreign_load == pytest.approx(0.25)
    assert meter.reading.source == "busy"
    assert meter.reading.wall_s == pytest.approx(2.0)


def test_without_cores_all_are_watched(tmp_path: Path, clock: dict[str, float]) -> None:
    """Two cores, 2 s, 3 busy seconds, 1 ours: 2 of 4 core-seconds were not."""
    path = tmp_path / "stat"
    with LoadMeter((), stat(path, 0, 0)) as meter:
        clock.update(wall=12.0, cpu=2.0)
        stat(path, 200, 100)
    assert meter.reading.foreign_load == pytest.approx(0.5)


def test_stolen_time_is_foreign(tmp_path: Path, clock: dict[str, float]) -> None:
    """What another virtual machine took counts."""
    path = tmp_path / "stat"
    path.write_text("cpu0 0 0 0 0 0 0 0 0 0 0\n")
    with LoadMeter([0], path) as meter:
        clock.update(wall=11.0, cpu=1.5)
        path.write_text("cpu0 50 0 0 0 0 0 0 50 0 0\n")
    assert meter.reading.foreign_load == pytest.approx(0.5)


@pytest.mark.parametrize("content", [None, "", "cpu0 a b c\n", "cpu0 1 2\n"])
def test_without_busy_times_starvation_is_the_measure(
    tmp_path: Path, clock: dict[str, float], content: str | None
) -> None:
    """No or unreadable /proc/stat: 1.5 CPU seconds in 2 s of work without a pause mean a quarter was taken."""
    path = tmp_path / "stat"
    if content is not None:
        path.write_text(content)
    with LoadMeter([0], path) as meter:
        clock.update(wall=12.0, cpu=2.5)
    assert meter.reading.foreign_load == pytest.approx(0.25)
    assert meter.reading.source == "starved"


def test_own_work_is_not_foreign(tmp_path: Path) -> None:
    """On the real clock, with busy times that grow by our own work only, nothing is foreign."""
    with LoadMeter((), tmp_path / "none") as meter:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
    assert 0 <= meter.reading.foreign_load <= 1

"""The meter of other load, against made-up and real busy times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from placekit.cost_models.measuring import LoadMeter


@pytest.fixture
def cores() -> list[SimpleNamespace]:
    """Return the busy times of two cores, in seconds."""
    return [SimpleNamespace(user=0.0, steal=0.0, idle=5.0) for _ in range(2)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, cores: list[SimpleNamespace]) -> Iterator[dict[str, float]]:
    """Make wall, CPU and busy times stand still until the test moves them."""
    now = {"wall": 10.0, "cpu": 1.0}
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now["wall"])
        patch.setattr(time, "process_time", lambda: now["cpu"])
        patch.setattr(psutil, "cpu_times", lambda percpu: cores if percpu else None)
        yield now


@pytest.mark.parametrize(
    ("watched", "busy_s", "cpu_s", "expected"),
    [
        pytest.param([0], [{"user": 2.0}, {"user": 2.0}], 1.5, 0.25, id="core 1 does not count"),
        pytest.param([], [{"user": 2.0}, {"user": 1.0}], 1.0, 0.5, id="all cores are watched"),
        pytest.param([0], [{"user": 1.0, "steal": 1.0}, {}], 1.0, 0.5, id="stolen time is foreign"),
        pytest.param([0], [{"user": 1.0}, {}], 3.0, 0.0, id="own work elsewhere"),
    ],
)
def test_foreign_load_is_busy_time_that_is_not_ours(
    clock: dict[str, float],
    cores: list[SimpleNamespace],
    watched: list[int],
    busy_s: list[dict[str, Any]],
    cpu_s: float,
    expected: float,
) -> None:
    """The load of the watched cores counts, during 2 s."""
    with LoadMeter(watched) as meter:
        clock.update(wall=12.0, cpu=1.0 + cpu_s)
        for core, busy in zip(cores, busy_s, strict=True):
            core.__dict__.update(busy)
    assert meter.foreign_load == pytest.approx(expected)
    assert meter.wall_s == pytest.approx(2.0)


def test_the_machine_says_what_its_cores_did() -> None:
    """On the real clock the load is a share."""
    with LoadMeter() as meter:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
    assert 0 <= meter.foreign_load <= 1

"""The meter of other load, against made-up and real busy times; and the lock of measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from placekit.cost_models.measured.measuring import LoadMeter, lock_path, measuring
from placekit.model.errors import PlacekitError, ProfileError


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


def test_a_lock_that_is_a_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    """Somebody put a link where the lock should be: what it points to is neither truncated nor written."""
    (tmp_path / "target").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with (
        pytest.raises(ProfileError, match=r"lock of measurements cannot be opened"),
        measuring("x", path=tmp_path / "lock"),
    ):
        pytest.fail("locked")
    assert (tmp_path / "target").read_text() == "precious"


def test_the_lock_lies_in_a_folder_of_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made with no permission for others; whatever else bears its name is refused."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = lock_path().parent
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    with measuring("x"):
        assert {each.name for each in folder.iterdir()} <= {"measuring.lock", "measuring.lock.json"}
    folder.chmod(0o777)
    with pytest.raises(PlacekitError, match="no folder of this user alone"):
        lock_path()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlacekitError, match="no folder of this user alone"):
        lock_path()

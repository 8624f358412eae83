"""The profile cache saves time and never does harm."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from placekit.cost_models.measured.cache import ProfileCache
from placekit.io.folders import cache_directory

KEY = ProfileCache.key({"model": "m"})
ARRAYS = {"time_s": np.array([1.0, np.nan]), "op_group": np.array([0, 1])}


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    """Arrays and values come back; no temporary file stays."""
    cache = ProfileCache(tmp_path / "new")
    cache.store(KEY, ARRAYS, {"noisy": False, "name": "ü"})
    loaded = cache.load(KEY)
    assert loaded is not None
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[0][name], array)
    assert loaded[1] == {"noisy": False, "name": "ü"}
    assert [path.name for path in (tmp_path / "new" / "profiles").iterdir()] == [f"{KEY}.npz"]


def test_an_unknown_key_is_a_silent_miss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing stored is nothing to warn of."""
    assert ProfileCache(tmp_path).load(KEY) is None
    assert not caplog.records


def test_the_key_depends_on_every_part_and_not_on_their_order() -> None:
    """Same parts, same key."""
    assert ProfileCache.key({"a": 1, "b": 2}) == ProfileCache.key({"b": 2, "a": 1})
    assert ProfileCache.key({"a": 1}) != ProfileCache.key({"a": 2})


@pytest.mark.parametrize("damage", ["empty", "text", "half", "flipped", "no meta", "folder"])
def test_a_damaged_entry_is_a_miss_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Whatever is in the file, measuring goes on, and the entry can be stored again."""
    cache = ProfileCache(tmp_path)
    cache.store(KEY, {"time_s": np.arange(1000.0)}, {})
    path = cache.path(KEY)
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "no meta":
        with path.open("wb") as file:
            np.savez(file, time_s=np.arange(3))
    else:
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 0xFF
        path.write_bytes(
            {"empty": b"", "text": b"hello", "half": content[: len(content) // 2], "flipped": bytes(flipped)}[damage]
        )
    with caplog.at_level(logging.WARNING):
        assert cache.load(KEY) is None
    assert "measured again" in caplog.text
    if damage != "folder":
        cache.store(KEY, ARRAYS, {})
        assert cache.load(KEY) is not None


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    """An entry cannot run code."""
    cache = ProfileCache(tmp_path)
    cache.path(KEY).parent.mkdir(parents=True)
    with cache.path(KEY).open("wb") as file:
        np.savez(file, meta=np.array({"a": print}, dtype=object))
    assert cache.load(KEY) is None


def test_a_directory_that_cannot_be_made_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file stands where the directory should be."""
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        ProfileCache(tmp_path / "file").store(KEY, ARRAYS, {})
    assert "could not be kept" in caplog.text
    assert ProfileCache(tmp_path / "file").load(KEY) is None


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PLACEKIT_CACHE, then XDG_CACHE_HOME, then the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("PLACEKIT_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "placekit"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "placekit"
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
    assert ProfileCache().path(KEY).is_relative_to(tmp_path / "own")

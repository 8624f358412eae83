"""Descriptions that are kept: the same as built, and built again where they cannot be read."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from placekit.language.config import description_cache, from_config
from placekit.language.config.from_config import read_config
from placekit.language.description import ModelDescription

pytest.importorskip("transformers", minversion="5")

CONFIGS = Path(__file__).parent / "configs"


def test_what_is_kept_is_what_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Equal to the last bit, without the model class; another precision or a damaged entry is built."""
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path))
    gpt2 = CONFIGS / "gpt2.json"
    built = read_config(gpt2)
    assert read_config(gpt2, "int8") != built
    with monkeypatch.context() as patch:
        patch.setattr(from_config, "_built", None)
        assert read_config(gpt2) == built
    entries = list((tmp_path / "descriptions").iterdir())
    assert len(entries) == 2
    for damage in ("{", '{"path": 3}', "[]", '{"blocks": []}'):
        for entry in entries:
            entry.write_text(damage)
        with caplog.at_level(logging.WARNING):
            assert read_config(gpt2) == built


def test_a_change_of_any_file_of_the_room_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that descriptions are counted with are spread over the room: bits, bytes of states, rules of files."""
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "cache"))
    room = tmp_path / "language"
    shutil.copytree(description_cache._ROOM, room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(description_cache, "_ROOM", room)
    built = []
    real = from_config._describe

    def describe(*given: Any) -> ModelDescription:
        built.append(given)
        return real(*given)

    monkeypatch.setattr(from_config, "_describe", describe)
    gpt2 = CONFIGS / "gpt2.json"
    read_config(gpt2)
    read_config(gpt2)
    assert len(built) == 1
    files = sorted(room.rglob("*.py"))
    assert {"decoder.py", "modules.py", "packed.py", "stored.py"} <= {file.name for file in files}
    for file in (each for each in files if each.name in ("decoder.py", "readers.py", "task.py")):
        file.write_text(file.read_text() + "\n# another number\n")
        count = len(built)
        read_config(gpt2)
        read_config(gpt2)
        assert len(built) == count + 1, file.name

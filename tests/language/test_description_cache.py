"""Descriptions that are kept: the same as built, and built again where they cannot be read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from placekit.language import from_config
from placekit.language.from_config import read_config

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

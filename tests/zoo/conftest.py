"""Tiny variants of the zoo models, built once per session; the number of ops does not depend on the width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.zoo import ZooModel, build

TINY: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 4, "image_size": 32, "depths": (1, 1, 1, 1), "classes": 10},
    "inception_v3": {"width_multiplier": 0.0625, "image_size": 75, "classes": 10},
    "mobilenet_v2": {"width_multiplier": 0.25, "image_size": 32, "classes": 10},
    "unet": {"width": 2, "image_size": 32},
    "bert_base": {"layers": 1, "width": 16, "heads": 2, "sequence": 8, "vocabulary": 50},
    "gpt2": {"layers": 1, "width": 16, "heads": 2, "sequence": 8, "vocabulary": 50},
    "decoder": {"layers": 1, "width": 16, "heads": 4, "kv_heads": 2, "sequence": 8, "vocabulary": 50},
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ZooModel]:
    """Return a function from a name to its tiny variant with seed 0."""
    directory: Path = tmp_path_factory.mktemp("zoo")
    built: dict[str, ZooModel] = {}

    def get(name: str) -> ZooModel:
        if name not in built:
            built[name] = build(name, directory / f"{name}.xml", **TINY[name])
        return built[name]

    return get

"""Records of a room: dataclasses, which nobody should change but where the room says otherwise."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any


def thawed(room: ModuleType) -> list[str]:
    """Return the names of the dataclasses of a room that can be changed."""
    names = [each.name for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    found: dict[str, Any] = {}
    for name in (room.__name__, *names):
        module = importlib.import_module(name)
        own = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == name)
        found |= {each.__name__: each for each in own if is_dataclass(each)}
    assert found
    return sorted(name for name, each in found.items() if not each.__dataclass_params__.frozen)

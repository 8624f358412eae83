"""Cache of descriptions: importing transformers and building a model takes seconds, for the same answer every time.

An entry is named after the hash of everything that a description depends on: the configuration, the bytes of weight
files, the versions of transformers and torch, and all code of this room. The cache only ever saves time: an entry
that cannot be read is built again, and one that cannot be written is left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from placekit.io.atomic import write_text
from placekit.io.folders import cache_directory
from placekit.language.description import Block, ModelDescription, Part
from placekit.model.errors import PlacekitError

_LOGGER = logging.getLogger(__name__)
_ROOM = Path(__file__).parents[1]
"""Folder of the code that makes descriptions, with the numbers that it counts with."""


def cached_description(parts: Mapping[str, Any], build: Callable[[], ModelDescription]) -> ModelDescription:
    """Return the description that `build` returns, from the cache where it is there.

    `parts` are JSON values on which the description depends, beside packages and code.
    """
    try:
        versions = [version("transformers"), version("torch")]
    except PackageNotFoundError:
        return build()  # which says what is missing
    digest = hashlib.blake2b(json.dumps([versions, parts], sort_keys=True).encode(), digest_size=16)
    for file in sorted(_ROOM.rglob("*.py")):
        digest.update(f"{file.name}:{file.stat().st_size}:".encode())
        digest.update(file.read_bytes())
    path = cache_directory() / "descriptions" / f"{digest.hexdigest()}.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"), object_hook=_made)
        if isinstance(kept, ModelDescription):
            return kept
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, RecursionError, PlacekitError) as error:
        _LOGGER.warning("cache entry %s cannot be read and is built again: %s", path, error)
    found = build()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(found)))
    except (OSError, PlacekitError) as error:
        _LOGGER.warning("the description could not be kept: %s", error)
    return found


def _made(values: dict[str, Any]) -> ModelDescription | Block | Part:
    kind = ModelDescription if "blocks" in values else Block if "parts" in values else Part
    return kind(**{name: _tuples(value) for name, value in values.items()})


def _tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value

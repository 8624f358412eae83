"""Cache of measurements, so that nothing is measured twice.

An entry is a file named after the hash of everything that the measurement depends on. The cache only ever saves time:
an entry that cannot be read is measured again, one that cannot be written is not kept, and both are logged.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import write_bytes
from placekit.io.files.npz_arrays import read_npz
from placekit.io.folders import cache_directory
from placekit.io.reading import parse_json, read_bytes
from placekit.model.errors import PlacekitError

_LOGGER = logging.getLogger(__name__)
_META = "meta"


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """Arrays and JSON values by key, one file per entry.

    Parameters
    ----------
    directory
        Where the files are; made when the first entry is stored. `cache_directory` if None.

    Examples
    --------
    >>> import tempfile
    >>> cache = ProfileCache(Path(tempfile.mkdtemp()))
    >>> key = cache.key({"model": "5f0c", "device": "CPU", "repetitions": 15})
    >>> cache.store(key, {"time_s": np.array([0.5])}, {"source": "measured"})
    >>> arrays, meta = cache.load(key)
    >>> arrays["time_s"], meta["source"]
    (array([0.5]), 'measured')
    """

    directory: Path | None = None

    @staticmethod
    def key(parts: Mapping[str, Any]) -> str:
        """Return the key of a measurement that depends on `parts` (JSON values) and on nothing else."""
        text = json.dumps(parts, sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def path(self, key: str) -> Path:
        """Return the file of `key`."""
        return (self.directory or cache_directory()) / "profiles" / f"{key}.npz"

    def load(self, key: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Return the arrays and the JSON values stored under `key`; None if there are none that can be read."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            arrays = read_npz(read_bytes(path), path)
            meta = parse_json(str(arrays.pop(_META)[()]), path)
        except (PlacekitError, KeyError) as error:
            _LOGGER.warning("cache entry %s cannot be read and is measured again: %s", path, error)
            return None
        if not isinstance(meta, dict):
            _LOGGER.warning("cache entry %s holds no JSON object and is measured again", path)
            return None
        return arrays, meta

    def store(self, key: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Keep `arrays` and the JSON values `meta` under `key`; a reader sees all of it or nothing."""
        path = self.path(key)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **{**arrays, _META: np.array(json.dumps(dict(meta)))})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content.getvalue())
        except (OSError, PlacekitError) as error:
            _LOGGER.warning("the measurement could not be kept: %s", error)

"""Today's models by name: the fields of their published ``config.json``, in ``published.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_VARIANT = re.compile(r"-(instruct|it|chat|base|hf|thinking)(-v?[\d.]+)?$")
"""End of a name that says how a model was tuned, which changes no shape."""


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """Return the fields by name; ``_name_or_path`` is where they are published."""
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def published_name(name: str | None) -> str | None:
    """Return the name of the table that is meant, in any case, with the owner or the tuning; None for no model of it.

    Examples
    --------
    >>> published_name("Qwen/Qwen3-8B"), published_name("Llama-3.3-70B-Instruct"), published_name("gpt2")
    ('qwen3-8b', 'llama-3.3-70b', None)
    """
    if name is None:
        return None
    plain = name.rpartition("/")[2].lower()
    owners = {key: str(values["_name_or_path"]).lower() for key, values in published().items()}
    for key, owner in owners.items():
        if owner == name.lower():
            return key
    return next((each for each in (plain, _VARIANT.sub("", plain)) if each in owners), None)

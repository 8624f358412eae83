"""Maps of modules in Python: what is read of them, what is refused, and that nothing is run."""

from __future__ import annotations

from typing import Any

import pytest

from placekit.language.runtimes.module_lines import assigned
from placekit.model.errors import InvalidProblemError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"h": 0, "lm_head": "cpu"}', {"": {"h": 0, "lm_head": "cpu"}}),
        ("import os\nfrom os import path\ndevice = 'HETERO:a,b'\naffinities = {'h': 'a'}",
         {"device": "HETERO:a,b", "affinities": {"h": "a"}}),
        ('{"a": 0, **{"b": 1}, **{f"h.{i}.x": 2 for i in range(1, 3)}}',
         {"": {"a": 0, "b": 1, "h.1.x": 2, "h.2.x": 2}}),
        ('m = {**{f"h.{i}": 0 for i in range(2)}}', {"m": {"h.0": 0, "h.1": 0}}),
        ("llama-server -m x", None),
        ("a = b = {'h': 0}", None),
        ("a.b = {'h': 0}", None),
        ("a = f({'h': 0})", None),
        ("import os", None),
    ],
)  # fmt: skip
def test_what_lines_assign(text: str, found: dict[str, Any] | None) -> None:
    """Constants, dictionaries of them, and runs of blocks; other lines are no map."""
    assert assigned(text) == found


@pytest.mark.parametrize(
    "entry",
    [
        '"h": open("x")',
        '**{f"h.{i}": 0 for i in list(2)}',
        '**{f"h.{i}": 0 for i in zip(2)}',
        '**{f"h.{i}": 0 for i in range(3) if i}',
        '**{f"h.{i}": 0 for i in range(10**9)}',
        '**{f"h.{i}": 0 for i in range(1000000000)}',
        '**{f"h.{i}": 0 for i in range(2) for j in range(2)}',
        "**other",
    ],
)
def test_what_a_map_cannot_have(entry: str) -> None:
    """It is refused by its line."""
    with pytest.raises(InvalidProblemError, match="line 2 of the map has more than names, devices and runs of blocks"):
        assigned(f"import os\ndevice_map = {{{entry}}}")

"""The list of the kernels that `auto` needs: what it says, and how many there are."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from list_kernels import used_by_auto

from placekit.compile_ahead import LIST, kernels_of, written
from placekit.kernel_types import read_type

MOST = {"makespan": 60, "throughput": 16, "offload-latency": 5, "serial-latency": 4}
"""Kernels that a small problem of each objective may need, each with the types that it is compiled for."""


def test_the_list_is_what_would_be_written() -> None:
    """Reading and writing it changes nothing; every tuple is written once."""
    content = LIST.read_text()
    assert written({objective: kernels_of(objective) for objective in json.loads(content)["kernels"]}) == content


@pytest.mark.parametrize("objective", MOST)
def test_auto_needs_few_kernels_and_they_are_in_the_list(objective: str) -> None:
    """How many there are decides how long the first solve of an installation takes; `make kernels` lists them anew.

    Every kernel is compiled for one set of types.
    """
    used = used_by_auto(objective, 0.5)
    names = [f"{module}.{name}" for module, name, _ in used]
    assert len(used) <= MOST[objective], names
    assert len(set(names)) == len(names)
    assert len(known_of(used, kernels_of(objective))) >= 0.8 * len(used), "make kernels"


def known_of(used: list[list[Any]], known: list[list[Any]]) -> list[list[Any]]:
    """Return those that are known."""
    return [each for each in used if each in known]


@pytest.mark.parametrize("objective", MOST)
def test_listed_kernels_exist(objective: str) -> None:
    """Most can be found, with their types: one that was renamed is compiled when it is called."""
    found = 0
    for module, name, kinds in kernels_of(objective):
        try:
            getattr(import_module(module), name)
            tuple(read_type(each) for each in kinds)
        except (ImportError, AttributeError):
            continue
        found += 1
    assert found >= 0.8 * len(kernels_of(objective))
    assert not kernels_of("no such objective")

"""Distance of predictions for llama.cpp from published measurements, by class of split.

Two of three published measurements of a class are within the factor. The suite `published` makes these numbers, and a
test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.placement import Placement

CLASSES = ("one card", "several cards", "partly on the host", "experts on the host", "host alone")
"""Classes of splits, by the places of blocks and experts."""

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "generated": {
        "one card": 1.13, "several cards": 1.10, "partly on the host": 1.05, "experts on the host": 1.26,
    },
    "prompt": {
        "one card": 1.26, "several cards": 1.28, "partly on the host": 1.15, "experts on the host": 1.59,
    },
}  # fmt: skip
"""Factor that two of three predictions are within, of classes with at least ten measurements."""


def class_of(num_cards: int, *, has_host_blocks: bool, has_host_experts: bool) -> str:
    """Return the class of a split with blocks on some cards."""
    if not num_cards:
        return "host alone"
    if has_host_blocks:
        return "partly on the host"
    if has_host_experts:
        return "experts on the host"
    return "one card" if num_cards == 1 else "several cards"


def class_of_plan(task: LanguageTask, placement: Placement) -> str:
    """Return the class of the split of a plan."""
    devices = task.problem.platform.devices
    of_block = placement.device_of_op[block_numbers(task.problem.graph) >= 0]
    used = [devices[int(at)] for at in np.unique(of_block)]
    return class_of(
        sum(not device.is_host for device in used),
        has_host_blocks=any(device.is_host for device in used) or task.host_cache_bytes > 0,
        has_host_experts=task.hosted_blocks > 0,
    )

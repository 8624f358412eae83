"""A split that is given: which blocks, experts and head lie on the host, and how many blocks every card has.

A planner chooses a split; a launch line, or a published measurement, has one. Both are scored by `serving_report`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placekit.language.planning.experts import hosting
from placekit.language.report import ServingReport, serving_report
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEFORE, BEHIND, block_numbers
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement


@dataclass(frozen=True)
class Split:
    """Blocks of a model on the host and on the other devices of a platform, in its order of devices."""

    on_host: int  # first blocks that the host computes
    on_devices: tuple[int, ...]  # blocks of every other device, the first device having the first of them
    has_head_on_host: bool = False  # whether norm and head behind the last block are on the host, too
    hosted_experts: int = 0  # first blocks whose experts are on the host


def given_placement(task: LanguageTask, split: Split) -> Placement:
    """Return the placement of a split; the embedding is on the host, if the platform has one.

    Raises `InvalidProblemError`: a number of blocks that is not the model's, or of devices that is not the platform's.
    """
    problem = task.problem
    platform, block = problem.platform, block_numbers(problem.graph)
    hosts = [at for at, device in enumerate(platform.devices) if device.is_host]
    others = [at for at, device in enumerate(platform.devices) if not device.is_host]
    num_blocks = int(block.max()) + 1
    if split.on_host + sum(split.on_devices) != num_blocks or min(split.on_host, *split.on_devices, 0) < 0:
        raise InvalidProblemError(
            f"the split has {split.on_host} blocks on the host and {', '.join(map(str, split.on_devices)) or 'none'} "
            f"elsewhere; {problem.graph.name} has {num_blocks}"
        )
    if len(split.on_devices) > len(others) or (split.on_host and not hosts):
        raise InvalidProblemError(
            f"the split has {len(split.on_devices)} devices beside the host; the platform has {len(others)}, and "
            f"{'a' if hosts else 'no'} host"
        )
    host = hosts[:1] or others[:1]
    of_block = np.repeat([*host, *others[: len(split.on_devices)]], [split.on_host, *split.on_devices])
    last = host[0] if split.has_head_on_host else int(of_block[-1])
    device = np.where(block == BEFORE, host[0], np.where(block == BEHIND, last, of_block[np.maximum(block, 0)]))
    return Placement(problem.graph.op_names, platform.device_names, device)


def given_report(task: LanguageTask, split: Split) -> ServingReport:
    """Return what a split delivers.

    Raises `InvalidProblemError`: a split that is none of the model's, or experts that the host has no memory for.
    """
    if split.hosted_experts:
        task = hosting(task, split.hosted_experts)
    return serving_report(task, given_placement(task, split))


def even_split(num_blocks: int, num_devices: int) -> tuple[int, ...]:
    """Return blocks per device, as even as can be, the first devices having one more.

    Examples
    --------
    >>> even_split(32, 6)
    (6, 6, 5, 5, 5, 5)
    """
    each, more = divmod(num_blocks, num_devices)
    return tuple(each + (at < more) for at in range(num_devices))

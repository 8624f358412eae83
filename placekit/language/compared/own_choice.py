"""Split that a runtime chooses where nobody tells it one.

llama.cpp fits the model to the memory that is free (``--fit``): with room for all, blocks by the memory of the cards;
else cards are filled from the last block to the first, and the first blocks stay on the host. Of a mixture it first
moves experts of first blocks there. It leaves 1 GiB of every card free (``--fit-target``). Other runtimes are given
stages of equal size.

References
----------
llama.cpp, ``common/fit.cpp``. ``vllm/distributed/utils.py`` (``get_pp_indices``): blocks beyond equal numbers go to the
stages before the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from placekit.language.planning.experts import with_hosted_experts
from placekit.language.planning.given import Split, given_placement
from placekit.language.planning.plan import as_computed, made_with_room
from placekit.language.planning.reserved import with_buffers
from placekit.language.report import ServingReport, serving_report
from placekit.language.runtimes.record import Launch, Runtime
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEHIND, block_numbers
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.model.placement import Placement
from placekit.model.platform import Platform

FIT_TARGET_BYTES = 2.0**30
"""Memory that llama.cpp's fit leaves free on every card."""


def fitted(make: Callable[[Platform], LanguageTask], devices: Platform, runtime: Runtime) -> ServingReport | None:
    """Return what the fit of a runtime delivers; `make` gives the task without rules. None where nothing fits."""
    task = made_with_room(lambda platform: with_buffers(make(platform)), devices)
    task = replace(task, overlaps_prompt=runtime.overlaps_prompt)
    num_blocks = int(block_numbers(task.problem.graph).max()) + 1
    rest = ("--fit", "off")
    everything = _placed(runtime, task, (runtime.options["blocks"], str(num_blocks + 1)))
    if everything is not None and (report := _report(task, 0, runtime, everything)) is not None:
        return report
    has_host = any(device.is_host for device in task.problem.platform.devices)
    hosted = range(1, num_blocks + 1) if task.has_experts and has_host else ()
    for count in (0, *hosted):
        less = task if not count else with_hosted_experts(task, count)
        split = None if less is None else _filled_from_the_back(less)
        if less is None or split is None or (split[0] and task.has_experts and count < num_blocks):
            continue
        words = (runtime.options["blocks"], str(sum(split[1])), runtime.options["split"], ",".join(map(str, split[1])))
        placement = _placed(runtime, less, (*words, *rest))
        if placement is not None and (report := _report(task, count, runtime, placement)) is not None:
            return report
    return None


def evenly_split(task: LanguageTask) -> ServingReport | None:
    """Return what stages of equal size on all cards deliver, under the rules of a task; None where they do not fit."""
    devices = task.problem.platform.devices
    cards = sum(not device.is_host for device in devices) or len(devices)
    blocks = block_numbers(task.problem.graph)
    each, more = divmod(int(blocks.max()) + 1, cards)
    if not each:
        return None
    counts = [each + (cards - 1 - more <= at < cards - 1) for at in range(cards)]
    with suppress(PlacekitError):
        report = serving_report(task, given_placement(task, Split(0, tuple(counts))))
        return report if _has_room(report, 0.0, ()) else None
    return None


def _placed(runtime: Runtime, task: LanguageTask, arguments: Sequence[str]) -> Placement | None:
    """Return where a runtime puts the blocks by its own reader of lines."""
    assert runtime.read is not None
    with suppress(PlacekitError):
        return runtime.read(runtime, Launch(runtime, {}, tuple(arguments)), task.problem).placement
    return None


def _report(task: LanguageTask, hosted: int, runtime: Runtime, placement: Placement) -> ServingReport | None:
    """Return what a placement delivers with the experts of `hosted` blocks on the host; None if it does not fit."""
    try:
        ruled = as_computed(task, placement, runtime.offload_tokens, hosted)
    except InvalidProblemError:  # the host lacks memory
        return None
    report = serving_report(ruled, placement)
    hosts = [device.name for device in task.problem.platform.devices if device.is_host]
    return report if _has_room(report, FIT_TARGET_BYTES, hosts) else None


def _has_room(report: ServingReport, free_bytes: float, hosts: Sequence[str]) -> bool:
    """Return whether every device holds what it is given, and cards have so many bytes left."""
    return all(
        each.limit_bytes is None
        or each.weight_bytes + each.cache_bytes + each.activation_bytes + (0.0 if each.device in hosts else free_bytes)
        <= each.limit_bytes
        for each in report.memory
    )


def _filled_from_the_back(task: LanguageTask) -> tuple[int, list[int]] | None:
    """Return the blocks that stay on the host, and those of every card; the output counts as one more of the last."""
    problem = task.problem
    number = block_numbers(problem.graph)
    last = int(number.max()) + 1
    rank = np.where(number == BEHIND, last, number)
    held = task.weight_bytes + task.serving.sequences * task.cache_bytes
    size = np.bincount(rank[rank >= 0], held[rank >= 0], minlength=last + 1)
    end, counts = last + 1, []
    for card in reversed([device for device in problem.platform.devices if not device.is_host]):
        room = np.inf if card.memory_bytes is None else card.memory_bytes - FIT_TARGET_BYTES
        begin = end
        while begin > 0 and size[begin - 1] <= room:
            begin -= 1
            room -= size[begin]
        counts.append(end - begin)
        end = begin
    has_host = any(device.is_host for device in problem.platform.devices)
    return (end, counts[::-1]) if sum(counts) and (has_host or not end) else None

"""Split that a runtime chooses where nobody tells it one.

llama.cpp fits the model to the memory that is free (``--fit``): with room for all, blocks by the memory of the cards;
else cards are filled from the last block to the first, and the first blocks stay on the host. Of a mixture it first
places all but the experts so; then experts come to the cards from the first block on, and those of the last ones stay
on the host. It leaves 1 GiB of every card free (``--fit-target``). Other runtimes are given
stages of equal size.

References
----------
llama.cpp, ``common/fit.cpp``; servers of other machines come before its own cards (``src/llama.cpp``). Against
``llama-fit-params`` on pairs of servers (``tests/llama/test_fit.py``) dense models are split alike, and of mixtures at
most one block less has its experts on the host, as the program also divides blocks. ``vllm/distributed/utils.py``
(``get_pp_indices``): blocks beyond equal numbers go to the stages before the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.language.planning.experts import hosted_ops, with_hosted_experts
from placekit.language.planning.given import Split, given_placement
from placekit.language.planning.plan import as_computed, made_with_room
from placekit.language.planning.reserved import with_buffers
from placekit.language.report import ServingReport, serving_report
from placekit.language.runtimes.device_names import buffer_names
from placekit.language.runtimes.llama.rpc import is_remote, remote_devices
from placekit.language.runtimes.record import Launch, Runtime
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEHIND, block_numbers
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform

FIT_TARGET_BYTES = 2.0**30
"""Memory that llama.cpp's fit leaves free on every card."""


def fitted(make: Callable[[Platform], LanguageTask], devices: Platform, runtime: Runtime) -> ServingReport | None:
    """Return what the fit of a runtime delivers; `make` gives the task without rules. None where nothing fits."""
    task = made_with_room(lambda platform: with_buffers(make(platform)), devices)
    task = replace(task, overlaps_prompt=runtime.overlaps_prompt)
    num_blocks = int(block_numbers(task.problem.graph).max()) + 1
    cards, named = _in_own_order(runtime, task.problem.platform)
    rest = (runtime.options["fit"], "off", *named)
    everything = _placed(runtime, task, (runtime.options["blocks"], str(num_blocks + 1), *named))
    if (
        everything is not None
        and (report := _report(task, np.zeros(num_blocks, dtype=np.bool_), runtime, everything)) is not None
    ):
        return report
    held = task.weight_bytes + task.serving.sequences * task.cache_bytes
    if task.has_experts and any(device.is_host for device in task.problem.platform.devices):
        experts = np.where(hosted_ops(task, num_blocks), task.weight_bytes, 0.0)
        split, hosted = _filled_with_experts(task, cards, held - experts, experts)
    else:
        split, hosted = _filled_from_the_back(task, cards, held), np.zeros(num_blocks, dtype=np.bool_)
    if not sum(split[1]):
        return None
    words = (runtime.options["blocks"], str(sum(split[1])), runtime.options["split"], ",".join(map(str, split[1])))
    placement = _placed(runtime, task, (*words, *rest))
    return None if placement is None else _report(task, hosted, runtime, placement)


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


def _report(
    task: LanguageTask, hosted: NDArray[np.bool_], runtime: Runtime, placement: Placement
) -> ServingReport | None:
    """Return what a placement delivers with the experts of some blocks on the host; None if it does not fit."""
    ruled: LanguageTask | None = as_computed(task, placement, runtime.offload_tokens, 0)
    if hosted.any():
        number = block_numbers(task.problem.graph)
        there = hosted_ops(task, len(hosted)) & hosted[number.clip(0, len(hosted) - 1)]
        ruled = with_hosted_experts(ruled, int(hosted.sum()), there) if ruled is not None else None
    if ruled is None:  # the host lacks memory
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


def _in_own_order(runtime: Runtime, platform: Platform) -> tuple[list[Device], tuple[str, ...]]:
    """Return the cards in the order of llama.cpp, which has servers of other machines first, and options for them."""
    cards = sorted((each for each in platform.devices if not each.is_host), key=lambda each: not is_remote(each))
    remote = remote_devices(cards)
    if not remote.addresses:
        return cards, ()
    names = buffer_names(platform) | dict(remote.names)
    told = {"servers": ",".join(remote.addresses), "devices": ",".join(names[card.name] for card in cards)}
    return cards, tuple(word for key, value in told.items() for word in (runtime.options[key], value))


def _room(task: LanguageTask, cards: Sequence[Device], *, is_pipelined: bool) -> list[float]:
    """Return the bytes for weights and caches on every card, its compute buffer and the target set aside."""
    limits = {device.name: device.memory_bytes for device in task.problem.platform.devices}
    found = []
    for at, card in enumerate(cards):
        limit, taken = limits[card.name], task.activation_bytes
        if task.buffers is not None:
            is_last = at == len(cards) - 1
            taken = task.buffers.of_card(is_first=False, has_output=is_last, is_pipelined=is_pipelined)
        found.append(np.inf if limit is None else limit + task.activation_bytes - taken - FIT_TARGET_BYTES)
    return found


def _by_layer(task: LanguageTask, of_op: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[num_blocks + 1]`` sums over blocks; the output counts as one more block."""
    number = block_numbers(task.problem.graph)
    rank = np.where(number == BEHIND, int(number.max()) + 1, number)
    found = np.zeros(int(number.max()) + 2)
    np.add.at(found, rank[rank >= 0], of_op[rank >= 0])
    return found


def _filled_from_the_back(
    task: LanguageTask, cards: Sequence[Device], held: NDArray[np.float64]
) -> tuple[int, list[int]]:
    """Return the blocks that stay on the host, and those of every card; the output counts as one more of the last."""
    size, end, counts = _by_layer(task, held), 0, [0]
    for is_pipelined in (False, True):  # with blocks on the host the chunks of a prompt do not overlap
        end, counts = len(size), []
        for room in reversed(_room(task, cards, is_pipelined=is_pipelined)):
            begin, left = end, room
            while begin > 0 and size[begin - 1] <= left:
                begin -= 1
                left -= size[begin]
            counts.append(end - begin)
            end = begin
        if end:
            break
    return end, counts[::-1]


def _filled_with_experts(
    task: LanguageTask, cards: Sequence[Device], dense: NDArray[np.float64], experts: NDArray[np.float64]
) -> tuple[tuple[int, list[int]], NDArray[np.bool_]]:
    """Return the split of a mixture, and for each block whether its experts are on the host.

    Cards are filled from the back with all but experts. If that has room for all blocks, experts come to the cards from
    the first block on, and with them blocks to earlier cards.
    """
    split = _filled_from_the_back(task, cards, dense)
    of_dense, of_experts = _by_layer(task, dense), _by_layer(task, experts)
    hosted = np.ones(len(of_dense) - 1, dtype=np.bool_)
    if split[0]:
        return split, hosted
    owner, first = np.repeat(np.arange(len(cards)), split[1]), 0
    for at, room in enumerate(_room(task, cards, is_pipelined=False)):
        left = room - of_dense[owner == at].sum()
        while first < len(hosted):
            cost = of_experts[first] + (0.0 if owner[first] == at else of_dense[first])
            if cost > left:
                break
            left -= cost
            owner[first], hosted[first] = at, False
            first += 1
    return (0, np.bincount(owner, minlength=len(cards)).tolist()), hosted

r"""Feed-forward layers in host memory: the host computes those of the first blocks, and the cards all else of these.

In a mixture these are its experts (llama.cpp's ``--n-cpu-moe N``), else the dense layers (``--n-cpu-ffn N``): what a
block has beside its attention, whose cache stays on the card. A token then goes over the bus of its card to the host
and back in every such block, so hosting is folded into the costs of the ops: on a card, hosted ops take the time of the
host and the transfers of their inputs and outputs over the card's link; their weights count in the memory of the host.

The number of blocks is chosen by the dynamic program over runs of blocks, one for every number. Only for one batch at a
time: several batches would share the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.language.planning.offload import copied_s, is_offloaded
from placekit.language.task import LanguageTask, less_memory
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.served import Served
from placekit.objectives import SerialLatency
from placekit.solvers.chain.method import Chain, chain_plan

_DENSE = re.compile(r"\.(mlp|feed_forward|ffn)\.[^.]+$|\.ffn_(gate|up|down)$")
"""Paths of dense feed-forward layers."""


def hosted_ops(task: LanguageTask, num_blocks: int) -> NDArray[np.bool_]:
    """``[num_ops]`` True for layers of the first `num_blocks` blocks that hosts may have, and what is between."""
    graph = task.problem.graph
    number = block_numbers(graph)
    found = np.zeros(graph.num_ops, dtype=np.bool_)
    if task.description is None:
        return found
    for op, part in enumerate(task.description.parts):
        if 0 <= number[op] < num_blocks:
            inputs = [graph.op_index[path] for path in part.inputs]
            is_between = bool(inputs) and not part.parameters and bool(found[inputs].all())
            is_layer = part.experts > 1 if task.has_experts else bool(part.parameters and _DENSE.search(part.path))
            found[op] = is_layer or (is_between and part.op_type != "Add")
    return found


def with_hosted_experts(
    task: LanguageTask, num_blocks: int, hosted: NDArray[np.bool_] | None = None
) -> LanguageTask | None:
    """Return the task whose first blocks have their feed-forward on the host; None if the host lacks memory for it.

    `hosted` are their `hosted_ops`, where they are known.
    """
    hosted = hosted_ops(task, num_blocks) if hosted is None else hosted
    problem, platform = task.problem, task.problem.platform
    host = next(device for device in platform.devices if device.is_host)
    held = float(task.weight_bytes[hosted].sum())
    if not hosted.any() or (host.memory_bytes is not None and held >= host.memory_bytes):
        return None
    kind = platform.kinds.index(host.kind)
    tables = {
        name: _on_cards(task, table.for_kinds(platform.kinds), np.where(hosted, task.weight_bytes, 0.0))
        if is_offloaded(task, name)
        else _on_host(task, table.for_kinds(platform.kinds), hosted, kind)
        for name, table in task.costs_of_phase.items()
    }
    task = task.with_costs(tables)
    costs = problem.costs
    memory = costs.op_memory_bytes - np.where(hosted, task.weight_bytes, 0.0)
    served = replace(problem.served or Served(), hosted_blocks=num_blocks, hosts_dense=not task.has_experts)
    problem = problem.replace(
        platform=platform.with_more_memory(of_host=-held),
        costs=task.problem.costs.replace(op_memory_bytes=memory),
        served=served,
    )
    weights = np.where(hosted, 0.0, task.weight_bytes)
    return replace(task, problem=problem, weight_bytes=weights, hosted_blocks=num_blocks, hosted_bytes=held)


def with_hosted_cache(task: LanguageTask, min_tokens: int | None) -> LanguageTask | None:
    """Return the task whose cache the host holds (``-nkvo``), and computes attention of small steps.

    Steps of at least `min_tokens` tokens are computed on cards, to which the cache of every block is copied. None for a
    model without a cache or with states, or if the host lacks memory for it.
    """
    problem, platform = task.problem, task.problem.platform
    has_both = len({device.is_host for device in platform.devices}) == 2
    hosted = task.cache_bytes > 0
    types = np.array(problem.graph.op_types)
    if not has_both or not hosted.any() or set(types[hosted]) != {"ScaledDotProductAttention"}:
        return None
    host = next(device for device in platform.devices if device.is_host)
    of_one = float(task.cache_bytes.sum())
    held = task.serving.sequences * of_one
    if host.memory_bytes is not None and held >= host.memory_bytes:
        return None
    kind = platform.kinds.index(host.kind)
    copies = {
        phase.name: min(phase.context + phase.tokens, task.serving.context) / task.serving.context * task.serving.batch
        for phase in task.serving.phases
    }
    large = replace(task, offload_tokens=min_tokens)
    tables = {
        name: _on_cards(task, table.for_kinds(platform.kinds), copies[name] * task.cache_bytes)
        if is_offloaded(large, name)
        else _on_host(task, table.for_kinds(platform.kinds), hosted, kind)
        for name, table in task.costs_of_phase.items()
    }
    task = task.with_costs(tables)
    memory = problem.costs.op_memory_bytes - task.serving.sequences * task.cache_bytes
    problem = problem.replace(
        platform=platform.with_more_memory(of_host=-held),
        costs=task.problem.costs.replace(op_memory_bytes=memory),
        served=replace(problem.served or Served(), hosts_cache=True),
    )
    more = 0.0
    if task.buffers is not None:
        of_block = task.serving.sequences * float(task.cache_bytes.max())
        plain, whole = (
            task.buffers.of_card_without_cache(of_block, is_first=True, has_output=has_output)
            for has_output in (False, True)
        )
        needed = max(plain, whole - task.buffers.output_bytes)  # the head has room for these already
        more = max(needed - task.activation_bytes, 0.0)
        try:
            problem = problem.replace(platform=less_memory(problem.platform, more))
        except InvalidProblemError:  # a card has no room for the cache of a block
            return None
    return replace(
        task, problem=problem, cache_bytes=np.zeros(len(task.cache_bytes)), host_cache_bytes=of_one,
        host_cache_of_block=float(task.cache_bytes.max()), overlaps_prompt=False,
        activation_bytes=task.activation_bytes + more,
    )  # fmt: skip


def needs_host(task: LanguageTask) -> bool:
    """Return whether the best plan has blocks on the host, or there is none.

    The problem must be one that `Chain` supports, whose first class is what is before the blocks.
    """
    found = chain_plan(task.problem)
    devices = task.problem.platform.devices
    return found is None or any(
        devices[found.groups[found.sorts[stage.sort].group][0]].is_host and stage.end - stage.begin > 1
        for stage in found.stages
    )


def hosting(task: LanguageTask, num_blocks: int) -> LanguageTask:
    """Return the task of `with_hosted_experts`.

    Raises `InvalidProblemError`: the host lacks memory.
    """
    hosted = with_hosted_experts(task, num_blocks)
    if hosted is None:
        raise InvalidProblemError(f"the {task.hosted_layers} of {num_blocks} blocks do not fit into host memory")
    return hosted


def _on_cards(task: LanguageTask, table: CostTable, held: NDArray[np.float64]) -> CostTable:
    """Return the costs of a large step: cards compute hosted ops, and the bytes that the host holds are copied."""
    time, platform = table.op_time_s.copy(), task.problem.platform
    for device in platform.devices:
        if not device.is_host:
            at = platform.kinds.index(device.kind)
            time[:, at] = table.op_time_s[:, at] + copied_s(task, device.kind, held)
    return table.replace(op_time_s=time)


def _on_host(task: LanguageTask, table: CostTable, hosted: NDArray[np.bool_], host: int) -> CostTable:
    """Return the costs of a step: on cards, hosted ops take the time of the host, and the bus."""
    graph = task.problem.graph
    time, supported = table.op_time_s.copy(), table.supported.copy()
    time[hosted], supported[hosted] = time[hosted, host][:, None], supported[hosted, host][:, None]
    moved = table.transfer_time_s + table.transfer_time_s[:, [host]]
    moved[:, host] = 0.0
    made_by = graph.tensor_producer[graph.consumed_tensor]
    block = block_numbers(graph)
    enters = np.flatnonzero(hosted[graph.consumers] & ~hosted[made_by])
    leaves = np.flatnonzero(~hosted[graph.consumers] & hosted[made_by])
    reader = {  # a tensor enters a block once, and leaves once
        (int(block[graph.consumers[edge]]), int(graph.consumed_tensor[edge])): int(graph.consumers[edge])
        for edge in enters.tolist()
    }
    for (_, tensor), op in reader.items():
        time[op] += moved[tensor]
    for tensor in set(graph.consumed_tensor[leaves].tolist()):
        time[graph.tensor_producer[tensor]] += moved[tensor]
    return table.replace(op_time_s=time, supported=supported)


def hosting_cases(task: LanguageTask) -> Iterator[LanguageTask]:
    """Yield the task with the best number of blocks whose feed-forward is on the host, and with the largest that fits.

    Every number from 1 on is tried. The problem must be one that `Chain` supports; else there is no case.
    """
    problem = task.problem
    has_both = len({device.is_host for device in problem.platform.devices}) == 2
    if not has_both or task.description is None or not isinstance(problem.objective, SerialLatency):
        return
    if Chain().supports(problem) is not None:
        return
    number, hosted_by_all = block_numbers(problem.graph), hosted_ops(task, len(task.description.blocks))

    def with_hosted(count: int) -> LanguageTask | None:
        return with_hosted_experts(task, count, hosted_by_all & (number < count))

    counts = sorted(set((number[hosted_by_all] + 1).tolist()))
    most = next((made for count in reversed(counts) if (made := with_hosted(count)) is not None), None)
    if most is None:
        return
    counts = [count for count in counts if count <= most.hosted_blocks]
    least, least_hosted = _least_s(task), _least_s(most)
    graph = problem.graph
    made_by = graph.tensor_producer[graph.consumed_tensor]
    is_apart = not (
        hosted_by_all[made_by] & hosted_by_all[graph.consumers] & (number[made_by] != number[graph.consumers])
    ).any()
    best: tuple[float, LanguageTask] | None = None
    largest: LanguageTask | None = None
    for count in counts:
        bound_s = least_hosted[: count + 1].sum() + least[count + 1 :].sum()
        if best is not None and is_apart and bound_s > best[0] * (1 + 1e-12):
            continue
        hosted = with_hosted(count)
        assert hosted is not None
        found = chain_plan(hosted.problem, hosted.first_kind, breaks_ties=False)
        if found is not None:
            largest = hosted
            if best is None or found.value < best[0]:
                best = found.value, hosted
    if best is None or largest is None:
        return
    for count in reversed(counts):  # those that were left out
        if count <= largest.hosted_blocks:
            break
        hosted = with_hosted(count)
        if hosted is not None and chain_plan(hosted.problem, hosted.first_kind, breaks_ties=False) is not None:
            largest = hosted
            break
    yield best[1]
    if largest is not best[1]:
        yield largest


def _least_s(task: LanguageTask) -> NDArray[np.float64]:
    """``[1 + num_blocks]`` least seconds of what is outside of blocks, and of every block on any kind of device.

    Sums of them are lower bounds of plans: transfers and memory do not count, and every block is on one device. The
    costs of a block do not depend on which others have layers on the host, as long as no layer feeds one of another
    block.
    """
    problem = task.problem
    number = block_numbers(problem.graph)
    costs = problem.costs.for_kinds(problem.platform.kinds)
    time = np.where(costs.supported, costs.op_time_s, np.inf)
    inside = number >= 0
    found = np.zeros(int(number.max()) + 2)
    found[0] = time[~inside].min(axis=1).sum()
    of_kinds = np.stack([np.bincount(number[inside], each[inside]) for each in time.T])
    found[1:] = of_kinds.min(axis=0)
    return found

"""Make a failing problem smaller while it keeps failing in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import PlacekitError
from placekit.model.graph import OpGraph
from placekit.model.memory import MemoryBlocks
from placekit.model.platform import Platform
from placekit.model.problem import UNPINNED, Problem


def minimise(problem: Problem, still_fails: Callable[[Problem], bool], may_go_on: Callable[[], bool]) -> Problem:
    """Return a smaller problem that `still_fails`: fewer ops, readers, devices and constraints, rounder numbers.

    Parameters
    ----------
    problem
        A problem that fails.
    still_fails
        Whether a problem fails in the same way.
    may_go_on
        Asked before every try.
    """
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(problem):
            if not may_go_on():
                return problem
            if still_fails(smaller):
                problem, improved = smaller, True
                break
    return problem


def _smaller(problem: Problem) -> Iterator[Problem]:
    """Yield problems one step smaller, large steps first; those that cannot be built are left out."""
    for step in _steps(problem):
        try:
            yield step()
        except (PlacekitError, ValueError):
            continue


def _steps(problem: Problem) -> Iterator[Callable[[], Problem]]:
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    everything = np.arange(graph.num_ops)
    yield from (partial(_without_op, problem, op) for op in range(graph.num_ops))
    yield from (partial(_without_device, problem, d) for d in range(platform.num_devices))
    readers = np.arange(len(graph.consumers))
    yield from (partial(without_readers, problem, readers != edge) for edge in readers.tolist())
    if (problem.colocation != everything).any():
        yield partial(problem.replace, colocation=None)
    if (costs.op_group != everything).any():
        yield partial(_with_costs, problem, op_group=None)
    if costs.blocks is not None:
        yield partial(_with_costs, problem, blocks=None)
        every = range(len(costs.blocks.num_bytes))
        yield from (partial(_with_costs, problem, blocks=_without_block(costs.blocks, b)) for b in every)
        if costs.blocks.queue_slots:
            yield partial(_with_costs, problem, blocks=replace(costs.blocks, queue_slots=0))
    if not costs.supported.all():
        yield partial(_with_costs, problem, supported=None)
    if any(device.memory_bytes is not None for device in platform.devices):
        free = tuple(device.replace(memory_bytes=None) for device in platform.devices)
        yield partial(problem.replace, platform=platform.replace(devices=free, pools=()))
    if problem.has_direct_links:
        yield partial(_with_links, problem, np.zeros(0, dtype=np.int64))
        links = np.arange(len(platform.direct_links))
        yield from (partial(_with_links, problem, links[links != at]) for at in links.tolist())
        yield partial(_on_one_node, problem)
    yield from (partial(_unpinned, problem, op) for op in np.flatnonzero(problem.pinned >= 0).tolist())
    if problem.objective != type(problem.objective)():
        yield partial(problem.replace, objective=type(problem.objective)())
    for name in ("op_time_s", "transfer_time_s", "direct_time_s", "op_memory_bytes"):
        values = getattr(costs, name)
        for at in map(tuple, np.argwhere(values != 0).tolist()):
            for rounder in (0.0, _round(float(values[at]))):
                if rounder != values[at]:
                    changed = values.copy()
                    changed[at] = rounder
                    yield partial(_with_costs, problem, **{name: changed})


def _round(value: float) -> float:
    return float(f"{value:.0e}")


def _without_block(blocks: MemoryBlocks, b: int) -> MemoryBlocks:
    return _some_uses(blocks, blocks.owner != b)


def _some_uses(blocks: MemoryBlocks, keep: NDArray[np.bool_]) -> MemoryBlocks:
    """Return the blocks with some of their ops only; those without any are gone."""
    counts = np.bincount(blocks.owner[keep], minlength=len(blocks.num_bytes))
    some = counts > 0
    offsets = np.cumsum([0, *counts[some].tolist()], dtype=np.int64)
    return MemoryBlocks(blocks.num_bytes[some], blocks.is_weight[some], offsets, blocks.ops[keep], blocks.queue_slots)


def _unpinned(problem: Problem, op: int) -> Problem:
    pinned = problem.pinned.copy()
    pinned[op] = UNPINNED
    return problem.replace(pinned=pinned)


def _with_costs(problem: Problem, **changes: Any) -> Problem:
    return problem.replace(costs=problem.costs.replace(**changes))


def _without_device(problem: Problem, device: int) -> Problem:
    devices = tuple(d for at, d in enumerate(problem.platform.devices) if at != device)
    if not devices or (problem.pinned == device).any():
        raise ValueError("needed")
    pinned = np.where(problem.pinned > device, problem.pinned - 1, problem.pinned)
    kinds = {device.kind for device in devices}
    links = [link for link in problem.platform.direct_links if kinds.issuperset(link.kinds or ())]
    pools = problem.platform.with_devices(devices).pools
    return problem.replace(platform=Platform(devices, direct_links=tuple(links), pools=pools), pinned=pinned)


def _with_links(problem: Problem, kept: NDArray[np.int64]) -> Problem:
    platform = problem.platform
    links = tuple(platform.direct_links[at] for at in kept.tolist())
    devices = platform.devices if links else tuple(device.replace(node=None) for device in platform.devices)
    return problem.replace(platform=platform.replace(devices=devices, direct_links=links))


def _on_one_node(problem: Problem) -> Problem:
    platform = problem.platform
    if len({device.node for device in platform.devices}) == 1:
        raise ValueError("they are")
    devices = tuple(device.replace(node=platform.devices[0].node) for device in platform.devices)
    return problem.replace(platform=platform.replace(devices=devices))


def without_readers(problem: Problem, keep: NDArray[np.bool_], keep_op: NDArray[np.bool_] | None = None) -> Problem:
    """Drop readers, tensors without readers, and ops."""
    graph, costs = problem.graph, problem.costs
    if keep_op is None:
        keep_op = np.ones(graph.num_ops, dtype=bool)
    if not keep_op.any():
        raise ValueError("no op is left")
    counts = np.bincount(graph.consumed_tensor[keep], minlength=graph.num_tensors)
    keep_tensor = counts > 0
    new_op = np.cumsum(keep_op) - 1
    smaller = OpGraph(
        name=graph.name,
        op_names=tuple(name for name, kept in zip(graph.op_names, keep_op.tolist(), strict=True) if kept),
        op_types=tuple(kind for kind, kept in zip(graph.op_types, keep_op.tolist(), strict=True) if kept),
        tensor_producer=new_op[graph.tensor_producer[keep_tensor]],
        consumer_offsets=np.cumsum([0, *counts[keep_tensor].tolist()], dtype=np.int64),
        consumers=new_op[graph.consumers[keep]],
        tensor_bytes=graph.tensor_bytes[keep_tensor],
        is_backward=graph.is_backward[keep_op],
    )
    blocks = costs.blocks
    if blocks is not None:
        blocks = _some_uses(blocks, keep_op[blocks.ops])
        blocks = replace(blocks, ops=new_op[blocks.ops])
    fewer = costs.replace(
        blocks=blocks,
        op_time_s=costs.op_time_s[keep_op],
        transfer_time_s=costs.transfer_time_s[keep_tensor],
        direct_time_s=costs.direct_time_s[keep_tensor],
        op_memory_bytes=costs.op_memory_bytes[keep_op],
        supported=costs.supported[keep_op],
        op_group=costs.op_group[keep_op],
        op_time_spread=None,
    )
    return Problem(
        smaller,
        problem.platform,
        fewer,
        problem.objective,
        problem.contiguity,
        problem.colocation[keep_op],
        problem.pinned[keep_op],
    )


def _without_op(problem: Problem, op: int) -> Problem:
    graph = problem.graph
    producer = graph.tensor_producer[graph.consumed_tensor]
    return without_readers(problem, (producer != op) & (graph.consumers != op), np.arange(graph.num_ops) != op)

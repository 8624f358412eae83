"""Chains of blocks: the classes of a problem in their only order, and what every run of them takes.

Sums over blocks ``i .. j - 1`` are added up for every ``i``, not taken as differences of sums from the beginning: a
difference of large sums may be wrong in its first digits, and a bound must not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.problem import UNPINNED
from placekit.solvers.chain.dynamic_program import StageSort

if TYPE_CHECKING:
    from placekit.model.problem import Problem


@dataclass(frozen=True)
class BlockOrder:
    """Blocks of a problem in their only order."""

    block_of_op: NDArray[np.int64]  # ``[num_ops]`` number of the block of every op
    num_blocks: int


def chain_of(problem: Problem[Any]) -> BlockOrder | None:
    """Return the classes of a problem as a chain, or None if they are none: each must feed the next one."""
    count = problem.num_classes
    senders, receivers = problem.op_class[problem.graph.senders], problem.op_class[problem.graph.receivers]
    crossing = senders != receivers
    edges = np.unique(senders[crossing] * count + receivers[crossing])
    if len(edges) < count - 1:
        return None
    order, stuck = topological_order(count, edges // count, edges % count)
    if len(stuck) or not np.isin(order[:-1] * count + order[1:], edges).all():
        return None
    return BlockOrder(np.argsort(order)[problem.op_class], count)


def interchangeable(problem: Problem[Any]) -> list[tuple[int, ...]]:
    """Return groups of devices that are interchangeable: of one kind, and nothing is pinned to them."""
    members: dict[int, list[int]] = {}
    for device, twin in enumerate(problem.twin_of_device.tolist()):
        members.setdefault(twin, []).append(device)
    return [tuple(group) for group in members.values()]


def stage_sorts(
    problem: Problem[Any], chain: BlockOrder, groups: Sequence[tuple[int, ...]], *, has_moved: bool = True
) -> Iterator[StageSort]:
    """Yield the stages of every group, of every size that a team may have; transfers are 0 unless it `has_moved`."""
    costs = device_costs(problem, chain, [group[0] for group in groups])
    held, platform = bytes_of_stages(problem, chain), problem.platform
    nothing = np.zeros((len(platform.kinds), *held.shape)) if not has_moved else None
    moved = _moved(problem, chain) if nothing is None else nothing
    for at, (group, cost) in enumerate(zip(groups, costs, strict=True)):
        limit = platform.devices[group[0]].memory_bytes
        fullness = np.zeros_like(held) if limit is None else held / limit
        for size in range(1, len(group) + 1 if problem.objective.team_rule == "equal" else 2):
            yield StageSort(at, size, cost / size, fullness, moved[platform.kind_of_device[group[0]]])


def device_costs(problem: Problem[Any], chain: BlockOrder, devices: Iterable[int]) -> Iterator[NDArray[np.float64]]:
    """Yield ``[num_blocks + 1, num_blocks + 1]`` seconds of stages on each device, infinite where one cannot be."""
    seconds, num_bytes = stage_costs(problem, chain)
    platform, pins = problem.platform, problem.pinned
    for device in devices:
        cost = seconds[platform.kind_of_device[device]].copy()
        limit = platform.devices[device].memory_bytes
        if limit is not None:
            cost[num_bytes > limit * (1 + MEMORY_TOLERANCE)] = np.inf
        elsewhere = (pins != UNPINNED) & (pins != device)
        cost[_intervals(np.bincount(chain.block_of_op, elsewhere, chain.num_blocks)) > 0] = np.inf
        yield cost


def stage_costs(problem: Problem[Any], chain: BlockOrder) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds and bytes of every stage.

    ``[num_kinds, num_blocks + 1, num_blocks + 1]`` seconds are infinite where a kind lacks an op or a stage has no
    block; ``[num_blocks + 1, num_blocks + 1]`` are the bytes that its ops hold. With direct links the seconds have no
    transfers in them, since these depend on the devices of both ends.
    """
    costs, count = problem.costs, chain.num_blocks
    shape = len(costs.kinds), count + 1, count + 1
    seconds = np.zeros(shape) if problem.has_direct_links else _moved(problem, chain)
    for kind in range(len(costs.kinds)):
        of_block = np.bincount(
            chain.block_of_op, np.where(costs.supported[:, kind], costs.op_time_s[:, kind], 0.0), count
        )
        lacking = np.bincount(chain.block_of_op, ~costs.supported[:, kind], count)
        seconds[kind] += _intervals(of_block)
        seconds[kind][(_intervals(lacking) > 0) | np.tri(count + 1, dtype=bool)] = np.inf
    return seconds, bytes_of_stages(problem, chain)


def bytes_of_stages(problem: Problem[Any], chain: BlockOrder) -> NDArray[np.float64]:
    """``[num_blocks + 1, num_blocks + 1]`` bytes that the ops of a stage hold."""
    held = _intervals(np.bincount(chain.block_of_op, problem.costs.op_memory_bytes, chain.num_blocks))
    return held + _shared(problem, chain)


def _intervals(of_block: NDArray[Any]) -> NDArray[np.float64]:
    """``[num_blocks + 1, num_blocks + 1]`` sums over blocks ``i .. j - 1``; 0 for ``j <= i``."""
    count = len(of_block)
    sums = np.zeros((count + 1, count + 1))
    np.cumsum(np.triu(np.broadcast_to(of_block, (count, count))), axis=1, out=sums[:-1, 1:])
    return sums


def _shared(problem: Problem[Any], chain: BlockOrder) -> NDArray[np.float64]:
    """``[num_blocks + 1, num_blocks + 1]`` bytes of weights that several ops use, once per stage."""
    weights = problem.costs.blocks
    held = np.zeros((chain.num_blocks + 1, chain.num_blocks + 1))
    if weights is None or not problem.has_tight_blocks:
        return held
    for at, num_bytes in enumerate(weights.num_bytes.tolist()):
        users = np.unique(chain.block_of_op[weights.ops[weights.offsets[at] : weights.offsets[at + 1]]])
        begins = np.arange(users[-1] + 1)
        held[begins, users[np.searchsorted(users, begins)] + 1] += num_bytes
    sums: NDArray[np.float64] = np.cumsum(held, axis=1)
    return sums


def _moved(problem: Problem[Any], chain: BlockOrder) -> NDArray[np.float64]:
    """``[num_kinds, num_blocks + 1, num_blocks + 1]`` seconds of the tensors that enter or leave a stage."""
    graph, time_s = problem.graph, problem.costs.transfer_time_s
    size = chain.num_blocks + 1
    entering, leaving = np.zeros((time_s.shape[1], size, size)), np.zeros((time_s.shape[1], size, size))
    made = chain.block_of_op[graph.tensor_producer]
    tensors, readers = graph.consumed_tensor, chain.block_of_op[graph.consumers]
    elsewhere = readers != made[tensors]
    pairs = np.unique(tensors[elsewhere] * size + readers[elsewhere])
    sent, to = pairs // size, pairs % size
    is_next = np.bincount(sent, minlength=len(made))[sent] == 1  # one reader, in the next block: most tensors
    is_next &= to == made[sent] + 1
    one, into = sent[is_next], to[is_next]
    for moves, at in ((leaving, (into - 1, into)), (entering, (into, into + 1))):
        np.add.at(moves, (slice(None), *at), time_s[one].T)  # type: ignore[arg-type]  # a tuple of indices
    for tensor in np.unique(sent[~is_next]).tolist():
        blocks = pairs[np.searchsorted(pairs, tensor * size) : np.searchsorted(pairs, (tensor + 1) * size)] % size
        first, last = int(made[tensor]), int(blocks[-1])
        cost = time_s[tensor][:, None]
        leaving[:, first, first + 1 : last + 1] += cost  # made in the last block of a stage or before it, read behind
        begins = np.arange(first + 1, last + 1)  # made before, and read inside by the next reader
        entering[:, begins, blocks[np.searchsorted(blocks, begins)] + 1] += cost
    moved: NDArray[np.float64] = np.cumsum(entering, axis=2)
    moved += np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1]
    return moved

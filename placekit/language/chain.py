"""Exact plans of a chain of blocks: which device, or team of equal devices, has which run of blocks.

With whole blocks a language model is a chain, and contiguity leaves every device one run of it. What a stage takes then
depends on its kind of device, on its first and on its last block only, and devices of a kind are interchangeable. So a
dynamic program over (devices used of every kind, blocks placed) is exact:

1. Claim: the best plan of the first `j` blocks with given counts of devices ends in a stage over blocks `i .. j - 1`.
2. Reason: the stages before it are a plan of `i` blocks with the counts less those of the stage; a better one would
   make the whole plan no worse, as loads are added up (latency) or the largest counts (throughput).
3. Conclusion: trying every last stage on the best plans of fewer devices finds the optimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.model.graph import topological_order
from placekit.model.placement import Placement, Violation
from placekit.model.platform import MEMORY_TOLERANCE
from placekit.model.problem import UNPINNED
from placekit.model.sizes import format_bytes
from placekit.objectives import SerialLatency, Throughput
from placekit.solve.method import Method
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solve.run import Run

MAX_WORK = 4e9
"""Stages that a search tries at most: above it the general methods are asked."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Choice:
    """A sort of stage: devices of a group with what they take together."""

    group: int  # group of interchangeable devices
    devices: int  # devices that a stage takes of the group
    # ``[num_blocks + 1, num_blocks + 1]`` seconds of a stage over blocks ``i .. j - 1``; infinite if it cannot be.
    cost_s: NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """Blocks ``begin .. end - 1`` by the choice with the number `choice`."""

    choice: int
    begin: int
    end: int


@dataclass(frozen=True)
class Lead:
    """Rule that the first stage on a card is on one of some groups."""

    hosts: frozenset[int]  # groups that are no cards
    leaders: frozenset[int]  # groups of which the first card may be

    def refuses(self, group: int, used: tuple[int, ...]) -> bool:
        """Return whether a stage of a group would be the first on a card, and may not be."""
        return not (group in self.hosts or group in self.leaders or any(
            count for at, count in enumerate(used) if at not in self.hosts
        ))  # fmt: skip


def best_chain(
    choices: Sequence[Choice], sizes: Sequence[int], num_blocks: int, *, is_sum: bool, lead: Lead | None = None
) -> tuple[float, tuple[Stage, ...]] | None:
    """Return the best plan and its seconds; None if there is none.

    `sizes` are the devices of every group. The sum of the stages' seconds is minimised if `is_sum`, else the largest.
    With `lead` only plans that obey it count.

    Examples
    --------
    >>> cost = np.where(np.tri(4, k=-1).T, np.subtract.outer(np.arange(4.0), np.arange(4.0)).T, np.inf)
    >>> best_chain([Choice(0, 1, cost)], [2], 3, is_sum=False)
    (2.0, (Stage(choice=0, begin=0, end=1), Stage(choice=0, begin=1, end=3)))
    """
    shape = tuple(size + 1 for size in sizes)
    best = np.full((*shape, num_blocks + 1), np.inf)
    best[(0,) * len(sizes)][0] = 0.0
    came_by = np.zeros(best.shape, dtype=np.int32)
    came_from = np.zeros(best.shape, dtype=np.int32)
    together = np.add if is_sum else np.maximum
    limit = np.inf
    for used in np.ndindex(*shape):  # rising in every count
        so_far = best[used]
        begins = np.flatnonzero(so_far[:-1] < limit)
        if not len(begins):
            continue
        for at, choice in enumerate(choices):
            count = used[choice.group] + choice.devices
            if count > sizes[choice.group] or (lead is not None and lead.refuses(choice.group, used)):
                continue
            grown = (*used[: choice.group], count, *used[choice.group + 1 :])
            reached = together(so_far[begins, None], choice.cost_s[begins])
            row = reached.argmin(axis=0)
            value = reached[row, np.arange(num_blocks + 1)]
            better = value < best[grown]
            best[grown][better] = value[better]
            came_by[grown][better] = at
            came_from[grown][better] = begins[row[better]]
            limit = min(limit, best[grown][-1])
    ends = best[..., -1]
    used = tuple(map(int, np.unravel_index(int(ends.argmin()), ends.shape)))
    value = float(ends[used])
    if not np.isfinite(value):
        return None
    stages: list[Stage] = []
    end = num_blocks
    while end:
        at, begin = int(came_by[(*used, end)]), int(came_from[(*used, end)])
        stages.append(Stage(at, begin, end))
        group = choices[at].group
        used = (*used[:group], used[group] - choices[at].devices, *used[group + 1 :])
        end = begin
    return value, tuple(reversed(stages))


@dataclass(frozen=True)
class Chain:
    """Blocks of a problem in their only order."""

    block_of_op: NDArray[np.int64]  # ``[num_ops]`` number of the block of every op
    num_blocks: int


def chain_of(problem: Problem[Any]) -> Chain | None:
    """Return the classes of a problem as a chain, or None if they are none: each must feed the next one."""
    senders, receivers = problem.op_class[problem.graph.senders], problem.op_class[problem.graph.receivers]
    crossing = senders != receivers
    senders, receivers = senders[crossing], receivers[crossing]
    order, stuck = topological_order(problem.num_classes, senders, receivers)
    if len(stuck):
        return None
    edges = set(zip(senders.tolist(), receivers.tolist(), strict=True))
    if any(pair not in edges for pair in pairwise(order.tolist())):
        return None
    return Chain(np.argsort(order)[problem.op_class], problem.num_classes)


def _intervals(of_block: NDArray[Any]) -> NDArray[np.float64]:
    """``[num_blocks + 1, num_blocks + 1]`` sums over blocks ``i .. j - 1``; 0 for ``j <= i``."""
    ends = np.concatenate([[0.0], np.cumsum(of_block)])
    sums: NDArray[np.float64] = np.maximum(ends[None, :] - ends[:, None], 0.0)
    return sums


def stage_costs(problem: Problem[Any], chain: Chain) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds and bytes of every stage.

    ``[num_kinds, num_blocks + 1, num_blocks + 1]`` seconds are infinite where a kind lacks an op or a stage has no
    block; ``[num_blocks + 1, num_blocks + 1]`` are the bytes that its ops hold.
    """
    costs, count = problem.costs, chain.num_blocks
    moved = _moved(problem, chain)
    seconds = []
    for kind in range(len(costs.kinds)):
        of_block = np.bincount(
            chain.block_of_op, np.where(costs.supported[:, kind], costs.op_time_s[:, kind], 0.0), count
        )
        lacking = np.bincount(chain.block_of_op, ~costs.supported[:, kind], count)
        cost = _intervals(of_block) + moved[kind]
        cost[(_intervals(lacking) > 0) | ~np.triu(np.ones_like(cost, dtype=bool), 1)] = np.inf
        seconds.append(cost)
    return np.array(seconds), _intervals(np.bincount(chain.block_of_op, costs.op_memory_bytes, count)) + _shared(
        problem, chain
    )


def _shared(problem: Problem[Any], chain: Chain) -> NDArray[np.float64]:
    """``[num_blocks + 1, num_blocks + 1]`` bytes of weights that several ops use, once per stage."""
    size, weights = chain.num_blocks + 1, problem.costs.blocks
    held = np.zeros((size, size))
    if weights is None:
        return held
    for at, num_bytes in enumerate(weights.num_bytes.tolist()):
        users = chain.block_of_op[weights.ops[weights.offsets[at] : weights.offsets[at + 1]]]
        has_user = _intervals(np.bincount(users, minlength=chain.num_blocks).astype(np.float64)) > 0
        held += num_bytes * has_user
    return held


def _moved(problem: Problem[Any], chain: Chain) -> NDArray[np.float64]:
    """``[num_kinds, num_blocks + 1, num_blocks + 1]`` seconds of the tensors that enter or leave a stage."""
    graph, time_s = problem.graph, problem.costs.transfer_time_s
    size = chain.num_blocks + 1
    moved = np.zeros((time_s.shape[1], size, size))
    made = chain.block_of_op[graph.tensor_producer]
    readers: dict[int, set[int]] = {}
    for tensor, block in zip(graph.consumed_tensor.tolist(), chain.block_of_op[graph.consumers].tolist(), strict=True):
        if block != made[tensor]:
            readers.setdefault(tensor, set()).add(block)
    for tensor, blocks in readers.items():
        first, last = int(made[tensor]), max(blocks)
        cost = time_s[tensor][:, None, None]
        moved[:, : first + 1, first + 1 : last + 1] += cost  # made inside, and read behind
        for begin in range(first + 1, last + 1):  # made before, and read inside
            read = min(block for block in blocks if block >= begin)
            moved[:, begin : begin + 1, read + 1 :] += cost
    return moved


class BlockChain(Method):
    """Exact dynamic program over runs of blocks, for problems whose classes form a chain.

    Parameters
    ----------
    is_even
        True for runtimes that have as many replicas of every stage: the best such plan, with the bound of all plans.
    first_kind
        Kind of the first card of the chain: the best such plan, with the bound of all plans; None for any.
    """

    name = "blocks"

    def __init__(self, *, is_even: bool = False, first_kind: str | None = None) -> None:
        super().__init__()
        self.is_even = is_even
        self.first_kind = first_kind

    def supports(self, problem: Problem[Any]) -> str | None:
        """Say what the method cannot do."""
        objective = problem.objective
        if not (isinstance(objective, SerialLatency) or (isinstance(objective, Throughput) and not objective.overlap)):
            return "it knows serial-latency, and throughput without overlap"
        if isinstance(objective, SerialLatency) and objective.subgraph_cost_s:
            return "it knows no fixed cost of a subgraph"
        if isinstance(objective, Throughput) and objective.teams == "any":
            return "it knows teams of equal devices only"
        if problem.has_direct_links or problem.contiguity is Contiguity.NONE or problem.graph.is_backward.any():
            return "it needs contiguity, links through host memory, and no backward ops"
        if problem.objective.team_rule != "off" and (problem.pinned != UNPINNED).any():
            return "it knows no pins of teams"
        if problem.costs.blocks is not None and not problem.costs.blocks.is_weight.all():
            return "of memory that ops share it knows weights only"
        chain = chain_of(problem)
        if chain is None:
            return "its classes are no chain"
        groups = _groups(problem)
        states = float(np.prod([len(group) + 1.0 for group in groups]))
        if states * sum(map(len, groups)) * (chain.num_blocks + 1) ** 2 > MAX_WORK:
            return "there are too many kinds of devices"
        return None

    def run(self, run: Run[Any]) -> StopReason:
        """Find the best chain, offer it, and prove it."""
        problem = run.problem
        chain = chain_of(problem)
        assert chain is not None
        found = chain_plan(problem)
        if found is None:
            return run.prove_infeasible(Violation("memory", _too_small(problem, chain), unit="bytes"))
        bound = found.value * (1 - chain.num_blocks * _ROUNDING)
        if self.first_kind is not None:
            found = chain_plan(problem, self.first_kind) or found
        if self.is_even:
            sizes = sorted({choice.devices for choice in found.choices})
            found = min((even for size in sizes if (even := found.of_size(size))), key=lambda each: each.value)
        at, teams = np.zeros(chain.num_blocks, dtype=np.int64), np.arange(problem.platform.num_devices)
        taken = [0] * len(found.groups)
        for stage in found.stages:
            choice = found.choices[stage.choice]
            begin = taken[choice.group]
            members = found.groups[choice.group][begin : begin + choice.devices]
            taken[choice.group] += choice.devices
            at[stage.begin : stage.end] = members[0]
            teams[list(members)] = members[0]
        placement = Placement(
            problem.graph.op_names, problem.platform.device_names, at[chain.block_of_op], team_of_device=teams
        )
        run.offer(placement)
        run.raise_bound(bound, "DP over runs of blocks")
        return run.should_stop() or StopReason.FINISHED


@dataclass(frozen=True)
class ChainPlan:
    """The best plan of a chain of blocks."""

    value: float  # seconds
    # stages, choices, groups: its stages, the sorts of stages of which they are, and the interchangeable devices of
    # which these are
    stages: tuple[Stage, ...]
    choices: Sequence[Choice]
    groups: Sequence[tuple[int, ...]]
    is_sum: bool  # True for the sum of the stages' seconds, False for the largest

    def of_size(self, devices: int) -> ChainPlan | None:
        """Return the best plan whose stages take as many devices each; None if there is none."""
        return _planned([each for each in self.choices if each.devices == devices], self.groups, is_sum=self.is_sum)


def chain_plan(problem: Problem[Any], first_kind: str | None = None) -> ChainPlan | None:
    """Return the best plan of a problem that `BlockChain` supports; None if there is none.

    With `first_kind` the first card of the chain is of that kind.
    """
    chain = chain_of(problem)
    assert chain is not None
    groups, devices = _groups(problem), problem.platform.devices
    choices = list(_choices(problem, chain, groups))
    lead = (
        None
        if first_kind is None
        else Lead(
            frozenset(at for at, group in enumerate(groups) if devices[group[0]].is_host),
            frozenset(at for at, group in enumerate(groups) if devices[group[0]].kind == first_kind),
        )
    )
    return _planned(choices, groups, is_sum=isinstance(problem.objective, SerialLatency), lead=lead)


def _planned(
    choices: Sequence[Choice], groups: Sequence[tuple[int, ...]], *, is_sum: bool, lead: Lead | None = None
) -> ChainPlan | None:
    sizes = [len(group) for group in groups]
    found = best_chain(choices, sizes, len(choices[0].cost_s) - 1, is_sum=is_sum, lead=lead)
    return None if found is None else ChainPlan(*found, choices, groups, is_sum)


def is_feasible_chain(problem: Problem[Any]) -> bool:
    """Return whether some run of blocks per device fits; the problem must be one that `BlockChain` supports.

    Times do not matter: a stage that can be costs nothing.
    """
    chain = chain_of(problem)
    if chain is None:
        return False
    groups = _groups(problem)
    free = [
        Choice(each.group, each.devices, np.where(np.isfinite(each.cost_s), 0.0, np.inf))
        for each in _choices(problem, chain, groups)
        if each.devices == 1
    ]
    return best_chain(free, [len(group) for group in groups], chain.num_blocks, is_sum=False) is not None


def _too_small(problem: Problem[Any], chain: Chain) -> str:
    """Return what lacks where no plan fits: bytes in all, or room for whole blocks."""
    needed = float(problem.costs.op_memory_bytes.sum())
    limits = [device.memory_bytes for device in problem.platform.devices]
    room = sum(limit for limit in limits if limit is not None)
    if None not in limits and needed > room:
        return (
            f"the model needs {format_bytes(needed)}, {format_bytes(needed - room)} more than all devices have together"
        )
    return f"no runs of the {chain.num_blocks} blocks, one per device, fit into the memory of the devices"


def device_costs(problem: Problem[Any], chain: Chain, devices: Iterable[int]) -> Iterator[NDArray[np.float64]]:
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


def _groups(problem: Problem[Any]) -> list[tuple[int, ...]]:
    """Return devices that are interchangeable: of one kind, and nothing is pinned to them."""
    members: dict[int, list[int]] = {}
    for device, twin in enumerate(problem.twin_of_device.tolist()):
        members.setdefault(twin, []).append(device)
    return [tuple(group) for group in members.values()]


def _choices(problem: Problem[Any], chain: Chain, groups: Sequence[tuple[int, ...]]) -> Iterator[Choice]:
    """Yield the stages of every group, of every size that a team may have."""
    costs = device_costs(problem, chain, [group[0] for group in groups])
    for at, (group, cost) in enumerate(zip(groups, costs, strict=True)):
        for size in range(1, len(group) + 1 if problem.objective.team_rule == "equal" else 2):
            yield Choice(at, size, cost / size)

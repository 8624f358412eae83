"""A problem in whole numbers: what the verifier works on, so that nothing is ever rounded.

Every float is a whole number times a power of two. With the smallest power that occurs as unit, times become whole
numbers of *ticks* and sums, differences and comparisons are exact. Only the raw arrays of a
:class:`~placekit.model.problem.Problem` are read; everything that follows from them (classes, order graph, topological
positions) is worked out here again, in plain Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import networkx

from placekit.objectives import Makespan
from placekit.verification.graphs import components, topological_positions

if TYPE_CHECKING:
    from placekit.model.platform import Platform
    from placekit.model.problem import Problem


def fits(used: int, limit: int | None) -> bool:
    """Return whether `used` units of memory fit into `limit`, with the relative tolerance of 1e-12 that limits have."""
    return limit is None or used * 10**12 <= limit * (10**12 + 1)


def rounded(value: Fraction) -> float:
    """Return the float next to `value`; the largest one if it is beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def _whole_lists(*lists: list[float]) -> list[list[int]]:
    """Return the lists in whole numbers of one unit."""
    whole, _ = _whole(list(chain.from_iterable(lists)))
    ends = list(accumulate(map(len, lists), initial=0))
    return [whole[start:end] for start, end in pairwise(ends)]


def _whole(values: Iterable[float]) -> tuple[list[int], int]:
    """Return the values as whole numbers of the unit ``2**-shift``, and the shift."""
    ratios = [float(value).as_integer_ratio() for value in values]
    shift = max((bottom.bit_length() - 1 for _, bottom in ratios), default=0)
    return [top << (shift - bottom.bit_length() + 1) for top, bottom in ratios], shift


def _links(platform: Platform) -> list[list[int | None]]:
    """Return the direct link of every pair of devices: the one of their kinds, else of any kinds, else None."""
    table: list[list[int | None]] = [[None] * len(platform.devices) for _ in platform.devices]
    for a, one in enumerate(platform.devices):
        for b, other in enumerate(platform.devices):
            for number, link in enumerate(platform.direct_links):
                fits_kinds = link.kinds is None or sorted(link.kinds) == sorted((one.kind, other.kind))
                is_special = link.kinds is not None or table[a][b] is None
                if a != b and link.between_nodes == (one.node != other.node) and fits_kinds and is_special:
                    table[a][b] = number
    return table


@dataclass(frozen=True, eq=False)
class ExactProblem:
    """The raw numbers of a problem, exactly."""

    problem: Problem  # the problem, for its names and its objective
    tick: Fraction  # seconds per tick
    time: list[list[int | None]]  # ``[num_ops][num_kinds]`` ticks; None where not supported
    transfer: list[list[int]]  # ``[num_tensors][num_kinds]`` ticks
    # memory, limit: ``[num_ops]`` and ``[num_devices]`` in one unit of memory; None for no limit
    memory: list[int]
    limit: list[int | None]
    pools: list[tuple[list[int], int]]  # devices that share one memory, and its size in that unit
    # blocks, block_size: ``[num_blocks]`` ops of each memory block, and its size in that unit
    blocks: list[list[int]]
    block_size: list[int]
    tensor_size: list[int]  # ``[num_tensors]`` in that unit, times the slots of a queue; 0 without queues
    # kind, is_host: ``[num_devices]``
    kind: list[int]
    is_host: list[bool]
    # producer, readers: ``[num_tensors]`` op that writes each tensor, and the ops that read it, as often as they name
    # it
    producer: list[int]
    readers: list[list[int]]
    pinned: list[int | None]  # ``[num_ops]`` device; None for any
    # direct, link: ``[num_tensors][num_links]`` ticks over direct links, and ``[num_devices][num_devices]`` the link of
    # every pair; None for the way through host memory
    direct: list[list[int]]
    link: list[list[int | None]]

    @classmethod
    def of(cls, problem: Problem) -> ExactProblem:
        """Return `problem` in whole numbers. O(ops * kinds + edges)."""
        graph, costs, devices = problem.graph, problem.costs, problem.platform.devices
        num_kinds = len(costs.kinds)
        times = costs.op_time_s, costs.transfer_time_s, costs.direct_time_s
        flat, shift = _whole(chain.from_iterable(each.ravel().tolist() for each in times))
        num_links = len(problem.platform.direct_links)
        own = len(flat) - graph.num_tensors * num_links
        rows = [flat[at : at + num_kinds] for at in range(0, own, num_kinds)]
        direct = [flat[own + t * num_links : own + (t + 1) * num_links] for t in range(graph.num_tensors)]
        time = [
            [ticks if able else None for ticks, able in zip(row, supported, strict=True)]
            for row, supported in zip(rows[: graph.num_ops], costs.supported.tolist(), strict=True)
        ]
        limits = [device.memory_bytes for device in devices]
        blocks: list[list[int]] = []
        sizes, slots = [], 0
        if costs.blocks is not None:
            bounds, members = costs.blocks.offsets.tolist(), costs.blocks.ops.tolist()
            blocks = [members[start:end] for start, end in pairwise(bounds)]
            sizes = costs.blocks.num_bytes.tolist()
            slots = costs.blocks.queue_slots if problem.objective.has_pipeline else 0
        tensors = graph.tensor_bytes.tolist() if slots else [0.0] * graph.num_tensors
        pools, names = problem.platform.pools, [device.name for device in devices]
        of_ops, of_limits, of_pools, of_blocks, of_tensors = _whole_lists(
            costs.op_memory_bytes.tolist(),
            [0.0 if limit is None else limit for limit in limits],
            [pool.memory_bytes for pool in pools],
            sizes,
            tensors,
        )
        kinds: dict[str, int] = {}
        offsets, consumers = graph.consumer_offsets.tolist(), graph.consumers.tolist()
        return cls(
            problem,
            Fraction(1, 1 << shift),
            time,
            rows[graph.num_ops :],
            of_ops,
            [None if limit is None else w for limit, w in zip(limits, of_limits, strict=True)],
            [([names.index(each) for each in pool.devices], w) for pool, w in zip(pools, of_pools, strict=True)],
            blocks,
            of_blocks,
            [size * slots for size in of_tensors],
            [kinds.setdefault(device.kind, len(kinds)) for device in devices],
            [device.is_host for device in devices],
            graph.tensor_producer.tolist(),
            [consumers[offsets[t] : offsets[t + 1]] for t in range(graph.num_tensors)],
            [None if pin < 0 else pin for pin in problem.pinned.tolist()],
            direct,
            _links(problem.platform),
        )

    @property
    def has_links(self) -> bool:
        """True if some pair of devices has a direct link."""
        return any(link is not None for row in self.link for link in row)

    @cached_property
    def without_links(self) -> ExactProblem:
        """The problem with all tensors through host memory, in which no objective is larger; itself without links.

        A device that moves a tensor pays there the least that it may pay here with any other device: its transfer to
        host memory, or the direct one if both its ends pay for it, or half of that if the receiver alone does and only
        the sum of both ends counts, so that their halves make it up.
        """
        if not self.has_links:
            return self
        ends, devices = self.problem.objective.direct_ends, range(self.num_devices)
        ways: list[set[int | None]] = [
            {self.link[a][b] for a in devices for b in devices if a != b and self.kind[a] == k}
            for k in range(max(self.kind) + 1)
        ]
        transfer = [
            [
                min((2 * own if link is None else ends * over[link] for link in ways[k]), default=2 * own)
                for k, own in enumerate(row)
            ]
            for row, over in zip(self.transfer, self.direct, strict=True)
        ]
        return replace(
            self,
            tick=self.tick / 2,
            time=[[None if ticks is None else 2 * ticks for ticks in row] for row in self.time],
            transfer=transfer,
            link=[[None] * self.num_devices] * self.num_devices,
        )

    @property
    def for_bounds(self) -> ExactProblem:
        """The problem that bounds are proven of: itself with free orders for a makespan, else without links."""
        if not isinstance(self.problem.objective, Makespan):
            return self.without_links  # the paths of a makespan know links
        free = self.problem.objective.free_order
        return self if free is self.problem.objective else replace(self, problem=self.problem.replace(objective=free))

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.time)

    @cached_property
    def turn(self) -> list[int]:
        """``[num_ops]`` when each op runs, for its memory: by index if that is an order, else `position`."""
        return list(range(self.num_ops)) if all(u < v for u, v in self.edges) else self.position

    def needed(self, inside: set[int], *, with_queues: bool = True) -> int:
        """Return the memory that a device needs for the ops `inside`, op by op and block by block."""
        total = sum(self.memory[op] for op in inside)
        if self.problem.costs.blocks is None:
            return total
        level = [0] * self.num_ops
        for ops, size, stays in zip(
            self.blocks, self.block_size, self.problem.costs.blocks.is_weight.tolist(), strict=True
        ):
            when = [self.turn[op] for op in ops if op in inside]
            if when and stays:
                total += size
            elif when:
                for turn in range(min(when), max(when) + 1):
                    level[turn] += size
        for producer, readers, size in zip(self.producer, self.readers, self.tensor_size, strict=True):
            if with_queues and len({op in inside for op in (producer, *readers)}) == 2:
                total += size
        return total + max(level)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.kind)

    @cached_property
    def is_backward(self) -> list[bool]:
        """``[num_ops]``."""
        flags: list[bool] = self.problem.graph.is_backward.tolist()
        return flags

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Distinct (producing op, reading op)."""
        return sorted({(self.producer[t], reader) for t, readers in enumerate(self.readers) for reader in readers})

    @cached_property
    def inputs(self) -> list[list[int]]:
        """``[num_ops]`` distinct tensors that each op reads, ascending."""
        found: list[list[int]] = [[] for _ in range(self.num_ops)]
        for t, readers in enumerate(self.readers):
            for op in sorted(set(readers)):
                found[op].append(t)
        return found

    @cached_property
    def outputs(self) -> list[list[int]]:
        """``[num_ops]`` tensors that each op writes, ascending."""
        found: list[list[int]] = [[] for _ in range(self.num_ops)]
        for t, op in enumerate(self.producer):
            found[op].append(t)
        return found

    @cached_property
    def position(self) -> list[int]:
        """``[num_ops]`` topological position: Kahn's algorithm, readers in the order of tensors."""
        following: list[list[int]] = [[] for _ in range(self.num_ops)]
        for t, op in enumerate(self.producer):
            following[op] += self.readers[t]
        return [place for place in topological_positions(self.num_ops, following) if place is not None]

    @cached_property
    def in_order(self) -> list[int]:
        """All ops, topologically."""
        return sorted(range(self.num_ops), key=self.position.__getitem__)

    @cached_property
    def class_of(self) -> list[int]:
        """``[num_ops]`` class of ops that share a device: the same colocation label, or the same fused group."""
        pairs = []
        for labels in (self.problem.colocation.tolist(), self.problem.costs.op_group.tolist()):
            first: dict[int, int] = {}
            pairs += [(first.setdefault(label, op), op) for op, label in enumerate(labels)]
        return components(self.num_ops, pairs)

    @cached_property
    def order_edges(self) -> list[tuple[int, int]]:
        """The edges that contiguity is about: forward, and reversed backward ones at classes without a forward op."""
        has_forward = {self.class_of[op] for op in range(self.num_ops) if not self.is_backward[op]}
        orphan = [c not in has_forward for c in self.class_of]
        found = []
        for u, v in self.edges:
            if not self.is_backward[u] and not self.is_backward[v]:
                found.append((u, v))
            elif self.is_backward[u] and self.is_backward[v] and (orphan[u] or orphan[v]):
                found.append((v, u))
        return found

    @cached_property
    def group_of(self) -> list[int]:
        """``[num_ops]`` as `class_of`, with classes joined that no placement under acyclic contiguity separates."""
        if self.problem.contiguity != "acyclic":
            return self.class_of
        num_classes = max(self.class_of) + 1
        crossing = networkx.DiGraph((self.class_of[u], self.class_of[v]) for u, v in self.order_edges)
        cycles = [sorted(each) for each in networkx.strongly_connected_components(crossing)]
        joined = components(num_classes, [(cycle[0], other) for cycle in cycles for other in cycle])
        first: dict[int, int] = {}
        return [first.setdefault(joined[c], len(first)) for c in self.class_of]

    @cached_property
    def groups(self) -> list[list[int]]:
        """Ops of each group of `group_of`."""
        found: list[list[int]] = [[] for _ in range(max(self.group_of) + 1)]
        for op, group in enumerate(self.group_of):
            found[group].append(op)
        return found

    @cached_property
    def allowed(self) -> list[list[int]]:
        """``[num_groups]`` devices that support all ops of the group, are no other than their pins, and hold them.

        With teams the pins' devices are members of the group's team, others may be; there is none if a pin's cannot be.
        """
        found = []
        for ops in self.groups:
            pins = {pin for op in ops if (pin := self.pinned[op]) is not None}
            size = self.needed(set(ops), with_queues=False)  # it grows with every op
            able = [all(self.time[op][k] is not None for op in ops) for k in range(max(self.kind) + 1)]
            can = [d for d in range(self.num_devices) if able[self.kind[d]] and fits(size, self.limit[d])]
            if self.team_rule == "off":
                found.append([d for d in can if not pins or pins == {d}])
                continue
            if self.team_rule == "equal" and pins:
                can = [d for d in can if {self.kind[pin] for pin in pins} == {self.kind[d]}]
            found.append(can if pins <= set(can) else [])
        return found

    @property
    def team_rule(self) -> str:
        """Devices that may form a team: ``"off"``, ``"equal"`` or ``"any"``."""
        return str(getattr(self.problem.objective, "teams", "off"))

    def num_equals(self, device: int) -> int:
        """Return how many devices there are of the kind of `device`."""
        return self.kind.count(self.kind[device])

    @cached_property
    def alike(self) -> list[int]:
        """``[num_devices]`` number of the set of interchangeable devices of each: same kind, and no pin at either.

        With direct links they are also on one node: then two of a kind have the same links to all others.
        """
        pins = set(self.pinned)
        number: dict[tuple[int, int | None, str | None], int] = {}
        node = [device.node if self.has_links else None for device in self.problem.platform.devices]
        return [number.setdefault((k, d if d in pins else None, node[d]), len(number)) for d, k in enumerate(self.kind)]

    def move(self, tensor: int, source: int, target: int) -> int:
        """Return the ticks of a tensor from device `source` to `target` in a makespan; 0 if these are the same."""
        if source == target:
            return 0
        link = self.link[source][target]
        if link is not None:
            return self.direct[tensor][link]
        return self.transfer[tensor][self.kind[source]] + self.transfer[tensor][self.kind[target]]

    def ticks(self, op: int, device: int) -> int:
        """Return the ticks of `op` on `device`, which supports it."""
        ticks = self.time[op][self.kind[device]]
        assert ticks is not None  # callers look first
        return ticks

    def seconds(self, ticks: int) -> Fraction:
        """Return `ticks` in seconds."""
        return ticks * self.tick

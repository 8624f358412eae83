"""Shared memory of ops: live tensors, weights with several readers, and slots of queues.

What an op holds all the time and alone is `CostTable.op_memory_bytes`. Beside that a device needs memory in *blocks*:
bytes with the ops that use them. Let :math:`S` be the ops of a device, and let all ops run one after the other in the
order of `positions`. A block of :math:`b` bytes takes of the device

- as a *weight*: :math:`b` if any of its ops is in :math:`S`, once however many are;
- as an *activation*: :math:`b` from the first to the last of its ops that are in :math:`S`. A tensor so lives from its
  producer to its last reader on the device; one that comes from elsewhere from its first reader on, and one that leaves
  until it is sent, which is when its producer or its last reader on the device has run;
- as a *queue*: for every tensor of which some ops are in :math:`S` and others are not, :math:`b` for each slot, under
  the objectives in which samples stream through the devices.

The memory of :math:`S` is the sum of what its ops hold, its weights and its queues, and the largest sum of activations
at any time. Without the queues it does not fall when ops join :math:`S`: more ops can only lengthen lives. Methods may
give up a part that is too large without its queues. And it is never less than what the ops hold alone: methods that
know nothing of blocks solve a relaxation.

Devices of a *pool* share one memory: the sum of what they need, each at its own peak, must fit into the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph, frozen_array
from placekit.model.reprs import short_repr

MEMORY_TOLERANCE = 1e-12
"""Relative slack on memory limits: sums of byte counts above 2**53 are rounded."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One memory that several devices share: what they hold together, each its own, must fit into it.

    Parameters
    ----------
    name
        Name, for messages.
    memory_bytes
        Its size, in bytes.
    devices
        Names of the devices that share it.

    Raises
    ------
    InvalidProblemError
        An empty name, no device, a device twice, or a size that is not a positive finite number.
    """

    name: str
    memory_bytes: float
    devices: tuple[str, ...]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        if not self.name or not self.devices or len(set(self.devices)) < len(self.devices):
            raise InvalidProblemError(f"pool {self.name!r} of {self.devices}: a name, and each device once")
        if not (math.isfinite(self.memory_bytes) and self.memory_bytes > 0):
            raise InvalidProblemError(
                f"pool {self.name!r} has memory_bytes {self.memory_bytes}; it must be finite and > 0"
            )

    @property
    def most_bytes(self) -> float:
        """Bytes that the judge lets its devices hold together, `MEMORY_TOLERANCE` included."""
        return self.memory_bytes * (1 + MEMORY_TOLERANCE)


class BlockKind(IntEnum):
    """When a block takes memory; see the module docstring."""

    ACTIVATION = 0
    WEIGHT = 1
    QUEUE = 2


@dataclass(frozen=True, eq=False)
class MemoryBlocks:
    """Bytes that ops share. Immutable; validated at construction.

    Parameters
    ----------
    num_bytes
        ``[num_blocks]`` size of each block.
    is_weight
        ``[num_blocks]`` True for a weight, False for an activation.
    offsets, ops
        CSR lists of the ops of each block, ``[num_blocks + 1]`` and ``[num_uses]``.
    queue_slots
        Slots that a tensor has on each side of a queue between devices, under objectives with a pipeline.

    Raises
    ------
    InvalidProblemError
        Arrays of the wrong length, a size that is negative or not finite, or a block without ops.
    """

    num_bytes: NDArray[np.float64]
    is_weight: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    ops: NDArray[np.int64]
    queue_slots: int = 0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        count = len(self.num_bytes)
        for name, dtype, length in (
            ("num_bytes", np.float64, count),
            ("is_weight", np.bool_, count),
            ("offsets", np.int64, count + 1),
            ("ops", np.int64, len(self.ops)),
        ):
            values = frozen_array(getattr(self, name), dtype, (length,), f"memory blocks: {name}")
            object.__setattr__(self, name, values)
        bad = np.flatnonzero(~(np.isfinite(self.num_bytes) & (self.num_bytes >= 0)))
        if len(bad):
            raise InvalidProblemError(
                f"memory blocks: block {bad[0]} has {self.num_bytes[bad[0]]} bytes; it must be finite and >= 0"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.ops):
            raise InvalidProblemError(
                f"memory blocks: offsets run from {self.offsets[0]} to {self.offsets[-1]}; they must run from 0 to "
                f"{len(self.ops)}"
            )
        empty = np.flatnonzero(np.diff(self.offsets) <= 0)
        if len(empty):
            raise InvalidProblemError(f"memory blocks: block {empty[0]} has no ops")
        if len(self.ops) and self.ops.min() < 0:
            raise InvalidProblemError(f"memory blocks: op {self.ops.min()} does not exist")
        if not (isinstance(self.queue_slots, int) and self.queue_slots >= 0):
            raise InvalidProblemError(f"memory blocks: queue_slots is {self.queue_slots}; it must be >= 0")

    @classmethod
    def of(cls, blocks: Sequence[tuple[float, bool, Sequence[int]]], queue_slots: int = 0) -> Self:
        """Return blocks that are given as bytes, whether each is a weight, and its ops."""
        return cls(
            np.array([num_bytes for num_bytes, _, _ in blocks], dtype=np.float64),
            np.array([is_weight for _, is_weight, _ in blocks], dtype=np.bool_),
            np.cumsum([0, *(len(ops) for _, _, ops in blocks)], dtype=np.int64),
            np.array([op for _, _, ops in blocks for op in ops], dtype=np.int64),
            queue_slots,
        )

    def renumbered(self, op_at: NDArray[np.int64]) -> Self:
        """Return the blocks of a table whose op ``i`` is op ``op_at[i]`` of this one; all ops must be in it."""
        new = np.empty(len(op_at), dtype=np.int64)
        new[op_at] = np.arange(len(op_at))
        return replace(self, ops=new[self.ops])

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """``[num_uses]`` block of each entry of `ops`."""
        return np.repeat(np.arange(len(self.num_bytes)), np.diff(self.offsets))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryBlocks):
            return NotImplemented
        names = ("num_bytes", "is_weight", "offsets", "ops")
        return self.queue_slots == other.queue_slots and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in names
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside: compare, do not hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.num_bytes, self.is_weight, self.offsets, self.ops, self.queue_slots))


class MemoryUse(NamedTuple):
    """Bytes on every device, by what they are for."""

    # weights, activations, queues: ``[num_devices]`` bytes; activations at the time when they are most
    weights: NDArray[np.float64]
    activations: NDArray[np.float64]
    queues: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """``[num_devices]`` bytes in all."""
        return self.weights + self.activations + self.queues


def positions(graph: OpGraph) -> NDArray[np.int64]:
    """``[num_ops]`` when each op runs: its index if the ops stand in topological order, else that of `OpGraph.order`.

    Models are read in the order in which the runtime runs them.
    """
    if (graph.senders < graph.receivers).all():
        return np.arange(graph.num_ops)
    return graph.rank


class StageMemory:
    """The memory that the ops of a device need, for one problem: what the module docstring says.

    Every block, queues included, has a `BlockKind` in `kind` and a size in `num_bytes`, ``[num_blocks]``. The ops of
    the blocks are CSR lists, `offsets` ``[num_blocks + 1]`` and `ops` ``[num_uses]``; for `position` see `positions`.
    """

    def __init__(
        self, graph: OpGraph, op_memory_bytes: NDArray[np.float64], blocks: MemoryBlocks | None, *, has_pipeline: bool
    ) -> None:
        self._own = op_memory_bytes
        self.position = positions(graph)
        if blocks is None:
            self.kind, self.num_bytes = np.zeros(0, dtype=np.int64), np.zeros(0)
            self.offsets, self.ops = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        else:
            sizes = np.diff(blocks.offsets)
            kind = np.where(blocks.is_weight, int(BlockKind.WEIGHT), int(BlockKind.ACTIVATION))
            self.kind, self.num_bytes, self.ops = kind, blocks.num_bytes, blocks.ops
            if has_pipeline and blocks.queue_slots:
                queued = np.flatnonzero(graph.tensor_bytes > 0)
                self.kind = np.append(kind, np.full(len(queued), int(BlockKind.QUEUE)))
                self.num_bytes = np.append(blocks.num_bytes, blocks.queue_slots * graph.tensor_bytes[queued])
                ends = [np.append(graph.tensor_producer[t], graph.consumers_of(t)) for t in queued.tolist()]
                sizes = np.append(sizes, [len(each) for each in ends]).astype(np.int64)
                self.ops = np.concatenate([blocks.ops, *ends])
            self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.owner = np.repeat(np.arange(len(self.num_bytes)), np.diff(self.offsets))

    @property
    def most_bytes(self) -> float:
        """No set of ops needs more than this."""
        return float(self._own.sum() + self.num_bytes.sum())

    def use(self, device_of_op: NDArray[np.int64], num_devices: int) -> MemoryUse:
        """Return what every device needs for its ops. O(uses log uses)."""
        weights = sum_by(device_of_op, self._own, num_devices)
        nothing = np.zeros(num_devices)
        if not len(self.num_bytes):
            return MemoryUse(weights, nothing, nothing)
        keys = self.owner * num_devices + device_of_op[self.ops]
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        block, device = np.divmod(keys[order][starts], num_devices)
        when = self.position[self.ops][order]
        first, last = np.minimum.reduceat(when, starts), np.maximum.reduceat(when, starts)
        num_bytes, kind = self.num_bytes[block], self.kind[block]
        is_weight, is_live = kind == BlockKind.WEIGHT, kind == BlockKind.ACTIVATION
        weights = weights + sum_by(device[is_weight], num_bytes[is_weight], num_devices)
        is_split = (kind == BlockKind.QUEUE) & (np.bincount(block, minlength=len(self.num_bytes))[block] > 1)
        queues = sum_by(device[is_split], num_bytes[is_split], num_devices)
        return MemoryUse(
            weights, _peaks(device[is_live], first[is_live], last[is_live], num_bytes[is_live], num_devices), queues
        )

    def most_together(self, num_devices: int) -> float:
        """Return bytes that so many devices never need more than together: blocks count once for each, or each use."""
        times = np.minimum(np.diff(self.offsets), num_devices)
        return float(self._own.sum() + (self.num_bytes * times).sum())

    def of(self, inside: NDArray[np.bool_]) -> float:
        """Return the bytes that a device needs for the ops ``[num_ops]`` `inside`."""
        return float(self.use(inside.astype(np.int64), 2).total[1])

    def without_queues(self, inside: NDArray[np.bool_]) -> float:
        """Return the bytes of `of` but for queues: no set of more ops needs less."""
        use = self.use(inside.astype(np.int64), 2)
        return float(use.weights[1] + use.activations[1])

    def live_bytes(self, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
        """``[num_ops]`` activations that the ops ``[num_ops]`` `inside` keep alive at every position. O(uses)."""
        uses = np.flatnonzero((self.kind[self.owner] == BlockKind.ACTIVATION) & inside[self.ops])
        owner, when = self.owner[uses], self.position[self.ops[uses]]
        first, last = np.full(len(self.num_bytes), len(inside)), np.full(len(self.num_bytes), -1)
        np.minimum.at(first, owner, when)
        np.maximum.at(last, owner, when)
        used = np.flatnonzero(last >= 0)
        change = np.zeros(len(inside) + 1)
        np.add.at(change, first[used], self.num_bytes[used])
        np.subtract.at(change, last[used] + 1, self.num_bytes[used])
        return np.cumsum(change)[:-1]


def _peaks(
    device: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    num_bytes: NDArray[np.float64],
    num_devices: int,
) -> NDArray[np.float64]:
    """``[num_devices]`` most bytes at any time of blocks that each live from `first` to `last`, both included."""
    where, when = np.tile(device, 2), np.concatenate([first, last + 1])
    change = np.concatenate([num_bytes, -num_bytes])
    order = np.lexsort((change, when, where))  # what ends makes room for what begins
    level = np.cumsum(change[order])  # every device ends at 0
    peak = np.zeros(num_devices)
    np.maximum.at(peak, where[order], level)
    return peak

r"""Rows of a program for memory that ops share: one per device and position in the order of the ops.

A device :math:`d` must have room at every position :math:`p`:

.. math::
    \sum_c b_c x_{cd} + \sum_{\text{weights}} b y + \sum_{\text{activations}} b l_p + \sum_{\text{queues}} b z
    \le M_d

All three indicators are linear in membership:

- Weight: :math:`y = 1` if the device has any class of the weight, so :math:`y \ge x_c` for every class.
- Activation: :math:`l_p = 1` if the device has one of its ops at or before p and one at or after p. So
  :math:`l_p \ge x_a + x_b - 1` for every class a at or before p and b at or after p, and :math:`l_p \ge x_c` for a
  class that is both.
- Queue: :math:`z = 1` if the device has some classes of the tensor, but not all. So :math:`z \ge x_a - x_b` and
  :math:`z \ge x_b - x_a` for the producer's class a and every reader's class b.

Rows exist for the positions at which all ops together need most, and for those at which an answer did not fit. If an
answer has its row and still exceeds the limit, by the tolerance of the solver, that answer is forbidden.

A pool has one row over all of its devices, where no bytes are shared by ops: :math:`\sum_{d, c} b_c x_{cd} \le M`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE, BlockKind
from placekit.model.problem import Problem
from placekit.solvers.generic.coarsen import Contraction

OPENING_ROWS = 6
"""Number of positions that have rows from the start."""


class Shared(NamedTuple):
    """Bytes that a device needs if it has certain classes."""

    num_bytes: float
    # ``"any"``: it has one of `first`; ``"live"``: one of `first` and one of `last`; ``"split"``: some of `first`, but
    # not all
    rule: Literal["any", "live", "split"]
    first: tuple[int, ...]  # classes; for ``"split"`` the producer's comes first
    last: tuple[int, ...] = ()  # classes; for ``"live"`` only

    def counts(self, inside: NDArray[np.bool_]) -> bool:
        """Return True if a device with the classes ``[C]`` `inside` needs the bytes."""
        first = inside[list(self.first)]
        if self.rule == "live":
            return bool(first.any() and inside[list(self.last)].any())
        return bool(first.any() and not (self.rule == "split" and first.all()))


@dataclass(frozen=True)
class MemoryRow:
    """Memory that classes need on a device at one position."""

    class_bytes: NDArray[np.float64]  # ``[num_classes]`` bytes of each class alone
    shared: tuple[Shared, ...]  # bytes that classes share

    @property
    def most_bytes(self) -> float:
        """Bytes of all classes together."""
        return float(self.class_bytes.sum() + sum(each.num_bytes for each in self.shared))


class Excess(NamedTuple):
    """Device whose limit an answer exceeds."""

    device: int  # index of the device
    position: int  # position with the most live bytes
    classes: NDArray[np.bool_]  # ``[C]`` True for the classes on the device that need memory
    grows: bool  # True if no larger set of classes fits either


class PoolRow(NamedTuple):
    """Memory that devices share."""

    devices: tuple[int, ...]  # indices
    most_bytes: float  # as the judge counts, tolerance included


def knows_pools(problem: Problem[Any]) -> bool:
    """Return True if the programs have rows for the pools of `problem`: no teams, no links, no bytes that ops share.

    Such bytes have their peaks at another position on each device.
    """
    return problem.objective.team_rule == "off" and problem.costs.blocks is None and not problem.has_direct_links


def pool_rows(problem: Problem[Any]) -> list[PoolRow]:
    """Return the pools that may be exceeded."""
    platform = problem.platform
    return [PoolRow(tuple(platform.members_of(pool).tolist()), pool.most_bytes) for pool in problem.tight_pools]


def overfull_pools(contraction: Contraction, device_of_op: NDArray[np.int64]) -> Iterator[tuple[PoolRow, list[int]]]:
    """Yield the pools that an answer exceeds, as `evaluate` finds them, and the classes in each that have bytes."""
    use = contraction.problem.stage_memory.use(device_of_op, contraction.problem.platform.num_devices).total
    device_of_class = contraction.restrict(device_of_op)
    for row in pool_rows(contraction.problem):
        if use[list(row.devices)].sum() > row.most_bytes:
            inside = np.isin(device_of_class, row.devices) & (contraction.memory_bytes > 0)
            yield row, np.flatnonzero(inside).tolist()


def memory_row(contraction: Contraction, position: int) -> MemoryRow:
    """Return the row at `position`, which is the same for every device."""
    memory = contraction.problem.stage_memory
    class_bytes = contraction.memory_bytes.copy()
    shared: dict[tuple[str, tuple[int, ...], tuple[int, ...]], float] = {}
    class_of_use = contraction.class_of_op[memory.ops].tolist()
    when = memory.position[memory.ops].tolist()
    bounds = memory.offsets.tolist()
    for kind, num_bytes, start, end in zip(
        memory.kind.tolist(), memory.num_bytes.tolist(), bounds, bounds[1:], strict=False
    ):
        classes = list(dict.fromkeys(class_of_use[start:end]))
        rule, first, last = "any", tuple(classes), ()
        if kind == BlockKind.QUEUE:
            rule = "split"
            if len(classes) == 1:
                continue
        elif kind == BlockKind.ACTIVATION:
            at = list(zip(class_of_use[start:end], when[start:end], strict=True))
            first = tuple(dict.fromkeys(c for c, turn in at if turn <= position))
            last = tuple(dict.fromkeys(c for c, turn in at if turn >= position))
            if not first or not last:
                continue
            rule = "live"
        if len(classes) == 1:
            class_bytes[classes[0]] += num_bytes
        else:
            shared[rule, first, last] = shared.get((rule, first, last), 0.0) + num_bytes
    return MemoryRow(class_bytes, tuple(Shared(b, *key) for key, b in shared.items() if b))  # type: ignore[arg-type]


def opening_positions(contraction: Contraction) -> list[int]:
    """Return, ascending, the positions of the highest local maxima of the bytes that all ops together need."""
    level = contraction.problem.stage_memory.live_bytes(np.ones(contraction.problem.graph.num_ops, dtype=np.bool_))
    rises = np.diff(level, prepend=-1.0) > 0
    falls = np.append(level[:-1] > level[1:], True)
    tops = np.flatnonzero(rises & falls)
    if not len(tops):
        return [int(np.argmax(level))]
    return sorted(tops[np.argsort(-level[tops], kind="stable")][:OPENING_ROWS].tolist())


def excesses(contraction: Contraction, device_of_op: NDArray[np.int64]) -> Iterator[Excess]:
    """Yield the devices whose limit an answer exceeds, as `evaluate` finds them."""
    memory, limits = contraction.problem.stage_memory, contraction.problem.platform.memory_limits_bytes
    use = memory.use(device_of_op, len(limits)).total
    device_of_class = contraction.restrict(device_of_op)
    has_blocks = len(memory.num_bytes) > 0
    for d in np.flatnonzero(use > limits).tolist():
        inside = device_of_op == d
        position = int(np.argmax(memory.live_bytes(inside)))
        needs = has_blocks | (contraction.memory_bytes > 0)
        # rounding may lower a sum of more blocks slightly, but not a sum of more sizes
        grows = not has_blocks or memory.without_queues(inside) > limits[d] * (1 + MEMORY_TOLERANCE)
        yield Excess(d, position, (device_of_class == d) & needs, bool(grows))

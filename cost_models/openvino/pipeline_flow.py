"""When a stage of a pipeline may run: bounded queues as counters.

Nodes are the stages ``0 .. num_stages - 1``, the *source* that puts samples in, and the *sink* that takes results out.
Every node handles samples ``0, 1, 2, ...`` in this order, so how far it has come is one number, ``done[node]``. What a
node writes goes into a ring of ``depth[node]`` slots, sample ``n`` into slot ``n % depth``, and stays there until every
reader has handled it. So a node may handle sample ``n`` if and only if

* every producer has done it: ``done[producer] > n``;
* its slot is free again: ``done[consumer] > n - depth[node]`` for every consumer.

Pipelines in one process and across processes share these rules: threads share the counters under a lock, processes
each keep their own copy and tell each other of every step.

No deadlock: let ``n`` be the oldest sample that is not through. Whatever holds a slot that ``n`` needs belongs to an
older sample, of which there is none, so that the first stage that ``n`` has not passed may run.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placekit.errors import InvalidProblemError

if TYPE_CHECKING:
    from placekit.cost_models.openvino.split import TensorKey
    from placekit.cost_models.openvino.stages import StagePlan

__all__ = ["Flow", "Wiring", "wire"]


@dataclass(frozen=True)
class Wiring:
    """Who reads whose tensors, and how many samples fit between them.

    Parameters
    ----------
    producers, consumers
        ``[num_stages + 2]`` nodes that each node reads from, and nodes that read from it.
    depth
        ``[num_stages + 2]`` slots of each node's ring; the sink has none, its entry is not used.
    writer
        Node that writes each tensor that is read by another one.
    """

    producers: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    writer: dict[TensorKey, int]

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.producers) - 2

    @property
    def source(self) -> int:
        """The node that puts samples in."""
        return self.num_stages

    @property
    def sink(self) -> int:
        """The node that takes results out."""
        return self.num_stages + 1


def wire(plan: StagePlan, queue_size: int) -> Wiring:
    """Return the wiring of a plan.

    A tensor that skips stages waits while the samples before it pass them, so its ring grows with the number of stages
    that it skips. It ends at one slot per device, as many samples as can be worked on at once, and `queue_size` more,
    so that memory does not grow with the number of stages.

    Parameters
    ----------
    plan
        The stages.
    queue_size
        Samples that fit between a stage and the next; with 1 two neighbours never work at the same time.

    Raises
    ------
    InvalidProblemError
        A queue size below 1.
    """
    if queue_size < 1:
        raise InvalidProblemError(f"pipeline of {plan.name!r}: queue_size is {queue_size}; it must be >= 1")
    count = len(plan.stages)
    source, sink = count, count + 1
    writer = dict.fromkeys(plan.input_keys, source)
    for index, stage in enumerate(plan.stages):
        writer |= dict.fromkeys(stage.outputs, index)
    reads = [{writer[key] for key in stage.inputs} for stage in plan.stages]
    reads += [set(), {writer[key] for key in plan.output_keys}]
    for index in range(count):
        if not reads[index]:  # a stage that needs no input still runs once per sample
            reads[index].add(source)
    unread = set(range(count + 1)).difference(*reads)
    reads[sink] |= unread
    consumers: list[list[int]] = [[] for _ in reads]
    for node, producers in enumerate(reads):
        for producer in sorted(producers):
            consumers[producer].append(node)
    level = {source: 0}
    for node in (*range(count), sink):  # stages come in an order in which they can run
        level[node] = 1 + max(level[producer] for producer in reads[node])
    span = [max((level[reader] - level[node] for reader in consumers[node]), default=1) for node in range(count + 2)]
    limit = queue_size + len(plan.devices)
    depth = tuple(queue_size if each == 1 else min(queue_size * each, limit) for each in span)
    return Wiring(tuple(tuple(sorted(each)) for each in reads), tuple(map(tuple, consumers)), depth, writer)


class Flow:
    """How far every node has come, and which of them can go on.

    Parameters
    ----------
    wiring
        The pipeline.
    owner_of_node
        ``[num_stages + 2]`` worker of each node; only its own nodes are ever given to a worker.
    takers
        Workers that `take` from here. Where each keeps its own copy, the work of the others must not pile up in it.

    Notes
    -----
    A step costs O(neighbours of the node * log nodes).
    """

    def __init__(self, wiring: Wiring, owner_of_node: Sequence[int], takers: Collection[int]) -> None:
        self.wiring = wiring
        self.done = [0] * len(wiring.producers)
        self._owner = owner_of_node
        self._ready: dict[int, list[tuple[int, int]]] = {owner: [] for owner in takers}
        self._is_taken = [False] * len(wiring.producers)  # in a heap of `_ready`, or being worked on
        self._offer(wiring.source)

    def may_start(self, node: int) -> bool:
        """Whether `node` has all it needs for its next sample."""
        wiring, sample = self.wiring, self.done[node]
        return all(self.done[each] > sample for each in wiring.producers[node]) and all(
            self.done[each] > sample - wiring.depth[node] for each in wiring.consumers[node]
        )

    def take(self, owner: int) -> tuple[int, int] | None:
        """Return the next work of a worker as (node, sample), the oldest sample first; None if there is none now."""
        if not self._ready[owner]:
            return None
        sample, node = heapq.heappop(self._ready[owner])
        return node, sample

    def has_work(self, owner: int) -> bool:
        """Whether `take` would return something."""
        return bool(self._ready[owner])

    def finish(self, node: int) -> set[int]:
        """Count one more sample of `node` as done; return the workers that have got new work by that."""
        self.done[node] += 1
        self._is_taken[node] = False
        changed = set()
        for each in (node, *self.wiring.consumers[node], *self.wiring.producers[node]):
            if self._offer(each):
                changed.add(self._owner[each])
        return changed

    def _offer(self, node: int) -> bool:
        heap = self._ready.get(self._owner[node])
        if heap is None or self._is_taken[node] or not self.may_start(node):
            return False
        self._is_taken[node] = True
        heapq.heappush(heap, (self.done[node], node))
        return True

"""When a stage of a pipeline may run: bounded queues as counters.

Nodes are the stages ``0 .. num_stages - 1``, the *source* that puts samples in, and the *sink* that takes results out.
Every node begins samples ``0, 1, 2, ...`` in this order. The members of a team work on several at once and may end them
in another order; ``done[node]`` counts the samples before the first one that is not ended. What a node writes goes into
a ring of ``depth[node]`` slots, sample ``n`` into slot ``n % depth``, and stays there until every reader has handled
it. So a node may begin sample ``n`` if and only if

* every producer has done it: ``done[producer] > n``;
* its slot is free again: ``done[consumer] > n - depth[node]`` for every consumer.

A sample goes to whichever member of the team is free first. Because the order of samples is kept from stage to stage, a
slow member holds the others up only when they are ahead of it by as much as the rings hold, see `wire`.

Threads share the counters under a lock.

No deadlock: let ``n`` be the oldest sample that is not through. Whatever holds a slot that ``n`` needs belongs to an
older sample, of which there is none, so that the first stage that ``n`` has not passed may run, or runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placekit.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from placekit.cost_models.openvino.split import TensorKey
    from placekit.model.platform import Device
    from placekit.runtime.stages.stage_plan import StagePlan

_AHEAD = 8
"""Samples by which each further member of a team may be ahead of the slowest."""


@dataclass(frozen=True)
class Wiring:
    """Readers of every stage's tensors, and the number of samples that fit between two stages."""

    # producers, consumers: ``[num_stages + 2]`` nodes that each node reads from, and nodes that read from it
    producers: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]  # ``[num_stages + 2]`` slots of each node's ring; the sink has none, its entry is not used
    writer: dict[TensorKey, int]  # node that writes each tensor that is read by another one

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
    that it skips. It ends at one slot per team, as many samples as can be worked on at once, and `queue_size` more,
    so that memory does not grow with the number of stages.

    Where a team of several works, the rings before, behind and around it have room for the samples that some of its
    members end while the slowest is at one, and for those that wait at members: eight for each further member.
    `queue_size` samples fit between a stage and the next; with 1 two neighbours never work at the same time.
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
    limit = queue_size + len(plan.teams)
    depth = [queue_size if each == 1 else min(queue_size * each, limit) for each in span]
    ahead = [samples_ahead(stage.members) for stage in plan.stages] + [0, 0]
    most = sum(map(samples_ahead, plan.teams))
    ahead_at = [max((ahead[node] for node in level if level[node] == at), default=0) for at in range(count + 2)]
    for node in range(count + 1):
        around = sum(ahead_at[level[node] : level[node] + span[node] + 1])
        depth[node] += min(around, most)
    return Wiring(tuple(tuple(sorted(each)) for each in reads), tuple(map(tuple, consumers)), tuple(depth), writer)


def samples_ahead(team: Sequence[Device]) -> int:
    """Return how many samples the other members of a team may end while the slowest is at one."""
    return _AHEAD * (len(team) - 1)


class Flow:
    """Progress of every node, and the nodes that can go on; a step costs O(neighbours of the node * log nodes).

    `owner_of_node` has the team of each node: only its own nodes are ever given to a team.
    """

    def __init__(self, wiring: Wiring, owner_of_node: Sequence[int]) -> None:
        self.wiring = wiring
        self.begun = [0] * len(wiring.producers)
        self.done = [0] * len(wiring.producers)
        self._owner = owner_of_node
        self._ready: dict[int, list[tuple[int, int]]] = {owner: [] for owner in owner_of_node}
        self._is_ready = [False] * len(wiring.producers)  # in a heap of `_ready`
        self._ended: list[set[int]] = [set() for _ in wiring.producers]  # samples whose predecessors are not
        self._offer(wiring.source)

    def may_begin(self, node: int) -> bool:
        """Return True if `node` has all inputs of its next sample."""
        wiring, done, sample = self.wiring, self.done, self.begun[node]
        for each in wiring.producers[node]:  # loops, because this is asked several times per sample and stage
            if done[each] <= sample:
                return False
        oldest = sample - wiring.depth[node]
        for each in wiring.consumers[node]:  # noqa: SIM110
            if done[each] <= oldest:
                return False
        return True

    def num_free(self, node: int) -> int:
        """Return how many slots of a node's ring are free."""
        oldest = min(self.done[each] for each in self.wiring.consumers[node])
        return self.wiring.depth[node] - (self.begun[node] - oldest)

    def take(self, owner: int) -> tuple[int, int] | None:
        """Return the next work of a team as (node, sample), the oldest sample first; None if there is none now."""
        if not self._ready[owner]:
            return None
        sample, node = heapq.heappop(self._ready[owner])
        self._is_ready[node] = False
        self.begun[node] = sample + 1
        self._offer(node)
        return node, sample

    def has_work(self, owner: int) -> bool:
        """Return True if `take` would return something."""
        return bool(self._ready[owner])

    def finish(self, node: int, sample: int) -> set[int]:
        """Count a sample of `node` as done; return the teams that have got new work by that."""
        ended = self._ended[node]
        ended.add(sample)
        if sample != self.done[node]:
            return set()
        while self.done[node] in ended:
            ended.remove(self.done[node])
            self.done[node] += 1
        changed = set()
        for neighbours in (self.wiring.consumers[node], self.wiring.producers[node]):
            for each in neighbours:
                if self._offer(each):
                    changed.add(self._owner[each])
        return changed

    def _offer(self, node: int) -> bool:
        heap = self._ready[self._owner[node]]
        if self._is_ready[node] or not self.may_begin(node):
            return False
        self._is_ready[node] = True
        heapq.heappush(heap, (self.begun[node], node))
        return True

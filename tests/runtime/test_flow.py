"""The rules of bounded queues, against random graphs and every order in which workers may get their turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Device
from placekit.runtime.pipelines.flow import Flow, Wiring, samples_ahead, wire
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan

Key = tuple[str, int]


def plan_of(
    reads: list[list[int]], teams: list[int], outputs: list[int], sizes: Sequence[int] = (1,) * 9, kinds: int = 1
) -> StagePlan:
    """Return a plan without models: stage ``i`` reads tensors of the stages `reads`; -1 is the model's input.

    Its team is ``teams[i]``, which has ``sizes[teams[i]]`` members, of as many `kinds` as there are members for.
    """
    keys: list[Key] = [*((f"op{index}", 0) for index in range(len(reads))), ("input", 0)]
    none: Any = None
    placed = [
        tuple(Device(f"d{team}.{member}", f"k{member % kinds}") for member in range(sizes[team])) for team in teams
    ]
    stages = tuple(
        PlacedStage(f"{index}", members, none, tuple(keys[each] for each in read), (keys[index],), ())
        for index, (read, members) in enumerate(zip(reads, placed, strict=True))
    )
    output_keys = tuple(keys[each] for each in outputs)
    return StagePlan("random", none, stages, (keys[-1],), output_keys, ("input",), ("",) * len(outputs), ())


@st.composite
def plans(draw: st.DrawFn) -> StagePlan:
    """Draw stages that read from any before them, on one to three teams; any of them, or the input, is an output."""
    count = draw(st.integers(0, 6))
    reads = [
        sorted(draw(st.sets(st.integers(-1, index - 1), max_size=3))) if index else draw(st.sampled_from([[], [-1]]))
        for index in range(count)
    ]
    teams = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    outputs = draw(st.lists(st.integers(-1, count - 1), min_size=1, max_size=3))
    return plan_of(reads, teams, outputs, sizes, kinds=draw(st.integers(1, 2)))


@dataclass
class Machine:
    """Workers that take work as `Flow` gives it; every slot remembers whose sample it holds."""

    wiring: Wiring
    owners: list[int]
    workers: list[int]

    def __post_init__(self) -> None:
        self.flow = Flow(self.wiring, self.owners)
        self.slots: dict[tuple[int, int], int] = {}
        self.working: dict[int, tuple[int, int]] = {}
        self.finished: list[int] = []
        self.times_begun: dict[tuple[int, int], int] = {}

    def start(self, worker: int) -> bool:
        """Let a worker begin; check that everything that it reads is there."""
        task = None if worker in self.working else self.flow.take(self.workers[worker])
        if task is None:
            return False
        node, sample = task
        assert self.times_begun.setdefault(task, worker) == worker  # nobody else has had it
        self.working[worker] = task
        if node != self.wiring.sink:
            self.slots[node, sample % self.wiring.depth[node]] = sample  # from now on the old content is lost
        self.check_inputs(node, sample)
        return True

    def end(self, worker: int) -> None:
        """Let a worker finish; check that its inputs were not overwritten meanwhile."""
        node, sample = self.working.pop(worker)
        self.check_inputs(node, sample)
        if node == self.wiring.sink:
            self.finished.append(sample)
        self.flow.finish(node, sample)

    def check_inputs(self, node: int, sample: int) -> None:
        """Every producer's slot holds this sample, complete."""
        for producer in self.wiring.producers[node]:
            assert self.slots[producer, sample % self.wiring.depth[producer]] == sample
            assert (producer, sample) not in self.working.values()


def owners_of(plan: StagePlan) -> list[int]:
    """Return the team of every node; source and sink have their own."""
    return [*(plan.teams.index(stage.members) for stage in plan.stages), len(plan.teams), len(plan.teams) + 1]


def workers_of(plan: StagePlan) -> list[int]:
    """Return the team of every worker: one per device, one each for source and sink."""
    members = [owner for owner, team in enumerate(plan.teams) for _ in team]
    return [*members, len(plan.teams), len(plan.teams) + 1]


@examples(100)
@given(plan=plans(), queue_size=st.integers(1, 3), turns=st.lists(st.integers(0, 10), max_size=200))
def test_no_slot_is_overwritten_and_nothing_stands_still(plan: StagePlan, queue_size: int, turns: list[int]) -> None:
    """In any order of turns: inputs are there and stay, samples come out in order, and somebody can always go on."""
    machine = Machine(wire(plan, queue_size), owners_of(plan), workers_of(plan))
    count = len(machine.workers)
    for turn in [*turns, *range(120 * count)]:
        worker = turn % count
        if worker in machine.working:
            machine.end(worker)
        else:
            machine.start(worker)
        if not machine.working:
            assert any(machine.flow.has_work(each) for each in machine.workers)  # no deadlock
    assert len(machine.finished) >= 5
    assert machine.finished == list(range(len(machine.finished)))
    assert all(len(ended) <= max(machine.wiring.depth) for ended in machine.flow._ended)


@pytest.mark.parametrize("kinds", [1, 2])
def test_a_slow_member_does_not_stop_the_others(kinds: int) -> None:
    """While one member is at its sample, the other ends as many as the rings have room for; then it waits."""
    plan = plan_of([[-1]], [0], [0], sizes=[2], kinds=kinds)
    machine = Machine(wire(plan, 1), owners_of(plan), workers_of(plan))
    slow, fast, source, sink = range(4)
    num_ended = 0
    for _ in range(50):
        for worker in (source, slow, fast, sink):
            if machine.start(worker) and worker != slow:
                machine.end(worker)
                num_ended += worker == fast
    assert num_ended == 8
    machine.end(slow)
    assert machine.start(sink)


@examples(60)
@given(plan=plans(), queue_size=st.integers(1, 3))
def test_without_readers_the_source_is_stopped(plan: StagePlan, queue_size: int) -> None:
    """Back-pressure: while no result is taken, no more samples enter than the rings hold."""
    machine = Machine(wire(plan, queue_size), owners_of(plan), workers_of(plan))
    while sum(machine.start(worker) for worker in range(len(machine.workers) - 1)):
        for worker in list(machine.working):
            machine.end(worker)
    assert queue_size <= machine.flow.done[machine.wiring.source] <= sum(machine.wiring.depth)


@examples(60)
@given(plan=plans(), queue_size=st.integers(1, 4))
def test_rings_are_as_deep_as_asked_and_bounded(plan: StagePlan, queue_size: int) -> None:
    """Between `queue_size` and that plus a slot per team, and room to overtake; whoever is read knows its readers."""
    wiring = wire(plan, queue_size)
    ahead = sum(map(samples_ahead, plan.teams))
    for node in range(wiring.num_stages + 1):
        assert queue_size <= wiring.depth[node] <= queue_size + len(plan.teams) + ahead
        assert wiring.consumers[node]
    for node in (*range(wiring.num_stages), wiring.sink):
        assert wiring.producers[node]
        assert all(node in wiring.consumers[each] for each in wiring.producers[node])


def test_a_worker_takes_the_oldest_sample_first() -> None:
    """Of two stages on one device the later one, whose sample is older, goes first."""
    plan = plan_of([[-1], [0]], [0, 0], [1])
    flow = Flow(wire(plan, 2), owners_of(plan))
    for sample in range(2):
        assert flow.take(1) == (2, sample)
        flow.finish(2, sample)
    assert flow.take(0) == (0, 0)
    flow.finish(0, 0)
    assert flow.take(0) == (1, 0)


def test_a_tensor_that_skips_stages_has_a_deeper_ring() -> None:
    """The input of a chain of five stages on five devices that the last one reads, too, has room for all between."""
    chain = plan_of([[-1], [0], [1], [2], [-1, 3]], [0, 1, 2, 3, 4], [4])
    wiring = wire(chain, 2)
    assert wiring.depth[wiring.source] == 7
    assert wiring.depth[:5] == (2, 2, 2, 2, 2)


def test_queue_sizes_below_one_are_refused() -> None:
    """Nothing could ever pass."""
    with pytest.raises(InvalidProblemError, match="queue_size is 0; it must be >= 1"):
        wire(plan_of([[-1]], [0], [0]), 0)

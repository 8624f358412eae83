"""The rules of bounded queues, against random graphs and every order in which workers may get their turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from placekit.cost_models.openvino.pipeline_flow import Flow, Wiring, wire
from placekit.cost_models.openvino.stages import PlacedStage, StagePlan
from placekit.errors import InvalidProblemError
from placekit.platform import Device

Key = tuple[str, int]


def plan_of(reads: list[list[int]], devices: list[int], outputs: list[int]) -> StagePlan:
    """Return a plan without models: stage ``i`` reads tensors of the stages `reads`; -1 is the model's input."""
    keys: list[Key] = [*((f"op{index}", 0) for index in range(len(reads))), ("input", 0)]
    none: Any = None
    placed = [Device(f"d{device}", "d") for device in devices]
    stages = tuple(
        PlacedStage(f"{index}:{device.name}", device, none, tuple(keys[each] for each in read), (keys[index],), ())
        for index, (read, device) in enumerate(zip(reads, placed, strict=True))
    )
    output_keys = tuple(keys[each] for each in outputs)
    return StagePlan("random", none, stages, (keys[-1],), output_keys, ("input",), ("",) * len(outputs), ())


@st.composite
def plans(draw: st.DrawFn) -> StagePlan:
    """Draw stages that read from any before them, on one to three devices; any of them, or the input, is an output."""
    count = draw(st.integers(0, 6))
    reads = [
        sorted(draw(st.sets(st.integers(-1, index - 1), max_size=3))) if index else draw(st.sampled_from([[], [-1]]))
        for index in range(count)
    ]
    devices = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return plan_of(reads, devices, draw(st.lists(st.integers(-1, count - 1), min_size=1, max_size=3)))


@dataclass
class Machine:
    """Workers that take work as `Flow` gives it; every slot remembers whose sample it holds."""

    wiring: Wiring
    owners: list[int]

    def __post_init__(self) -> None:
        self.flow = Flow(self.wiring, self.owners, set(self.owners))
        self.slots: dict[tuple[int, int], int] = {}
        self.working: dict[int, tuple[int, int]] = {}
        self.finished: list[int] = []

    def start(self, owner: int) -> bool:
        """Let a worker begin; check that everything that it reads is there."""
        task = None if owner in self.working else self.flow.take(owner)
        if task is None:
            return False
        node, sample = task
        self.working[owner] = task
        if node != self.wiring.sink:
            self.slots[node, sample % self.wiring.depth[node]] = sample  # from now on the old content is lost
        self.check_inputs(node, sample)
        return True

    def end(self, owner: int) -> None:
        """Let a worker finish; check that its inputs were not overwritten meanwhile."""
        node, sample = self.working.pop(owner)
        self.check_inputs(node, sample)
        if node == self.wiring.sink:
            self.finished.append(sample)
        self.flow.finish(node)

    def check_inputs(self, node: int, sample: int) -> None:
        """Every producer's slot holds this sample, complete."""
        for producer in self.wiring.producers[node]:
            assert self.slots[producer, sample % self.wiring.depth[producer]] == sample
            assert (producer, sample) not in self.working.values()


def owners_of(plan: StagePlan) -> list[int]:
    """Return the worker of every node: one per device, source and sink."""
    names = [device.name for device in plan.devices]
    return [*(names.index(stage.device.name) for stage in plan.stages), len(names), len(names) + 1]


@examples(60)
@given(plan=plans(), queue_size=st.integers(1, 3), turns=st.lists(st.integers(0, 4), max_size=200))
def test_no_slot_is_overwritten_and_nothing_stands_still(plan: StagePlan, queue_size: int, turns: list[int]) -> None:
    """In any order of turns: inputs are there and stay, samples come out in order, and somebody can always go on."""
    owners = owners_of(plan)
    machine = Machine(wire(plan, queue_size), owners)
    workers = sorted(set(owners))
    for turn in [*turns, *range(300)]:
        owner = workers[turn % len(workers)]
        if owner in machine.working:
            machine.end(owner)
        else:
            machine.start(owner)
        if not machine.working:
            assert any(machine.flow.has_work(each) for each in workers)  # no deadlock
    assert len(machine.finished) >= 5
    assert machine.finished == list(range(len(machine.finished)))


@examples(60)
@given(plan=plans(), queue_size=st.integers(1, 3))
def test_without_readers_the_source_is_stopped(plan: StagePlan, queue_size: int) -> None:
    """Back-pressure: while no result is taken, no more samples enter than the rings hold."""
    owners = owners_of(plan)
    machine = Machine(wire(plan, queue_size), owners)
    sink = owners[-1]
    while any(machine.start(owner) for owner in set(owners) - {sink}):
        for owner in list(machine.working):
            machine.end(owner)
    assert queue_size <= machine.flow.done[machine.wiring.source] <= sum(machine.wiring.depth)


@examples(60)
@given(plan=plans(), queue_size=st.integers(1, 4))
def test_rings_are_as_deep_as_asked_and_bounded(plan: StagePlan, queue_size: int) -> None:
    """Between `queue_size` and that plus the number of devices; whoever is read knows its readers."""
    wiring = wire(plan, queue_size)
    for node in range(wiring.num_stages + 1):
        assert queue_size <= wiring.depth[node] <= queue_size + len(plan.devices)
        assert wiring.consumers[node]
    for node in (*range(wiring.num_stages), wiring.sink):
        assert wiring.producers[node]
        assert all(node in wiring.consumers[each] for each in wiring.producers[node])


def test_a_worker_takes_the_oldest_sample_first() -> None:
    """Of two stages on one device the later one, whose sample is older, goes first."""
    plan = plan_of([[-1], [0]], [0, 0], [1])
    flow = Flow(wire(plan, 2), owners_of(plan), (0, 1))
    for _ in range(2):
        assert flow.take(1) is not None
        flow.finish(2)
    assert flow.take(0) == (0, 0)
    flow.finish(0)
    assert flow.take(0) == (1, 0)


@examples(30)
@given(plan=plans(), queue_size=st.integers(1, 3))
def test_copies_that_tell_each_other_keep_going_and_do_not_grow(plan: StagePlan, queue_size: int) -> None:
    """One copy per worker, every step told to the neighbours' workers: nothing stands still, and nothing piles up."""
    owners = owners_of(plan)
    wiring = wire(plan, queue_size)
    copies = {owner: Flow(wiring, owners, {owner}) for owner in set(owners)}
    num_results = 0
    for _ in range(60):
        for owner, copy in copies.items():
            if (task := copy.take(owner)) is not None:
                num_results += task[0] == wiring.sink
                neighbours = (*wiring.consumers[task[0]], *wiring.producers[task[0]])
                for each in {owner} | {owners[node] for node in neighbours}:
                    copies[each].finish(task[0])
    assert num_results >= 5
    for owner, copy in copies.items():
        assert sum(map(len, copy._ready.values())) <= owners.count(owner)


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

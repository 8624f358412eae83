"""The worker process of one device: ``main`` reads its task from standard input and runs until its parent is gone."""

from __future__ import annotations

import os
import pickle
import select
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.pipeline_flow import Flow, Wiring
from placekit.cost_models.openvino.pipeline_memory import (
    Layout,
    SharedMemory,
    TensorSpec,
    holding,
    read_messages,
    send_message,
)
from placekit.cost_models.openvino.pipeline_stage import pin_this_thread
from placekit.cost_models.openvino.split import TensorKey
from placekit.model.platform import Device

__all__ = ["OpenStage", "SentStage", "WorkerTask", "main"]

_PARENT_CHECK_S = 1.0


class OpenStage(Protocol):
    """A stage that is ready to run in this process."""

    @property
    def inputs(self) -> Sequence[TensorKey]:
        """Keys of what it reads, in the order of `run`."""

    @property
    def outputs(self) -> Sequence[TensorKey]:
        """Keys of what it writes, in the order of `run`."""

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> object:
        """Compute the outputs into the tensors given."""


class SentStage(Protocol):
    """A stage as it is sent to a worker, in whatever framework."""

    @property
    def node(self) -> int:
        """The stage's number."""

    @property
    def name(self) -> str:
        """Its name."""

    def open(self, device: Device) -> OpenStage:
        """Load or compile it for a device."""

    def view(self, data: NDArray[np.uint8], spec: TensorSpec) -> Any:
        """Return the framework's tensor over the bytes of a slot."""


@dataclass(frozen=True)
class WorkerTask:
    """All that a worker has to know.

    Parameters
    ----------
    worker, owner, member
        The worker's number, that of its team, and its place among the members.
    device, stages
        What it runs, and where.
    wiring, owner_of_node, layout
        The pipeline and its memory.
    memory, report, lifeline
        Descriptors: the memory, the pipe to report by, and the one that ends with the parent.
    baton
        Both ends of the team's baton; None for a device that works alone.
    team_of_worker
        ``[num_workers]`` team of every worker.
    inboxes
        ``[num_workers + 1]`` descriptor to read from for its own, to write to for the others; the last is the parent's.
    parent
        Process id of the parent.
    """

    worker: int
    owner: int
    member: int
    device: Device
    stages: tuple[SentStage, ...]
    wiring: Wiring
    owner_of_node: tuple[int, ...]
    layout: Layout
    memory: int
    report: int
    lifeline: int
    baton: tuple[int, int] | None
    team_of_worker: tuple[int, ...]
    inboxes: tuple[int, ...]
    parent: int


def main() -> None:
    """Run the task on standard input."""
    task: WorkerTask = pickle.load(sys.stdin.buffer)  # noqa: S301  # from the parent, through a pipe of its own
    _keep_from_forks((task.memory, task.report, task.lifeline, *(task.baton or ()), *task.inboxes))
    threading.Thread(target=_end_with_parent, args=(task,), daemon=True).start()
    report = Connection(task.report, readable=False)
    where = f"worker of device {task.device.name!r}"
    try:
        pin_this_thread(task.device.cores)
        runners = {}
        for stage in task.stages:
            where = f"stage {stage.name!r}"
            runners[stage.node] = _Stage(stage, task)
        memory = SharedMemory(task.memory, task.layout)
        rings = {key: memory.ring(key, each.sent.view) for each in runners.values() for key in each.keys}
        report.send(("ready", ""))
        flow = Flow(task.wiring, task.owner_of_node, {task.owner})
        while True:
            while (work := _take(flow, task, memory)) is None:
                for message in read_messages(task.inboxes[task.worker]):
                    flow.finish(*message)
            node, sample = work
            where = f"stage {runners[node].sent.name!r}"
            memory.running[task.worker] = node + 1
            start_s = time.perf_counter()
            runners[node].run(rings, sample)
            at = sample % task.layout.num_times
            memory.times_s[node, at] = start_s, time.perf_counter()
            memory.members[node, at] = task.member
            memory.running[task.worker] = 0
            if runners[node].is_awaited_here:
                flow.finish(node, sample)
            send_message(runners[node].listeners, node, sample)
    except Exception as error:  # reported by the parent, whatever it is
        report.send(("failed", f"{where} failed on device {task.device.name!r}: {error}"))
        os._exit(1)


def _take(flow: Flow, task: WorkerTask, memory: SharedMemory) -> tuple[int, int] | None:
    """Return the next work, which no other member of the team gets, too; None if there is none now."""
    if task.baton is None:
        return flow.take(task.owner)
    with holding(task.baton):
        flow.catch_up(task.owner, memory.begun.tolist())
        work = flow.take(task.owner)
        if work is not None:
            node, sample = work
            memory.begun[node] = sample + 1
    return work


def _keep_from_forks(descriptors: Sequence[int]) -> None:
    """Close `descriptors` in whatever a library forks from here, else the end of this process would not be noticed."""

    def close() -> None:
        for each in descriptors:
            os.close(each)

    os.register_at_fork(after_in_child=close)
    for each in descriptors:
        os.set_inheritable(each, False)


def _end_with_parent(task: WorkerTask) -> None:
    """End this process when the parent closes the lifeline or is gone, whatever the main thread does."""
    while True:
        readable, _, _ = select.select([task.lifeline], [], [], _PARENT_CHECK_S)
        # a process that the parent forked may keep the lifeline open: so the parent is looked at, too
        if readable or os.getppid() != task.parent:
            os._exit(0)


class _Stage:
    """A stage that runs here, and who waits for it."""

    def __init__(self, sent: SentStage, task: WorkerTask) -> None:
        self.sent = sent
        self._stage = sent.open(task.device)
        neighbours = (*task.wiring.consumers[sent.node], *task.wiring.producers[sent.node])
        owners = {task.owner_of_node[each] for each in neighbours}
        workers = [each for each, team in enumerate(task.team_of_worker) if team in owners and each != task.worker]
        is_heard = any(owner not in task.team_of_worker for owner in owners)  # source and sink are the parent's
        self.listeners = [task.inboxes[each] for each in (*workers, *([-1] if is_heard else []))]
        self.is_awaited_here = task.owner in owners  # else nobody tells which samples other members have ended

    @property
    def keys(self) -> list[TensorKey]:
        """Keys of what it reads and writes."""
        return [*self._stage.inputs, *self._stage.outputs]

    def run(self, rings: dict[TensorKey, list[Any]], sample: int) -> None:
        inputs = [rings[key][sample % len(rings[key])] for key in self._stage.inputs]
        self._stage.run(inputs, [rings[key][sample % len(rings[key])] for key in self._stage.outputs])

"""A pipeline in one process: one thread per device, bound to the device's cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from placekit.cost_models.openvino.compiled_plan import CompiledPlan
from placekit.cost_models.openvino.pipeline import Pipeline
from placekit.cost_models.openvino.pipeline_stage import StageRunner, check_cores, helpers_on, pin_this_thread
from placekit.errors import ExecutionError
from placekit.platform import Device

__all__ = ["ThreadPipeline"]


class ThreadPipeline(Pipeline):
    """A pipeline in one process; shapes may be dynamic.

    A device with several stages runs the one whose sample is the oldest. Stages run synchronously in the device's
    thread, without Python's lock, and write straight into the slots that the next stages read. Tensors of dynamic
    shape are copied once. Of a team the member that has waited longest takes the next sample.

    OpenVINO's threads for devices of several cores cannot be kept apart within one process (`helpers_on`); devices of
    one core, GPUs and NPUs are not concerned.

    Parameters
    ----------
    compiled
        The stages, compiled. They may be used elsewhere, too.
    queue_size
        Samples that fit between a stage and the next.
    record
        Number of last samples whose stage times are kept.

    Raises
    ------
    DeviceUnavailableError
        Cores that this process may not use.
    PlacekitError
        As `Pipeline`.

    Examples
    --------
    >>> with ThreadPipeline(compile_plan(plan)) as pipe:  # doctest: +SKIP
    ...     scores = pipe([image])["scores"]
    ...     futures = [pipe.submit([each]) for each in images]
    """

    def __init__(self, compiled: CompiledPlan, *, queue_size: int = 2, record: int = 0) -> None:
        plan = compiled.plan
        super().__init__(plan, queue_size=queue_size, record=record)
        check_cores(plan.devices)
        self._runners = self._make_runners(compiled)
        self._make_rings()
        self._is_stopped = False
        self._wake = [threading.Condition(self._lock) for _ in range(len(plan.teams) + 1)]
        self._wake.insert(self._source_owner, self._may_submit)
        self._workers = [
            threading.Thread(target=self._work, args=(owner, member), name=f"placekit-{device.name}", daemon=True)
            for owner, team in enumerate(plan.teams)
            for member, device in enumerate(team)
        ]
        self._resources = ExitStack()
        self._resources.enter_context(self._helpers(plan.devices))
        for worker in self._workers:
            worker.start()
        self._start()

    def _make_runners(self, compiled: Any) -> list[list[Any]]:
        """Return ``[num_stages][team_size]`` what runs every stage on each member of its team."""
        return [[StageRunner(member.compiled) for member in stage] for stage in compiled.members]

    def _helpers(self, devices: Sequence[Device]) -> AbstractContextManager[None]:
        """Return a context in which the framework's own threads are where they belong."""
        return helpers_on(devices)

    @contextmanager
    def _at_home(self, device: Device) -> Iterator[None]:
        """Bind the calling thread, which works for `device` inside the block."""
        pin_this_thread(device.cores)
        yield

    def _takers(self) -> Collection[int]:
        return set(self._owners)

    def _make_rings(self) -> None:
        from openvino import Tensor

        for key, node in self._wiring.writer.items():
            port, depth = self._ports[key], self._wiring.depth[node]
            if self._is_dynamic(key):
                self._rings[key] = [None] * depth
            else:
                self._rings[key] = [Tensor(port.get_element_type(), port.get_shape()) for _ in range(depth)]

    def _work(self, owner: int, member: int) -> None:
        """Run the stages of one device, a member of a team, until told to stop."""
        node, device = self._owners.index(owner), self.plan.teams[owner][member]
        try:
            with self._at_home(device):
                while (task := self._next(owner)) is not None:
                    node, sample = task
                    self._run(node, sample, member)
                    with self._lock:
                        self._announce(node, sample)
        except Exception as error:
            stage = self.plan.stages[node]
            failure = ExecutionError(f"stage {stage.name!r} failed on device {device.name!r}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _run(self, node: int, sample: int, member: int) -> None:
        stage = self.plan.stages[node]
        inputs = [self._tensor(key, sample) for key in stage.inputs]
        slots = [None if self._is_dynamic(key) else self._tensor(key, sample) for key in stage.outputs]
        start_s = time.perf_counter()
        outputs = self._runners[node][member].run(inputs, slots)
        at = sample % self._num_times
        self._times_s[node, at] = start_s, time.perf_counter()
        self._members[node, at] = member
        for key, slot, tensor in zip(stage.outputs, slots, outputs, strict=True):
            if slot is None:
                self._put(key, sample, tensor)

    def _next(self, owner: int) -> tuple[int, int] | None:
        """Wait for work of `owner`; None at the end."""
        with self._lock:
            while (task := None if self._is_stopped else self._flow.take(owner)) is None and not self._is_stopped:
                self._wake[owner].wait()
            if task is not None and self._flow.has_work(owner):  # another member can begin the sample behind
                self._wake[owner].notify()
            return task

    def _announce(self, node: int, sample: int) -> None:
        for owner in self._flow.finish(node, sample):
            self._wake[owner].notify()

    def _collect(self) -> None:
        while (task := self._next(self._sink_owner)) is not None:
            self._deliver(task[1])

    def _end(self) -> None:
        with self._lock:
            self._is_stopped = True
            for condition in self._wake:
                condition.notify_all()
        for thread in (*self._workers, self._collector):
            thread.join()
        self._resources.close()
        self._runners.clear()
        self._rings.clear()

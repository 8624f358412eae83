"""A pipeline in one process: threads of each device, bound to the device's cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from typing import Any

from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError, PlacekitError
from placekit.model.platform import Device
from placekit.runtime.compiled_plan import CompiledPlan
from placekit.runtime.feed import Feed, Receiver
from placekit.runtime.pipeline import UNKNOWN_MEMBER, Pipeline
from placekit.runtime.stage_runner import StageRunner, check_cores, helpers_on, pin_this_thread

__all__ = ["ThreadPipeline"]


class ThreadPipeline(Pipeline):
    """A pipeline in one process; shapes may be dynamic.

    A device with several stages runs the one whose sample is the oldest. Stages run synchronously in a thread of the
    device, without Python's lock, and write straight into the slots that the next stages read. Tensors of dynamic
    shape are copied once. Of a team the member that has begun the fewest samples takes the next one. Whoever ends the
    last stage of the oldest sample delivers its result: a thread more would have to take a core from one that computes.

    A team of one stage has two threads per member, each with a request of its own. While one computes, the other waits
    inside OpenVINO with the next sample, and begins before Python has woken up to do anything about the last one.

    Members that share a compiled model (`compile_plan`) share their cores, too: their threads go to any of them, each
    on the stream of the model that OpenVINO gives it, as many at once as there are members. Which member that is, is
    not known: `stage_members` says -1, errors name the team, and a sample counts as begun when a stream became free.

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
    share_inputs
        True to read arrays where they are, instead of copying them when they are submitted. They must stay as they are
        until the result is there.

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

    def __init__(
        self, compiled: CompiledPlan, *, queue_size: int = 2, record: int = 0, share_inputs: bool = False
    ) -> None:
        plan = compiled.plan
        super().__init__(plan, queue_size=queue_size, record=record)
        self._share_inputs = share_inputs
        check_cores(plan.devices)
        self._runners = self._make_runners(compiled)
        #: whether the members of every team have one compiled model together
        self._shares_model = {
            owner: len(stage) > 1 and stage[0] is stage[1]
            for owner, stage in zip(self._owners, self._runners, strict=False)  # behind the stages: source and sink
        }
        self._make_rings()
        self._is_stopped = self._is_delivering = self._is_pulling = False
        self._wake = [[threading.Condition(self._lock) for _ in team] for team in plan.teams]
        #: samples that every member of a team has begun, and when it has ended one last
        self._num_begun = [[0] * len(team) for team in plan.teams]
        self._ended_s = [[0.0] * len(team) for team in plan.teams]
        self._workers = [
            threading.Thread(target=self._work, args=(owner, member), name=f"placekit-{device.name}", daemon=True)
            for owner, team in enumerate(plan.teams)
            for member, device in enumerate(team)
            for _ in range(self._num_requests(owner))
        ]
        self._resources = ExitStack()
        self._resources.enter_context(self._helpers(plan.devices))
        for worker in self._workers:
            worker.start()
        self._start()

    def _make_runners(self, compiled: Any) -> list[list[Any]]:
        """Return ``[num_stages][team_size]`` what runs every stage on each member of its team."""
        made = []
        for owner, stage in zip(self._owners, compiled.members, strict=False):  # behind the stages: source and sink
            count = self._num_requests(owner)
            if len(stage) > 1 and stage[0].compiled is stage[1].compiled:
                made.append([StageRunner(stage[0].compiled, count * len(stage))] * len(stage))
            else:
                made.append([StageRunner(member.compiled, count) for member in stage])
        return made

    def _num_requests(self, owner: int) -> int:
        """Return how many samples every member of a team may have begun at once."""
        # requests of one compiled model wait for each other inside OpenVINO; those of several would compute at once.
        # A device alone has nothing to gain: what is ready next is mostly still being computed by the stage before
        is_team = owner < len(self.plan.teams) and len(self.plan.teams[owner]) > 1
        return 2 if is_team and self._owners.count(owner) == 1 else 1

    def _helpers(self, devices: Sequence[Device]) -> AbstractContextManager[None]:
        """Return a context in which the framework's own threads are where they belong."""
        return helpers_on(devices)

    def _home(self, owner: int, member: int) -> Device:
        """Return where a thread of a member works; its cores are those of all that share its compiled model."""
        team = self.plan.teams[owner]
        if not self._shares_model[owner]:
            return team[member]
        return team[member].replace(cores=tuple(core for device in team for core in device.cores))

    @contextmanager
    def _at_home(self, device: Device) -> Iterator[None]:
        """Bind the calling thread, which works for `device` inside the block."""
        pin_this_thread(device.cores)
        yield

    def _enter(self, tensors: list[Any], receiver: Receiver) -> None:
        super()._enter(tensors, receiver)
        if not self.plan.stages:  # a model without ops: nobody else is there to deliver
            with self._lock:
                result = self._next_result()
            self._deliver_from(result)

    def _run_feed(self, feed: Feed) -> None:
        if not self.plan.stages:
            super()._run_feed(feed)
            return
        with self._lock:
            for condition in chain.from_iterable(self._wake):
                condition.notify()

    def _may_pull(self, owner: int) -> bool:
        """Whether a worker that has nothing to do may take the next sample of `for_each`; asked with the lock."""
        feed = self._feed
        return (
            feed is not None
            and not (feed.is_exhausted or self._is_pulling or self._flow.has_work(owner))
            and self._flow.has_work(self._source_owner)
        )

    def _pull(self) -> None:
        """Put the next sample in; one worker at a time does it."""
        feed = self._feed
        assert feed is not None
        try:
            inputs = feed.next_inputs()
            if inputs is not None:
                self._fill_in(self._read(inputs), feed)
        except PlacekitError as error:
            feed.set_exception(error)
        finally:
            self._is_pulling = False

    def _takers(self) -> Collection[int]:
        return set(self._owners)

    def _fill(self, key: TensorKey, sample: int, tensor: Any) -> None:
        if self._share_inputs:
            self._put(key, sample, tensor)
        else:
            super()._fill(key, sample, tensor)

    def _make_rings(self) -> None:
        from openvino import Tensor

        for key, node in self._wiring.writer.items():
            port, depth = self._ports[key], self._wiring.depth[node]
            is_shared = self._share_inputs and node == self._wiring.source
            if is_shared or self._is_dynamic(key):
                self._rings[key] = [None] * depth
            else:
                self._rings[key] = [Tensor(port.get_element_type(), port.get_shape()) for _ in range(depth)]

    def _work(self, owner: int, member: int) -> None:
        """Run the stages of one device, a member of a team, until told to stop."""
        node, names = self._owners.index(owner), [device.name for device in self.plan.teams[owner]]
        where = f"a member of team {'+'.join(names)!r}" if self._shares_model[owner] else f"device {names[member]!r}"
        try:
            with self._at_home(self._home(owner, member)):
                while (task := self._next(owner, member)) is not None:
                    node, sample = task
                    start_s = time.perf_counter()
                    self._run(node, sample, member)
                    end_s = time.perf_counter()
                    with self._lock:
                        self._record(node, sample, member, start_s, end_s)
                        self._num_begun[owner][member] -= 1
                        self._announce(node, sample)
                        result = self._next_result()
                    self._deliver_from(result)
        except Exception as error:
            stage = self.plan.stages[node]
            failure = ExecutionError(f"stage {stage.name!r} failed on {where}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _run(self, node: int, sample: int, member: int) -> None:
        stage = self.plan.stages[node]
        inputs = [self._tensor(key, sample) for key in stage.inputs]
        slots = [None if self._is_dynamic(key) else self._tensor(key, sample) for key in stage.outputs]
        outputs = self._runners[node][member].run(inputs, slots)
        for key, slot, tensor in zip(stage.outputs, slots, outputs, strict=True):
            if slot is None:
                self._put(key, sample, tensor)

    def _record(self, node: int, sample: int, member: int, start_s: float, end_s: float) -> None:
        """Keep when a stage ran, called with the lock; it may have waited for what its member did before."""
        at, owner = sample % self._num_times, self._owners[node]
        ended_s = self._ended_s[owner]
        is_shared = self._shares_model[owner]
        free = ended_s.index(min(ended_s)) if is_shared else member
        self._times_s[node, at] = max(start_s, ended_s[free]), end_s
        self._members[node, at] = UNKNOWN_MEMBER if is_shared else member
        ended_s[free] = end_s

    def _next(self, owner: int, member: int) -> tuple[int, int] | None:
        """Wait for work of a member of a team; None at the end."""
        num_begun = self._num_begun[owner]
        while True:
            with self._lock:
                while not self._is_stopped:
                    # a member that has less to do comes first
                    if num_begun[member] == min(num_begun) and (task := self._flow.take(owner)) is not None:
                        num_begun[member] += 1
                        self._rouse(owner)  # the sample behind may be ready, too
                        return task
                    if self._may_pull(owner):
                        break
                    self._wake[owner][member].wait()
                else:
                    return None
                self._is_pulling = True
            self._pull()

    def _announce(self, node: int, sample: int) -> None:
        for owner in self._flow.finish(node, sample):
            if owner not in (self._source_owner, self._sink_owner):
                self._rouse(owner)
        # whoever submits takes a core from one that computes: better one time for several samples
        source = self._wiring.source
        if 2 * self._flow.num_free(source) >= self._wiring.depth[source]:
            self._may_submit.notify()

    def _rouse(self, owner: int) -> None:
        """Wake the member that has the least to do, if there is work, or a sample to put in."""
        if self._flow.has_work(owner) or self._may_pull(owner):
            num_begun = self._num_begun[owner]
            self._wake[owner][num_begun.index(min(num_begun))].notify()

    def _next_result(self) -> int | None:
        """Return the sample to deliver next; None for none, or if somebody delivers already. Asked with the lock."""
        task = None if self._is_delivering else self._flow.take(self._sink_owner)
        self._is_delivering = self._is_delivering or task is not None
        return None if task is None else task[1]

    def _deliver_from(self, sample: int | None) -> None:
        """Deliver `sample`, and what has become ready meanwhile."""
        while sample is not None:
            self._deliver(sample)
            with self._lock:
                self._is_delivering = False
                sample = self._next_result()

    def _end(self) -> None:
        with self._lock:
            self._is_stopped = True
            for condition in chain.from_iterable(self._wake):
                condition.notify_all()
        for thread in self._workers:
            thread.join()
        self._resources.close()
        self._runners.clear()
        self._rings.clear()

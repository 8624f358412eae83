"""A pipeline of threads: samples in, futures out, bounded queues, a clean end; whatever framework runs the stages."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey
from placekit.model.device_groups import team_name
from placekit.model.errors import ExecutionError, InvalidProblemError, PlacekitError
from placekit.model.platform import Device
from placekit.runtime.cores import check_cores
from placekit.runtime.pipelines.feed import Feed, Receiver, Single
from placekit.runtime.pipelines.flow import Flow, wire
from placekit.runtime.stages.stage_plan import Inputs, Outputs, ReadyPlan

UNKNOWN_MEMBER = -1
"""In place of a member of a team, where members share a compiled model and OpenVINO does not tell which one it was."""


class Pipeline:
    """Runs samples through the stages of a plan, several at a time. Use it as a context manager, or call `close`.

    Inputs are copied when they are submitted and outputs when they are ready, so the arrays belong to the caller;
    between stages tensors are handed over without a copy. Results come in the order in which samples were submitted.

    A failing stage ends the pipeline: all futures that are not done, and every later `submit`, raise an
    `ExecutionError` that names the stage. Results that were delivered before stay.

    Stages run synchronously in threads of their device, without Python's lock, and write straight into the slots that
    the next stages read. A device with several stages runs the one whose sample is the oldest. Of a team the member
    that has begun the fewest samples takes the next one. Whoever ends the last stage of the oldest sample delivers its
    result: a thread more would have to take a core from one that computes. Where members have two threads each
    (`ReadyPlan.num_requests`), one waits inside the framework with the next sample while the other computes, and begins
    before Python has woken up to do anything about the last one.

    Members that share a compiled model share their cores, too: their threads go to any of them, each on the stream of
    the model that OpenVINO gives it, as many at once as there are members. Which member that is, is not known:
    `stage_members` says -1, errors name the team, and a sample counts as begun when a stream became free.

    The compiled stages, `ready`, may be used elsewhere, too. `queue_size` samples fit between a stage and the next;
    `submit` blocks when the first queue is full. Of the last `record` samples stage times are kept. With `share_inputs`
    arrays are read where they are, instead of being copied: they must stay as they are until the result is there.

    Raises
    ------
    InvalidProblemError
        A queue size below 1 or a negative `record`.
    UnsupportedProblemError
        Inputs or outputs of strings.
    DeviceUnavailableError
        Cores that this process may not use.

    Examples
    --------
    >>> with Pipeline(compile_plan(plan)) as pipe:  # doctest: +SKIP
    ...     scores = pipe([image])["scores"]
    ...     futures = [pipe.submit([each]) for each in images]
    """

    def __init__(self, ready: ReadyPlan, *, queue_size: int = 2, record: int = 0, share_inputs: bool = False) -> None:
        self.plan = plan = ready.plan
        if record < 0:
            raise InvalidProblemError(f"pipeline of {plan.name!r}: record is {record}; it must be >= 0")
        self._ready, self._share_inputs = ready, share_inputs
        self._wiring = wire(plan, queue_size)
        check_cores(plan.devices)
        self._source_owner, self._sink_owner = len(plan.teams), len(plan.teams) + 1
        self._owners = [plan.teams.index(stage.members) for stage in plan.stages]
        self._owners += [self._source_owner, self._sink_owner]
        self._flow = Flow(self._wiring, self._owners)
        # no stage is ever further ahead of the sink than this, so that its times are read before they are overwritten
        self._num_times = sum(self._wiring.depth) + 1
        self._times_s: NDArray[np.float64] = np.zeros((len(plan.stages), self._num_times, 2))
        self._members: NDArray[np.int64] = np.zeros((len(plan.stages), self._num_times), dtype=np.int64)
        self._recorded: deque[tuple[NDArray[np.float64], NDArray[np.int64]]] = deque(maxlen=record)
        self._rings: dict[TensorKey, list[Any]] = {}
        #: tensors for which every sample brings memory of its own
        self._moving: set[TensorKey] = set()
        self._make_rings()
        self._runners = ready.open()
        #: whether the members of every team have one compiled model together
        self._shares_model = {
            owner: len(stage) > 1 and stage[0] is stage[1]
            for owner, stage in zip(self._owners, self._runners, strict=False)  # behind the stages: source and sink
        }
        self._lock = threading.Lock()
        self._may_submit = threading.Condition(self._lock)
        self._all_done = threading.Condition(self._lock)
        self._one_submit, self._one_close = threading.Lock(), threading.Lock()
        #: who waits for the result of every sample that is in flight
        self._pending: deque[Receiver] = deque()
        self._feed: Feed | None = None  # what `for_each` runs
        self._error: ExecutionError | None = None
        self._is_closing = self._is_closed = False
        self._deliverer: int | None = None  # the thread that runs callbacks of a future right now
        self._is_stopped = self._is_delivering = self._is_pulling = False
        self._wake = [[threading.Condition(self._lock) for _ in team] for team in plan.teams]
        #: samples that every member of a team has begun, and when it has ended one last
        self._num_begun = [[0] * len(team) for team in plan.teams]
        self._ended_s = [[0.0] * len(team) for team in plan.teams]
        self._workers = [
            threading.Thread(target=self._work, args=(owner, member), name=f"placekit-{device.name}", daemon=True)
            for owner, team in enumerate(plan.teams)
            for member, device in enumerate(team)
            for _ in range(ready.num_requests(self._owners.index(owner)))
        ]
        self._resources = ExitStack()
        self._resources.enter_context(ready.helpers())
        for worker in self._workers:
            worker.start()
        atexit.register(self._close_at_exit)

    def _make_rings(self) -> None:
        for key, node in self._wiring.writer.items():
            is_shared = self._share_inputs and node == self._wiring.source
            ring = [self._ready.slot(key) for _ in range(self._wiring.depth[node])]
            if is_shared or ring[0] is None:
                self._moving.add(key)
                ring = [None] * len(ring)
            self._rings[key] = ring

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in the model's order."""
        return self.plan.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in the model's order."""
        return self.plan.output_names

    @property
    def num_in_flight(self) -> int:
        """Samples that were submitted and whose results are not delivered."""
        with self._lock:
            return len(self._pending)

    @property
    def stage_times_s(self) -> NDArray[np.float64]:
        """``[num_samples, num_stages, 2]`` start and end of every stage, for the last `record` samples, in order.

        Seconds of ``time.perf_counter``.
        """
        with self._lock:
            return np.array([times_s for times_s, _ in self._recorded]).reshape(-1, len(self.plan.stages), 2)

    @property
    def stage_members(self) -> NDArray[np.int64]:
        """``[num_samples, num_stages]`` which member of its team ran every stage, for the samples of `stage_times_s`.

        Indices into `PlacedStage.members`; `UNKNOWN_MEMBER` where members share a compiled model.
        """
        with self._lock:
            members = [members for _, members in self._recorded]
        return np.array(members, dtype=np.int64).reshape(-1, len(self.plan.stages))

    # ------------------------------------------------------------------ what callers do

    def submit(self, inputs: Inputs) -> Future[Outputs]:
        """Put a sample in, and return its result to come; waits while the first queue is full.

        The future cannot be cancelled. A callback that is added to it runs in a thread of the pipeline; it should
        be short, and must not submit or close.

        Parameters
        ----------
        inputs
            One array per input, in the model's order or by name, of the input's type and shape.

        Raises
        ------
        InvalidProblemError
            A missing or unknown input, or one of another type or shape.
        ExecutionError
            The pipeline is closed, or a stage has failed.
        """
        tensors = self._ready.read(inputs)
        self._refuse_own_thread("submit")
        receiver = Single()
        with self._one_submit:
            self._enter(tensors, receiver)
        return receiver.future

    def __call__(self, inputs: Inputs) -> Outputs:
        """Run one sample and return its outputs; see `submit`."""
        return self.submit(inputs).result()

    def stream(self, samples: Iterable[Inputs]) -> Iterator[Outputs]:
        """Run many samples, and give their outputs in the same order while later ones are running.

        No more results are kept waiting than the pipeline holds samples.
        """
        waiting: deque[Future[Outputs]] = deque()
        for inputs in samples:
            waiting.append(self.submit(inputs))
            while waiting and (waiting[0].done() or len(waiting) > self._num_times):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def for_each(self, samples: Iterable[Inputs], consume: Callable[[Outputs], object]) -> int:
        """Run many samples and call `consume` with the outputs of each, in the same order; the fastest way.

        Nothing is copied: the outputs are where the last stage wrote them, and lose their meaning when `consume`
        returns. It is called in a thread of the pipeline, which computes nothing meanwhile, and must not submit or
        close. `submit` waits until all is done.

        Parameters
        ----------
        samples
            Inputs of every sample, see `submit`. Workers take them when they need them, so that a generator runs in
            one of their threads, never in two at once.
        consume
            What is done with the outputs of a sample.

        Returns
        -------
        int
            Number of samples.

        Raises
        ------
        Exception
            Whatever `samples` or `consume` raises; what was begun before is run to its end, without `consume`.
        PlacekitError
            As `submit`.
        """
        self._refuse_own_thread("for_each")
        feed = Feed(iter(samples), consume, self._lock)
        with self._one_submit:
            with self._lock:
                self._raise_if_over()
                self._feed = feed
            try:
                if self.plan.stages:  # workers put all samples in
                    with self._lock:
                        for condition in chain.from_iterable(self._wake):
                            condition.notify()
                else:
                    while (inputs := feed.next_inputs()) is not None:
                        self._enter(self._ready.read(inputs), feed)
                feed.wait()
            except BaseException as error:
                feed.set_exception(error)
                feed.wait()
                raise
            finally:
                self._feed = None
        feed.raise_error()
        return feed.num_samples

    def close(self, *, cancel: bool = False) -> None:
        """Finish what was submitted, then end all workers. Closing again does nothing.

        With `cancel` everything ends at once; futures that are not done raise an `ExecutionError`.
        """
        self._refuse_own_thread("close")
        with self._one_close:
            if self._is_closed:
                return
            with self._lock:
                self._is_closing = True
                self._may_submit.notify_all()
                while self._pending and self._error is None and not cancel:
                    self._all_done.wait()
            self._fail(ExecutionError(f"the pipeline of {self.plan.name!r} was closed before this sample was done"))
            with self._one_submit:  # whoever is copying inputs finds out that it is over before the slots are freed
                with self._lock:
                    self._is_stopped = True
                    for condition in chain.from_iterable(self._wake):
                        condition.notify_all()
                for thread in self._workers:
                    thread.join()
                self._resources.close()
                self._runners.clear()
                self._rings.clear()
            self._is_closed = True
            atexit.unregister(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(cancel=kind is not None)

    def _close_at_exit(self) -> None:
        self.close(cancel=True)

    def _raise_if_over(self) -> None:
        if self._error is not None and not self._is_closing:
            raise type(self._error)(str(self._error)) from self._error
        if self._is_closing:
            raise ExecutionError(f"the pipeline of {self.plan.name!r} is closed")

    def _refuse_own_thread(self, what: str) -> None:
        if threading.get_ident() == self._deliverer:
            raise ExecutionError(f"{what} in a callback of a future would wait for the thread that it runs in")

    def _fail(self, error: ExecutionError) -> None:
        """Give up on everything that is not done; the first error counts."""
        with self._lock:
            self._error = self._error or error
            lost, self._pending, feed = self._pending, deque(), self._feed
            self._may_submit.notify_all()
            self._all_done.notify_all()
        for receiver in dict.fromkeys([*lost, *([] if feed is None else [feed])]):
            receiver.lose(self._error)

    # ------------------------------------------------------------------ samples that come in

    def _enter(self, tensors: list[Any], receiver: Receiver) -> None:
        """Put a sample in; waits while the first queue is full. Called with `_one_submit`."""
        with self._lock:
            self._raise_if_over()
            while not self._flow.has_work(self._source_owner):
                self._may_submit.wait()
                self._raise_if_over()
        self._fill_in(tensors, receiver)
        if not self.plan.stages:  # a model without ops: nobody else is there to deliver
            with self._lock:
                result = self._next_result()
            self._deliver_from(result)

    def _fill_in(self, tensors: list[Any], receiver: Receiver) -> None:
        """Put a sample into the slot that is free; nobody else may do so meanwhile."""
        sample = self._flow.begun[self._wiring.source]
        for key, tensor in zip(self.plan.input_keys, tensors, strict=True):
            self._fill(key, sample, tensor)
        with self._lock:  # the sample counts from here on; an interrupt before leaves only a slot half filled
            self._raise_if_over()
            self._flow.take(self._source_owner)
            self._pending.append(receiver)
            receiver.begin_sample()
            self._announce(self._wiring.source, sample)

    def _fill(self, key: TensorKey, sample: int, tensor: Any) -> None:
        ring = self._rings[key]
        at = sample % len(ring)
        if self._share_inputs:
            ring[at] = tensor
        else:
            ring[at] = self._ready.copy(tensor, None if key in self._moving else ring[at])

    def _may_pull(self, owner: int) -> bool:
        """Return True if an idle worker may take the next sample of `for_each`; the caller holds the lock."""
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
                self._fill_in(self._ready.read(inputs), feed)
        except PlacekitError as error:
            feed.set_exception(error)
        finally:
            self._is_pulling = False

    # ------------------------------------------------------------------ stages that run

    def _home(self, owner: int, member: int) -> Device:
        """Return where a thread of a member works; its cores are those of all that share its compiled model."""
        team = self.plan.teams[owner]
        if not self._shares_model[owner]:
            return team[member]
        return team[member].replace(cores=tuple(core for device in team for core in device.cores))

    def _work(self, owner: int, member: int) -> None:
        """Run the stages of one device, a member of a team, until told to stop."""
        node, names = self._owners.index(owner), [device.name for device in self.plan.teams[owner]]
        where = f"a member of team {team_name(names)!r}" if self._shares_model[owner] else f"device {names[member]!r}"
        try:
            with self._ready.at_home(self._home(owner, member)):
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
            failure = ExecutionError(f"stage {stage.name!r} failed on {where}: {self._ready.reason(error)}")
            failure.__cause__ = error
            self._fail(failure)

    def _run(self, node: int, sample: int, member: int) -> None:
        stage = self.plan.stages[node]
        inputs = [self._tensor(key, sample) for key in stage.inputs]
        slots = [None if key in self._moving else self._tensor(key, sample) for key in stage.outputs]
        outputs = self._runners[node][member].run(inputs, slots)
        for key, slot, tensor in zip(stage.outputs, slots, outputs, strict=True):
            if slot is None:
                ring = self._rings[key]
                ring[sample % len(ring)] = tensor

    def _tensor(self, key: TensorKey, sample: int) -> Any:
        ring = self._rings[key]
        return ring[sample % len(ring)]

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
        """Count a sample of a node as done, and wake who has work by that; called with the lock."""
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

    # ------------------------------------------------------------------ results that go out

    def _next_result(self) -> int | None:
        """Return the sample to deliver next; None for none, or if somebody delivers already. Asked with the lock."""
        task = None if self._is_delivering else self._flow.take(self._sink_owner)
        self._is_delivering = self._is_delivering or task is not None
        return None if task is None else task[1]

    def _deliver_from(self, sample: int | None) -> None:
        """Deliver `sample`, and what has become ready meanwhile; one thread at a time does it."""
        while sample is not None:
            self._deliverer = threading.get_ident()
            try:
                self._hand_out(sample)
            except Exception as error:  # else whoever waits for a result would wait forever
                failure = ExecutionError(f"the results of {self.plan.name!r} cannot be delivered: {error}")
                failure.__cause__ = error
                self._fail(failure)
            finally:
                self._deliverer = None
            with self._lock:
                self._is_delivering = False
                sample = self._next_result()

    def _hand_out(self, sample: int) -> None:
        """Give the outputs of `sample` to its receiver, and free their slots."""
        with self._lock:
            receiver = self._pending[0] if self._pending else None
        names_and_keys = zip(self.plan.output_names, self.plan.output_keys, strict=True)
        outputs = {name: self._ready.view(self._tensor(key, sample)) for name, key in names_and_keys}
        if receiver is not None:
            receiver.consume(outputs)
        with self._lock:
            if self._recorded.maxlen:
                at = sample % self._num_times
                self._recorded.append((self._times_s[:, at].copy(), self._members[:, at].copy()))
            if not self._pending:  # failed or cancelled meanwhile
                return
            receiver = self._pending.popleft()
            self._announce(self._wiring.sink, sample)
            if not self._pending:
                self._all_done.notify_all()
            receiver.end_sample()
        receiver.deliver()

"""What every pipeline offers, whatever runs its stages: samples in, futures out, bounded queues, a clean end."""

from __future__ import annotations

import atexit
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError, InvalidProblemError, UnsupportedProblemError
from placekit.runtime.feed import Feed, Receiver, Single
from placekit.runtime.flow import Flow, FlowPlan, wire
from placekit.runtime.samples import InputReader, Inputs

__all__ = ["UNKNOWN_MEMBER", "Outputs", "Pipeline"]

Outputs: TypeAlias = dict[str, NDArray[Any]]
"""Outputs of one sample by name, in the model's order."""

UNKNOWN_MEMBER = -1
"""In place of a member of a team, where members share a compiled model and OpenVINO does not tell which one it was."""


class Pipeline(ABC):
    """Runs samples through the stages of a plan, several at a time.

    Inputs are copied when they are submitted and outputs when they are ready, so the arrays belong to the caller;
    between stages tensors are handed over without a copy. A stage that is on a team hands the next sample to the member
    that is free first; results come in the order in which samples were submitted. Use it as a context manager, or call
    `close`.

    A failing stage ends the pipeline: all futures that are not done, and every later `submit`, raise an
    `ExecutionError` that names the stage. Results that were delivered before stay.

    Parameters
    ----------
    plan
        The stages.
    queue_size
        Samples that fit between a stage and the next. `submit` blocks when the first queue is full.
    record
        Number of last samples whose stage times are kept, see `stage_times_s` and `stage_members`.

    Raises
    ------
    InvalidProblemError
        A queue size below 1 or a negative `record`.
    UnsupportedProblemError
        Inputs or outputs of strings.
    """

    def __init__(self, plan: FlowPlan, *, queue_size: int = 2, record: int = 0) -> None:
        if record < 0:
            raise InvalidProblemError(f"pipeline of {plan.name!r}: record is {record}; it must be >= 0")
        self.plan = plan
        self._wiring = wire(plan, queue_size)
        self._source_owner, self._sink_owner = len(plan.teams), len(plan.teams) + 1
        self._owners = [plan.teams.index(stage.members) for stage in plan.stages]
        self._owners += [self._source_owner, self._sink_owner]
        #: team of every worker; there is one worker per device, in the order of `StagePlan.devices`
        self._team_of_worker = [owner for owner, team in enumerate(plan.teams) for _ in team]
        self._flow = Flow(self._wiring, self._owners, self._takers())
        # no stage is ever further ahead of the sink than this, so that its times are read before they are overwritten
        self._num_times = sum(self._wiring.depth) + 1
        self._times_s: NDArray[np.float64] = np.zeros((len(plan.stages), self._num_times, 2))
        self._members: NDArray[np.int64] = np.zeros((len(plan.stages), self._num_times), dtype=np.int64)
        self._recorded: deque[tuple[NDArray[np.float64], NDArray[np.int64]]] = deque(maxlen=record)
        self._rings: dict[TensorKey, list[Any]] = {}
        self._prepare(plan)
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

    def _prepare(self, plan: Any) -> None:
        """Look at the tensors of a plan: a :class:`~placekit.runtime.stages.StagePlan` here."""
        self._ports = dict(zip(plan.input_keys, plan.model.inputs, strict=True))
        for stage in plan.stages:
            self._ports |= dict(zip(stage.outputs, stage.model.outputs, strict=True))
        self._dynamic = {key for key, port in self._ports.items() if port.get_partial_shape().is_dynamic}
        self._reader = InputReader(plan.model, plan.name)
        for port in (*plan.model.inputs, *plan.model.outputs):
            if port.get_element_type().get_type_name() == "string":
                raise UnsupportedProblemError(f"model {plan.name!r}: {port.get_any_name()!r} is a tensor of strings")

    def _read(self, inputs: Inputs) -> list[Any]:
        """Return one tensor per input, checked; the caller's memory."""
        return self._reader.read(inputs)

    def _output(self, key: TensorKey, sample: int) -> NDArray[Any]:
        """Return an output where it is."""
        view: NDArray[Any] = self._tensor(key, sample).data
        return view

    @abstractmethod
    def _takers(self) -> Collection[int]:
        """Return the owners (teams, source, sink) that work in this process."""

    @abstractmethod
    def _announce(self, node: int, sample: int) -> None:
        """Count a sample of the source or the sink as done and wake who has work by that; called with the lock."""

    @abstractmethod
    def _end(self) -> None:
        """End all workers and whoever delivers, wait for them, and free what they used.

        Called once, when nothing is in flight or nobody wants it any more.
        """

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
        tensors = self._read(inputs)
        self._refuse_own_thread("submit")
        receiver = Single()
        with self._one_submit:
            self._enter(tensors, receiver)
        return receiver.future

    def _enter(self, tensors: list[Any], receiver: Receiver) -> None:
        """Put a sample in; waits while the first queue is full. Called with `_one_submit`."""
        with self._lock:
            self._raise_if_over()
            while not self._flow.has_work(self._source_owner):
                self._may_submit.wait()
                self._raise_if_over()
        self._fill_in(tensors, receiver)

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
            Inputs of every sample, see `submit`. In a pipeline of threads its workers take them when they need them, so
            that a generator runs in one of their threads, never in two at once.
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
                self._run_feed(feed)
                feed.wait()
            except BaseException as error:
                feed.set_exception(error)
                feed.wait()
                raise
            finally:
                self._feed = None
        feed.raise_error()
        return feed.num_samples

    def _run_feed(self, feed: Feed) -> None:
        """Put all samples of `feed` in, or have others do it."""
        while (inputs := feed.next_inputs()) is not None:
            self._enter(self._read(inputs), feed)

    def close(self, *, cancel: bool = False) -> None:
        """Finish what was submitted, then end all workers. Closing again does nothing.

        Parameters
        ----------
        cancel
            End at once instead; futures that are not done raise an `ExecutionError`.
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
                self._end()
            self._is_closed = True
            atexit.unregister(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(cancel=kind is not None)

    def _start(self) -> None:
        atexit.register(self._close_at_exit)

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

    def _deliver(self, sample: int) -> None:
        """Give the outputs of `sample` to its future, and free their slots; one thread at a time does it."""
        self._deliverer = threading.get_ident()
        try:
            self._hand_out(sample)
        except Exception as error:  # else whoever waits for a result would wait forever
            failure = ExecutionError(f"the results of {self.plan.name!r} cannot be delivered: {error}")
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self._deliverer = None

    def _hand_out(self, sample: int) -> None:
        with self._lock:
            receiver = self._pending[0] if self._pending else None
        names_and_keys = zip(self.plan.output_names, self.plan.output_keys, strict=True)
        outputs = {name: self._output(key, sample) for name, key in names_and_keys}
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

    def _is_dynamic(self, key: TensorKey) -> bool:
        return key in self._dynamic

    def _tensor(self, key: TensorKey, sample: int) -> Any:
        """Return the tensor in the slot of `sample`; one of dynamic shape is there once it has been put."""
        ring = self._rings[key]
        tensor = ring[sample % len(ring)]
        assert tensor is not None
        return tensor

    def _put(self, key: TensorKey, sample: int, tensor: Any) -> None:
        """Put a tensor of dynamic shape into the slot of `sample`."""
        ring = self._rings[key]
        ring[sample % len(ring)] = tensor

    def _fill(self, key: TensorKey, sample: int, tensor: Any) -> None:
        """Copy an input into its slot; one of dynamic shape gets a tensor of its own."""
        from openvino import Tensor

        if self._is_dynamic(key):
            self._put(key, sample, Tensor(tensor.element_type, tensor.shape))
        tensor.copy_to(self._tensor(key, sample))

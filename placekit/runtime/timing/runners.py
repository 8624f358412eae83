"""Contenders that are ready to run: one sample after the other, or a stream of samples."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import filled_request, random_inputs
from placekit.io.models.model import ModelSource
from placekit.model.errors import ExecutionError
from placekit.runtime.pipelines.flow import samples_ahead
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.pipelines.serial import SerialExecutor
from placekit.runtime.stages.plans import compile_plan, engine_named
from placekit.runtime.timing.contenders import Contender, Whole
from placekit.runtime.timing.trace import StageTimes

if TYPE_CHECKING:
    import openvino


class Runner:
    """A contender that is ready to run, on inputs of its own."""

    num_in_flight = 1
    """Samples that are under way at once while it streams; 1 if it can only run one after another."""

    def run(self) -> None:
        """Run one sample, and wait for its outputs."""
        raise NotImplementedError

    def stream(self, is_enough: Callable[[int], bool]) -> tuple[list[float], float]:
        """Run samples as fast as possible until ``is_enough(number of samples begun)``.

        Returned are when each sample was done, and when the last one was begun, in seconds of ``time.perf_counter``.
        """
        done_s: list[float] = []
        begun_s = time.perf_counter()
        while not is_enough(len(done_s)):
            begun_s = time.perf_counter()
            self.run()
            done_s.append(time.perf_counter())
        return done_s, begun_s

    def stage_times(self) -> StageTimes:
        """Return when every stage ran, and on which member, for some of the last samples; for none if not known."""
        return np.zeros((0, 0, 2)), np.zeros((0, 0), dtype=np.int64)

    def close(self) -> None:
        """End it."""


_RECORDED_SAMPLES = 64
"""Samples whose stage times a runner keeps."""


def start_runner(source: ModelSource, contender: Contender, seed: int = 0) -> Runner:
    """Load, cut and compile, and return what can be run."""
    if isinstance(contender, Whole):
        model = source.load()
        return _WholeRunner(contender, model, random_inputs(model, seed))
    engine = engine_named(source.engine)
    plan = engine.plan(source, contender.placement, contender.platform)
    given = engine.random_inputs(plan, seed)
    if contender.executor == "serial":
        return _SerialRunner(SerialExecutor(compile_plan(plan)), given)
    # inputs are read where they are, as the requests of a whole model do
    pipe = Pipeline(
        compile_plan(plan),
        queue_size=contender.queue_size,
        record=_RECORDED_SAMPLES,
        share_inputs=engine.shares_inputs,
    )
    return _PipelineRunner(pipe, given, contender.queue_size)


class _SerialRunner(Runner):
    """Stages one after another, one sample after another."""

    def __init__(self, executor: SerialExecutor, inputs: list[Any]) -> None:
        self._executor, self._inputs = executor, inputs
        self._recorded: deque[list[tuple[float, float]]] = deque(maxlen=_RECORDED_SAMPLES)

    def run(self) -> None:
        self._recorded.append(self._executor.run_traced(self._inputs)[1])

    def stage_times(self) -> StageTimes:
        times_s = np.array(self._recorded)
        return times_s, np.zeros(times_s.shape[:2], dtype=np.int64)

    def close(self) -> None:
        self._executor.close()


class _PipelineRunner(Runner):
    """Pipeline with queues of `queue_size`."""

    def __init__(self, pipe: Pipeline, inputs: list[Any], queue_size: int) -> None:
        self._pipe, self._inputs = pipe, inputs
        stages = pipe.plan.stages
        # in every stage one, between any two what the queue holds, and around a team what lets its members overtake;
        # behind the last stage nothing waits
        ahead = [samples_ahead(stage.members) for stage in stages]
        self.num_in_flight = max(2, len(stages) * (queue_size + 1) + sum(ahead) + sum(ahead[:-1]))

    def run(self) -> None:
        self._pipe(self._inputs)

    def stream(self, is_enough: Callable[[int], bool]) -> tuple[list[float], float]:
        done_s: list[float] = []
        begun, last_begun_s = 0, time.perf_counter()

        def samples() -> Iterator[list[Any]]:
            nonlocal begun, last_begun_s
            while not is_enough(begun):
                begun, last_begun_s = begun + 1, time.perf_counter()
                yield self._inputs

        self._pipe.for_each(samples(), lambda _: done_s.append(time.perf_counter()))
        return done_s, last_begun_s

    def stage_times(self) -> StageTimes:
        return self._pipe.stage_times_s, self._pipe.stage_members

    def close(self) -> None:
        self._pipe.close(cancel=True)


class _WholeRunner(Runner):
    """A compiled model: one request for latency, as many as OpenVINO likes for throughput, each in its own thread."""

    def __init__(self, contender: Whole, model: openvino.Model, inputs: list[openvino.Tensor]) -> None:
        core = shared_core()
        try:
            one = core.compile_model(model, contender.target, dict(contender.latency_properties))
            many = core.compile_model(model, contender.target, dict(contender.throughput_properties))
            count = max(1, int(many.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")))
            self._one = filled_request(one, inputs)
            self._many = [filled_request(many, inputs) for _ in range(count)]
            self.num_in_flight = count
        except RuntimeError as error:
            raise ExecutionError(f"the model does not run on {contender.target!r}: {error}") from error

    def run(self) -> None:
        self._one.infer(share_outputs=True)

    def stream(self, is_enough: Callable[[int], bool]) -> tuple[list[float], float]:
        """Let every request take the next sample whenever it is free."""
        lock = threading.Lock()
        done_s: list[float] = []
        begun, last_begun_s, has_failed = 0, time.perf_counter(), False

        def work(request: openvino.InferRequest) -> None:
            nonlocal begun, last_begun_s, has_failed
            while True:
                with lock:
                    if has_failed or is_enough(begun):
                        return
                    begun += 1
                    last_begun_s = time.perf_counter()
                try:
                    request.infer(share_outputs=True)
                except RuntimeError:
                    has_failed = True
                    raise
                done_s.append(time.perf_counter())

        try:
            with ThreadPoolExecutor(len(self._many)) as pool:
                list(pool.map(work, self._many))
        except RuntimeError as error:
            raise ExecutionError(f"the whole model failed: {error}") from error
        return sorted(done_s), last_begun_s

    def close(self) -> None:
        self._many.clear()

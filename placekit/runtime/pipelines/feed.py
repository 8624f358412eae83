"""Receivers of outputs: a future for a single sample, a feed for a stream that a pipeline takes by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

from placekit.runtime.stages.stage_plan import Inputs


class Receiver:
    """Takes the outputs of samples, which lie where the last stage wrote them until `consume` has returned."""

    def begin_sample(self) -> None:
        """Count a sample that is in flight now; called with the lock."""

    def consume(self, outputs: dict[str, Any]) -> None:
        """Take the outputs of the next sample."""

    def end_sample(self) -> None:
        """Count a sample that is through; called with the lock."""

    def deliver(self) -> None:
        """Let go of whoever waits for this sample alone; called without the lock, as callbacks may run."""

    def lose(self, error: BaseException) -> None:
        """Raise `error` where results are waited for: none comes any more."""


class Single(Receiver):
    """Waits for the outputs of one sample, which are copied, with a future."""

    def __init__(self) -> None:
        self.future: Future[dict[str, Any]] = Future()
        self.future.set_running_or_notify_cancel()
        self._outputs: dict[str, Any] = {}

    def consume(self, outputs: dict[str, Any]) -> None:
        """Copy the outputs: the slots are written again."""
        self._outputs = {name: np.array(value) for name, value in outputs.items()}

    def deliver(self) -> None:
        """Let the future have the outputs."""
        self.future.set_result(self._outputs)

    def lose(self, error: BaseException) -> None:
        """Let the future raise `error`."""
        self.future.set_exception(error)


class Feed(Receiver):
    """Stream of samples that `Pipeline.for_each` runs and waits for, as a future waits for one sample.

    `consume` is called with the outputs of each, in order. The pipeline's `lock` guards what has begun and ended.
    """

    def __init__(
        self, samples: Iterator[Inputs], consume: Callable[[dict[str, Any]], object], lock: threading.Lock
    ) -> None:
        self._samples, self._consume = samples, consume
        self._ended = threading.Condition(lock)
        self._num_in_flight = 0
        self._error: BaseException | None = None
        self.num_samples = 0
        """Samples that were begun."""
        self.is_exhausted = False
        """Whether no more samples come."""

    def next_inputs(self) -> Inputs | None:
        """Return the next sample, for one thread at a time; None if there are no more, or the feed was stopped."""
        if self.is_exhausted:
            return None
        try:
            inputs = next(self._samples, None)
        except BaseException as error:
            self.set_exception(error)
            return None
        if inputs is None:
            with self._ended:
                self.is_exhausted = True
                self._ended.notify_all()
        return inputs

    def begin_sample(self) -> None:
        """Count a sample that is in flight now; called with the lock."""
        self._num_in_flight += 1
        self.num_samples += 1

    def consume(self, outputs: dict[str, Any]) -> None:
        """Hand the outputs of the next sample on; after an error nobody wants them."""
        if self._error is None:
            try:
                self._consume(outputs)
            except BaseException as error:
                self.set_exception(error)

    def end_sample(self) -> None:
        """Count a sample that is through; called with the lock."""
        self._num_in_flight -= 1
        if not self._num_in_flight:
            self._ended.notify_all()

    def set_exception(self, error: BaseException) -> None:
        """Take no more samples, and raise `error` where the results are waited for; the first one counts."""
        with self._ended:
            self._error = self._error or error
            self.is_exhausted = True
            self._ended.notify_all()

    def lose(self, error: BaseException) -> None:
        """Do the same, and wait for no sample that is in flight."""
        with self._ended:
            self._num_in_flight = 0
        self.set_exception(error)

    def wait(self) -> None:
        """Wait until no sample comes any more and none is in flight."""
        with self._ended:
            while self._num_in_flight or not self.is_exhausted:
                self._ended.wait()

    def raise_error(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise self._error

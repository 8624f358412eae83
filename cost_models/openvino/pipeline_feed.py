"""Samples that a pipeline takes by itself, one after another, and what is done with their outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from placekit.cost_models.openvino.samples import Inputs

__all__ = ["Feed"]


class Feed:
    """What `Pipeline.for_each` runs; it waits for all of its results, as a future does for one.

    Parameters
    ----------
    samples
        Inputs of every sample.
    consume
        Called with the outputs of each, in order.
    lock
        The pipeline's, which guards what has begun and what has ended.
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

    def set_exception(self, error: BaseException, *, are_lost: bool = False) -> None:
        """Take no more samples, and raise `error` where the results are waited for; the first one counts.

        Parameters
        ----------
        error
            What went wrong.
        are_lost
            True if the samples that are in flight will never be through.
        """
        with self._ended:
            self._error = self._error or error
            self.is_exhausted = True
            if are_lost:
                self._num_in_flight = 0
            self._ended.notify_all()

    def wait(self) -> None:
        """Wait until no sample comes any more and none is in flight."""
        with self._ended:
            while self._num_in_flight or not self.is_exhausted:
                self._ended.wait()

    def raise_error(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise self._error

"""The process of one contender: ``main`` loads it, and runs a burst of samples whenever its parent asks for one.

Messages are pickled over a pair of sockets. To `Order` objects it answers with `Burst` objects; ``None`` ends it. An
error is sent as its text, after which the process ends.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from placekit.io.model import ModelSource
from placekit.runtime.contenders import Contender
from placekit.runtime.runners import Runner, start_runner

__all__ = ["LEAST_SAMPLES", "Burst", "Failure", "Job", "Order", "Ready", "main", "run_burst", "steady_rate"]

_LOGGER = logging.getLogger(__name__)
_PARENT_CHECK_S = 1.0
LEAST_SAMPLES = 3
"""Samples of a burst, at least; in a stream times those under way at once, so that it has a steady state."""


@dataclass(frozen=True)
class Job:
    """The first message: what to run."""

    source: ModelSource
    contender: Contender
    seed: int
    parent: int


@dataclass(frozen=True)
class Order:
    """A burst to run.

    Parameters
    ----------
    mode
        ``"latency"``: one sample after the other. ``"throughput"``: a stream.
    duration_s
        Begin no sample after this time; but at least `LEAST_SAMPLES` are run, and so many times as many as are under
        way at once in a stream.
    """

    mode: Literal["latency", "throughput"]
    duration_s: float


@dataclass(frozen=True)
class Burst:
    """What came of an order.

    Parameters
    ----------
    latency_s
        ``[num_samples]`` seconds of every sample; empty for a stream.
    throughput_per_s
        Samples per second.
    stage_times_s
        ``[num_samples, num_stages, 2]`` start and end of every stage, of the last samples.
    stage_members
        ``[num_samples, num_stages]`` which member of its team ran it.
    """

    latency_s: NDArray[np.float64]
    throughput_per_s: float
    stage_times_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 2)))
    stage_members: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))


@dataclass(frozen=True)
class Ready:
    """The contender is compiled and has run once."""


@dataclass(frozen=True)
class Failure:
    """The contender cannot run."""

    kind: str
    message: str


def main() -> None:
    """Work for the parent at the descriptor that is the first argument; until it ends."""
    pipe = Connection(int(sys.argv[1]))
    job: Job = pipe.recv()
    threading.Thread(target=_end_with_parent, args=(job.parent,), daemon=True).start()
    if job.contender.cores and hasattr(os, "sched_setaffinity"):
        # before OpenVINO is imported, so that all of its threads are born there
        os.sched_setaffinity(0, job.contender.cores)
    try:
        runner = start_runner(job.source, job.contender, job.seed)
        runner.run()
        pipe.send(Ready())
        while (order := _next(pipe)) is not None:
            pipe.send(run_burst(runner, order))
        runner.close()
    except Exception as error:  # whatever it is, the parent says it
        _LOGGER.debug("the contender failed", exc_info=True)
        pipe.send(Failure(type(error).__name__, str(error)))


def _next(pipe: Connection) -> Order | None:
    try:
        order: Order | None = pipe.recv()
    except EOFError:  # the parent has gone
        return None
    return order


def run_burst(runner: Runner, order: Order) -> Burst:
    """Run a burst and return its numbers.

    The throughput of a stream is taken between the first sample that came through full queues and the last that was
    done while samples were still coming in: neither filling nor draining the pipeline counts.
    """
    start_s = time.perf_counter()
    least = LEAST_SAMPLES * (runner.num_in_flight if order.mode == "throughput" else 1)

    def is_enough(begun: int) -> bool:
        return begun >= least and time.perf_counter() - start_s >= order.duration_s

    if order.mode == "latency":
        times = [start_s]
        while not is_enough(len(times) - 1):
            runner.run()
            times.append(time.perf_counter())
        latency_s = np.diff(times)
        return _burst(runner, latency_s, len(latency_s) / (times[-1] - times[0]), len(latency_s))
    done_s, last_begun_s = runner.stream(is_enough)
    rate = steady_rate(np.array(done_s), last_begun_s, runner.num_in_flight)
    return _burst(runner, np.zeros(0), rate, len(done_s))


def _burst(runner: Runner, latency_s: NDArray[np.float64], rate: float, num_samples: int) -> Burst:
    times_s, members = runner.stage_times()
    return Burst(latency_s, rate, times_s[-num_samples:], members[-num_samples:])


def steady_rate(done_s: NDArray[np.float64], last_begun_s: float, num_in_flight: int) -> float:
    """Return samples per second without filling and draining; with them if too few samples are left else.

    It is the slope of the line through all samples (least squares). Members in step end samples at the same time, and
    a count between the first and the last of a short stream would say one more or one less than it is.

    Parameters
    ----------
    done_s
        ``[num_samples]`` when every sample was done, rising; at least two.
    last_begun_s
        When the last one was begun.
    num_in_flight
        Samples that are under way at once.
    """
    steady = done_s[num_in_flight:]
    steady = steady[steady <= last_begun_s]
    used = steady if len(steady) > 2 else done_s
    centred_s = used - used.mean()
    return float(centred_s @ np.arange(len(used)) / (centred_s @ centred_s))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(0)


if __name__ == "__main__":
    main()

"""A contender in a process of its own, which can be killed: what hangs or crashes is an error, not the end.

Messages are pickled over a pair of sockets. To a mode and a duration the process answers with a `Burst`; ``None`` ends
it. An error is sent as its text, after which the process ends. A process per contender also keeps their threads
apart: all models of a process share OpenVINO's.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.io.models.model import ModelSource
from placekit.model import errors
from placekit.model.errors import DeviceUnavailableError, ExecutionError, PlacekitError
from placekit.runtime.timing.contenders import Contender
from placekit.runtime.timing.runners import Runner, start_runner

_LOGGER = logging.getLogger(__name__)
_PARENT_CHECK_S = 1.0
_EXIT_WAIT_S = 5.0
_STDERR_LINES = 3
# OpenVINO's telemetry forks a process to call home, which would outlive this one and keep its end of the connection
_PROGRAM = """
import sys
sys.modules["openvino_telemetry"] = None
from placekit.runtime.timing.timed_process import main
main()
"""
LEAST_SAMPLES = 3
"""Samples of a burst, at least; in a stream times those under way at once, so that it has a steady state."""


Mode: TypeAlias = Literal["latency", "throughput"]
"""Sort of a burst: one sample after the other, or a stream."""


@dataclass(frozen=True)
class Burst:
    """Result of samples that a timed process ran."""

    latency_s: NDArray[np.float64]  # ``[num_samples]`` seconds of every sample; empty for a stream
    throughput_per_s: float  # samples per second
    # ``[num_samples, num_stages, 2]`` start and end of every stage, of the last samples
    stage_times_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 2)))
    # ``[num_samples, num_stages]`` which member of its team ran it
    stage_members: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))


class Failure(NamedTuple):
    """Error of a contender that cannot run."""

    kind: str
    message: str


class TimedProcess:
    """Runs bursts of one contender in a new interpreter. Use it as a context manager, or call `close`.

    The process is killed if it takes longer than `timeout_s` to compile, or beyond the duration of a burst.
    """

    def __init__(self, source: ModelSource, contender: Contender, *, seed: int = 0, timeout_s: float = 120.0) -> None:
        if os.name != "posix":
            raise DeviceUnavailableError(f"{contender.name}: timing in processes of their own needs a POSIX system")
        self.name = contender.name
        self._timeout_s = timeout_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, and a program from above
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            process_group=0,  # Ctrl-C is for the parent, which then ends it
        )
        theirs.close()
        try:
            self._pipe.send((source, contender, seed, os.getpid()))
            self._answer(timeout_s, "to compile")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def burst(self, mode: Mode, duration_s: float) -> Burst:
        """Run a burst, which begins no sample after `duration_s`.

        But at least `LEAST_SAMPLES` are run, and in a stream so many times as many as are under way at once.
        """
        try:
            self._pipe.send((mode, duration_s))
        except OSError:
            raise self._ended() from None
        burst: Burst = self._answer(duration_s + self._timeout_s, f"to run for {duration_s:g} s")
        return burst

    def _answer(self, timeout_s: float, what: str) -> Any:
        try:
            if not self._pipe.poll(timeout_s):
                self._process.kill()
                raise ExecutionError(f"{self.name} had {timeout_s:g} s {what} and did not end; it was killed")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, Failure):
            own = getattr(errors, answer.kind, None)
            raise (own if isinstance(own, type) and issubclass(own, PlacekitError) else ExecutionError)(
                f"{self.name}: {answer.message}"
            )
        return answer

    def _ended(self) -> ExecutionError:
        """Return the error of a process that answers no more."""
        try:
            status = self._process.wait(_EXIT_WAIT_S)
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        except subprocess.TimeoutExpired:
            self._process.kill()
            how = "closed its connection and was killed"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()[-_STDERR_LINES:]
        return ExecutionError(f"{self.name}: its process {how}{': ' if lines else ''}{' | '.join(lines)}")

    def close(self) -> None:
        """End the process, by force if it does not end by itself. Closing again does nothing."""
        if self._pipe.closed:
            return
        try:
            self._pipe.send(None)
        except OSError:  # it has ended already
            _LOGGER.debug("process %d of %s has ended before", self.pid, self.name)
        self._pipe.close()
        try:
            self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of the process `root` and of its living descendants so far; 0 if it has ended.

    Ended children count as soon as somebody waited for them.
    """
    import psutil

    total = 0.0
    with suppress(psutil.Error):
        first = psutil.Process(root)
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.Error):  # it has ended meanwhile
                spent = process.cpu_times()
                total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def main() -> None:
    """Work for the parent at the descriptor that is the first argument; until it ends."""
    pipe = Connection(int(sys.argv[1]))
    source, contender, seed, parent = pipe.recv()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    if contender.cores and hasattr(os, "sched_setaffinity"):
        # before OpenVINO is imported, so that all of its threads are born there
        os.sched_setaffinity(0, contender.cores)
    try:
        runner = start_runner(source, contender, seed)
        runner.run()
        pipe.send("ready")
        with suppress(EOFError):  # the parent has gone
            while (order := pipe.recv()) is not None:
                pipe.send(run_burst(runner, *order))
        runner.close()
    except Exception as error:  # whatever it is, the parent says it
        _LOGGER.debug("the contender failed", exc_info=True)
        pipe.send(Failure(type(error).__name__, str(error)))


def run_burst(runner: Runner, mode: Mode, duration_s: float) -> Burst:
    """Run a burst and return its numbers.

    The throughput of a stream is taken between the first sample that came through full queues and the last that was
    done while samples were still coming in: neither filling nor draining the pipeline counts.
    """
    start_s = time.perf_counter()
    least = LEAST_SAMPLES * (runner.num_in_flight if mode == "throughput" else 1)

    def is_enough(begun: int) -> bool:
        return begun >= least and time.perf_counter() - start_s >= duration_s

    latency_s = np.zeros(0)
    if mode == "latency":
        times = [start_s]
        while not is_enough(len(times) - 1):
            runner.run()
            times.append(time.perf_counter())
        latency_s = np.diff(times)
        count, rate = len(latency_s), len(latency_s) / (times[-1] - times[0])
    else:
        done_s, last_begun_s = runner.stream(is_enough)
        count, rate = len(done_s), steady_rate(np.array(done_s), last_begun_s, runner.num_in_flight)
    times_s, members = runner.stage_times()
    return Burst(latency_s, rate, times_s[-count:], members[-count:])


def steady_rate(done_s: NDArray[np.float64], last_begun_s: float, num_in_flight: int) -> float:
    """Return samples per second without filling and draining; with them if too few samples are left else.

    It is the slope of the line through all samples (least squares). Members in step end samples at the same time, and
    a count between the first and the last of a short stream would say one more or one less than it is. `done_s` has
    ``[num_samples]`` rising times, at least two; the last sample began at `last_begun_s`.
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

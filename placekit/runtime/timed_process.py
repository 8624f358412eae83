"""A contender in a process of its own, which can be killed: what hangs or crashes is an error, not the end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from placekit.io.model import ModelSource
from placekit.model import errors
from placekit.model.errors import DeviceUnavailableError, ExecutionError, PlacekitError
from placekit.runtime.contenders import Contender
from placekit.runtime.worker import Burst, Failure, Job, Order, Ready

__all__ = ["TimedProcess", "tree_cpu_s"]

_LOGGER = logging.getLogger(__name__)
_Message = TypeVar("_Message")
_EXIT_WAIT_S = 5.0
_STDERR_LINES = 3
# OpenVINO's telemetry forks a process to call home, which would outlive this one and keep its end of the connection
_PROGRAM = """
import sys
sys.modules["openvino_telemetry"] = None
from placekit.runtime.worker import main
main()
"""


class TimedProcess:
    """Runs bursts of one contender in a new interpreter. Use it as a context manager, or call `close`.

    Parameters
    ----------
    source, contender
        What to run.
    seed
        Seed of the inputs.
    timeout_s
        Longest time to compile, and that a burst may take beyond its duration, before the process is killed.

    Raises
    ------
    PlacekitError
        The contender's own error, from loading, cutting or compiling.
    ExecutionError
        The process ended or was killed because it did not answer in time.
    DeviceUnavailableError
        No POSIX system.
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
            self._pipe.send(Job(source, contender, seed, os.getpid()))
            self._answer(timeout_s, "to compile", Ready)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def burst(self, order: Order) -> Burst:
        """Run a burst.

        Raises
        ------
        PlacekitError
            The contender's own error.
        ExecutionError
            The process ended, or was killed because it did not answer in time.
        """
        try:
            self._pipe.send(order)
        except OSError:
            raise self._ended() from None
        return self._answer(order.duration_s + self._timeout_s, f"to run for {order.duration_s:g} s", Burst)

    def _answer(self, timeout_s: float, what: str, kind: type[_Message]) -> _Message:
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
        assert isinstance(answer, kind)
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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of the process `root` and of its living descendants so far; 0 where it cannot be told.

    Ended children count as soon as somebody waited for them.
    """
    tick_s = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0
    parent_of: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields: list[Any] = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(entry.parent.name)
        parent_of[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    total = 0
    for pid, spent in ticks.items():
        each: int | None = pid
        while each is not None and each != root:
            each = parent_of.get(each)
        total += spent if each == root else 0
    return total * tick_s

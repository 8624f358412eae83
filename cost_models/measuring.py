"""Conditions of a measurement: one at a time on a machine, and how much something else used of it meanwhile."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from placekit.io.locks import private_folder
from placekit.model.errors import ProfileError

__all__ = ["LoadMeter", "LoadReading", "lock_path", "measuring"]

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1
_MAX_SHOWN = 200


def lock_path() -> Path:
    """Return the lock file of this user: in a folder that is the user's alone and outlives no boot.

    Raises
    ------
    PlacekitError
        There can be no such folder.
    """
    return private_folder() / "measuring.lock"


@contextmanager
def measuring(
    what: str,
    *,
    wait_s: float | None = None,
    path: Path | None = None,
    gives_up: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Hold the lock while the block runs; wait for whoever holds it, and say so in the log.

    The operating system lets go of the lock when the process ends, however it ends. Who holds it stands beside it in a
    JSON file, for messages only.

    Parameters
    ----------
    what
        What is measured, for the messages of others who wait.
    wait_s
        Longest time to wait; None for ever.
    path
        The lock file; `lock_path` if None.
    gives_up
        Asked ten times a second while waiting; True ends the wait.

    Raises
    ------
    ProfileError
        Somebody else still measures after `wait_s` or when `gives_up` says so, or the file cannot be opened.
    """
    path = path or lock_path()
    told = path.with_name(f"{path.name}.json")
    if path.is_symlink():  # somebody put it there, so that its target is written to
        raise ProfileError(f"the lock file {path} of measurements cannot be opened: it is a link")
    if not path.parent.is_dir():  # filelock would make it
        raise ProfileError(f"the lock file {path} of measurements cannot be opened: there is no folder {path.parent}")
    lock, start, is_told = FileLock(path), time.perf_counter(), False
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            holder = _holder(told)
        except OSError as error:
            reason = error.strerror or error
            raise ProfileError(f"the lock file {path} of measurements cannot be opened: {reason}") from error
        waited_s = time.perf_counter() - start
        if wait_s is not None and waited_s >= wait_s:
            raise ProfileError(
                f"{what} cannot be measured: {holder} is being measured since before {waited_s:.0f} s, the longest "
                f"wait is {wait_s:g} s"
            )
        if gives_up is not None and gives_up():
            raise ProfileError(f"{what} was not measured: it gave up waiting for {holder}")
        if not is_told:
            _LOGGER.warning("%s waits: %s is being measured", what, holder)
            is_told = True
        time.sleep(_POLL_S)
    try:
        told.write_text(json.dumps({"pid": os.getpid(), "what": what}))
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """Return who holds the lock, as far as the file tells."""
    try:
        told = json.loads(path.read_text())
        return f"{str(told['what'])[:_MAX_SHOWN]} (process {told['pid']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # just being written
        return "something else"


_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Reading of a `LoadMeter`.

    Parameters
    ----------
    wall_s
        Seconds between start and end.
    own_cpu_s
        CPU seconds of the work itself: of this process, all its threads together, unless told otherwise.
    foreign_load
        Share of the watched cores' wall time that other load took, 0 to 1.
    source
        ``"busy"``: busy time of the cores minus `own_cpu_s`. ``"starved"``: the share of the wall time in which this
        process, which never waits while it is measured, had not even one core; a lower bound.
    """

    wall_s: float
    own_cpu_s: float
    foreign_load: float
    source: str


class LoadMeter:
    """Measures other load on `cores` between entering and leaving a ``with`` block.

    The work inside has to run on these cores and nowhere else (see
    :func:`~placekit.cost_models.openvino.machine.running_on`). Linux counts in ticks of 10 ms: what lasts less than
    about 0.3 s is not judged well.

    Parameters
    ----------
    cores
        Logical CPUs to watch; all that the system counts if empty.
    stat
        Where Linux keeps the busy times.
    own_cpu_s
        Tells the CPU seconds so far of the work that is measured; those of this process if None.

    Examples
    --------
    >>> with LoadMeter() as meter:
    ...     total = sum(range(1000))
    >>> 0 <= meter.reading.foreign_load <= 1
    True
    """

    def __init__(
        self, cores: Sequence[int] = (), stat: Path = _STAT, own_cpu_s: Callable[[], float] | None = None
    ) -> None:
        self._cores = frozenset(cores)
        self._stat = stat
        self._own_cpu_s = own_cpu_s or time.process_time
        self.reading = LoadReading(0.0, 0.0, 0.0, "starved")

    def __enter__(self) -> Self:
        self._start = (time.perf_counter(), self._own_cpu_s(), self._busy_s())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_s, own_cpu_s = time.perf_counter() - self._start[0], self._own_cpu_s() - self._start[1]
        before, after = self._start[2], self._busy_s()
        if before is not None and after is not None and wall_s > 0:
            (busy_before_s, num_cores), (busy_after_s, _) = before, after
            # a plugin that binds its own threads can use other cores as well: not more than there was time for
            own_here_s = min(own_cpu_s, wall_s * num_cores)
            foreign = (busy_after_s - busy_before_s - own_here_s) / (wall_s * num_cores)
            source = "busy"
        else:
            foreign = 1 - own_cpu_s / wall_s if wall_s > 0 else 0.0
            source = "starved"
        self.reading = LoadReading(wall_s, own_cpu_s, min(max(foreign, 0.0), 1.0), source)

    def _busy_s(self) -> tuple[float, int] | None:
        """Return the seconds that the watched cores were busy since boot, and their number; None if not known."""
        try:
            lines = self._stat.read_text().splitlines()
            tick_s = 1 / os.sysconf("SC_CLK_TCK")
            ticks: list[int] = []
            for line in lines:
                name, *values = line.split()
                if name.startswith("cpu") and name[3:].isdigit() and (not self._cores or int(name[3:]) in self._cores):
                    user, nice, system, _idle, _iowait, irq, softirq, *rest = map(int, values)
                    # stolen time was another virtual machine's: foreign as well; guest time is inside user time
                    ticks.append(user + nice + system + irq + softirq + (rest[0] if rest else 0))
        except (AttributeError, OSError, ValueError):
            return None
        return (sum(ticks) * tick_s, len(ticks)) if ticks else None

"""Conditions of a measurement: one at a time on a machine, and how much something else used of it meanwhile."""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from placekit.model.errors import PlacekitError, ProfileError

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1
_MAX_SHOWN = 200


def lock_path() -> Path:
    """Return the lock file of this user, in a folder that the processes of the user share until the next boot.

    The folder lies among the system's temporary files, where everybody can make files, under a name that everybody can
    guess. So it is made for this user alone, and one that is not is not used.

    Raises
    ------
    PlacekitError
        The folder cannot be made, or somebody else has made something of that name.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"placekit-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise PlacekitError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    is_mine = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_mine:
        raise PlacekitError(
            f"{folder} is no folder of this user alone, so that locks in it are not safe; remove it, or set TMPDIR"
        )
    return folder / "measuring.lock"


@contextmanager
def measuring(
    what: str,
    *,
    path: Path | None = None,
    gives_up: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Hold the lock while the block runs; wait for whoever holds it, and say so in the log.

    The operating system lets go of the lock when the process ends, however it ends. Who holds it stands beside it in a
    JSON file, for messages only. `what` names the measurement for others who wait; `gives_up` is asked ten times a
    second while waiting.

    Raises
    ------
    ProfileError
        Somebody else still measures when `gives_up` says so, or the file cannot be opened.
    """
    from filelock import FileLock, Timeout

    path = path or lock_path()
    told = path.with_name(f"{path.name}.json")
    if path.is_symlink():  # somebody put it there, so that its target is written to
        raise ProfileError(f"the lock file {path} of measurements cannot be opened: it is a link")
    if not path.parent.is_dir():  # filelock would make it
        raise ProfileError(f"the lock file {path} of measurements cannot be opened: there is no folder {path.parent}")
    lock, is_told = FileLock(path), False
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            holder = _holder(told)
        except OSError as error:
            reason = error.strerror or error
            raise ProfileError(f"the lock file {path} of measurements cannot be opened: {reason}") from error
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


_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Times of a core that count as busy; stolen time was another virtual machine's, and guest time is inside user time."""


class LoadMeter:
    """Measures other load on `cores` between entering and leaving a ``with`` block.

    The work inside has to run on these cores and nowhere else (see
    :func:`~placekit.cost_models.openvino.machine.running_on`). Linux counts in ticks of 10 ms: what lasts less than
    about 0.3 s is not judged well.

    Parameters
    ----------
    cores
        Logical CPUs to watch; all that the system counts if empty.
    own_cpu_s
        Tells the CPU seconds so far of the work that is measured; those of this process if None.

    Attributes
    ----------
    wall_s, own_cpu_s
        Seconds of the block, and CPU seconds of the work itself.
    foreign_load
        Share of the watched cores' wall time that other load took, 0 to 1: their busy time minus `own_cpu_s`.

    Examples
    --------
    >>> with LoadMeter() as meter:
    ...     total = sum(range(1000))
    >>> 0 <= meter.foreign_load <= 1
    True
    """

    def __init__(self, cores: Sequence[int] = (), own_cpu_s: Callable[[], float] | None = None) -> None:
        self._cores = frozenset(cores)
        self._tell_cpu_s = own_cpu_s or time.process_time
        self.wall_s = self.own_cpu_s = self.foreign_load = 0.0

    def __enter__(self) -> Self:
        self._start = (time.perf_counter(), self._tell_cpu_s(), self._busy_s())
        return self

    def __exit__(self, *_: object) -> None:
        (start_s, own_before_s, (busy_before_s, num_cores)) = self._start
        self.wall_s, self.own_cpu_s = time.perf_counter() - start_s, self._tell_cpu_s() - own_before_s
        there_s = self.wall_s * num_cores
        # a plugin that binds its own threads can use other cores as well: not more than there was time for
        foreign_s = self._busy_s()[0] - busy_before_s - min(self.own_cpu_s, there_s)
        self.foreign_load = min(max(foreign_s / there_s, 0.0), 1.0) if there_s > 0 else 0.0

    def _busy_s(self) -> tuple[float, int]:
        """Return the seconds that the watched cores were busy since boot, and their number."""
        import psutil

        times = psutil.cpu_times(percpu=True)
        watched = [each for core, each in enumerate(times) if not self._cores or core in self._cores]
        return sum(getattr(each, name, 0.0) for each in watched for name in _BUSY), len(watched)

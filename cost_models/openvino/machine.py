"""The machine underneath: which cores this process may use, how much memory there is, and running on chosen cores."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from placekit.machine import usable_cpus
from placekit.model.errors import DeviceUnavailableError

_LOGGER = logging.getLogger(__name__)
_SYSTEM = Path("/sys/devices")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core, named after the first of its hardware threads that this process may use.

    Parameters
    ----------
    cpu
        Logical CPU number, as in ``os.sched_getaffinity``.
    package, core_id
        Socket, and number of the core within it.
    core_type
        ``"P"`` or ``"E"`` on a hybrid processor, else empty.
    """

    cpu: int
    package: int
    core_id: int
    core_type: str = ""


def usable_cores(system: Path = _SYSTEM) -> tuple[Core, ...]:
    """Return the physical cores that this process may run on, socket by socket.

    The process affinity counts, as containers and batch systems set it. Of the hardware threads of one core only the
    first is listed: two devices on the threads of one core would slow each other down, and one thread per core is also
    what OpenVINO uses for latency. `system` is where Linux describes its processors; without it (other systems) every
    logical CPU counts as a core.
    """
    types = {cpu: label for label, name in (("P", "cpu_core"), ("E", "cpu_atom")) for cpu in _cpu_list(system / name)}
    cores: dict[tuple[int, int], Core] = {}
    for cpu in usable_cpus():
        topology = system / "system" / "cpu" / f"cpu{cpu}" / "topology"
        package = _number(topology / "physical_package_id", 0)
        core_id = _number(topology / "core_id", cpu)
        cores.setdefault((package, core_id), Core(cpu, package, core_id, types.get(cpu, "")))
    return tuple(sorted(cores.values(), key=lambda core: (core.package, core.cpu)))


def _number(path: Path, default: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return default


def _cpu_list(folder: Path) -> list[int]:
    """Return the CPUs that Linux lists in `folder`, written like ``0-3,8``; none without such a file."""
    try:
        spans = [span.split("-") for span in (folder / "cpus").read_text().strip().split(",") if span]
        return [cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)]
    except (OSError, ValueError):
        return []


def format_cores(cores: Sequence[int]) -> str:
    """Write core numbers as ranges.

    Examples
    --------
    >>> format_cores([0, 1, 2, 3, 8])
    '0-3,8'
    """
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][-1] + 1:
            spans[-1][-1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def memory_bytes() -> float:
    """Return the physical memory, or the limit of this process's control group if that is less."""
    import psutil

    total = float(psutil.virtual_memory().total)
    try:
        return min(total, float(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control group, or "max"
        return total


def cpu_name() -> str:
    """Return the model name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@contextmanager
def running_on(cores: Sequence[int]) -> Iterator[None]:
    """Run every thread of this process on `cores`, and put each back where it was afterwards.

    Every thread, because OpenVINO's workers are shared by all models of a process and keep the cores that they were
    born with: moving the calling thread alone would leave them where an earlier measurement had put them. Without
    `cores`, or on a system that cannot bind threads, nothing happens.

    Raises
    ------
    DeviceUnavailableError
        Cores that do not exist or that this process may not use.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        if cores:
            _LOGGER.warning("this system cannot bind threads to cores; measuring on whatever cores it gives")
        yield
        return
    home = os.sched_getaffinity(0)
    before = cores_of_threads()
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise DeviceUnavailableError(
            f"cores {format_cores(cores)} cannot be used: {error}; this process may use {format_cores(sorted(home))}"
        ) from None
    move_threads({thread: set(cores) for thread in before})
    try:
        yield
    finally:
        move_threads({thread: before.get(thread, home) for thread in cores_of_threads()})
        os.sched_setaffinity(0, home)


def cores_of_threads() -> dict[int, set[int]]:
    """Return the cores that every thread of this process may use, by its native id."""
    found = {}
    with suppress(OSError):  # no Linux
        for entry in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended since it was listed
                found[int(entry.name)] = os.sched_getaffinity(int(entry.name))
    return found


def native_threads() -> set[int]:
    """Return the native ids of the threads of this process that Python did not start; none where it cannot be told."""
    own = {thread.native_id for thread in threading.enumerate()}
    try:
        return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}.difference(own)
    except OSError:  # no Linux
        return set()


def move_threads(cores_of: Mapping[int, set[int]]) -> None:
    """Bind threads to cores; one that has ended is left alone."""
    for thread, cores in cores_of.items():
        try:
            os.sched_setaffinity(thread, cores)
        except OSError:
            _LOGGER.debug("thread %d could not be moved to cores %s", thread, format_cores(sorted(cores)))

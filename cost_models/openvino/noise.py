"""How much of the machine something else used while a measurement ran."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["LoadMeter", "LoadReading"]

_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class LoadReading:
    """What a `LoadMeter` saw.

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

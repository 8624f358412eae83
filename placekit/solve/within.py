"""A solve inside another one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from placekit.solve.method import Run
from placekit.solve.stop import MaxRuntime, Progress, StopReason

__all__ = ["Within"]


@dataclass(frozen=True)
class Within:
    """Stops an inner run after its own seconds, or when the outer run is to stop.

    Parameters
    ----------
    run
        The outer run.
    seconds
        Of the inner run; infinity for no limit of its own.
    """

    run: Run
    seconds: float = math.inf

    @property
    def time_limit_s(self) -> float | None:
        """Seconds of its own; None for no limit."""
        return None if math.isinf(self.seconds) else self.seconds

    @property
    def gap(self) -> float | None:
        """None: the gap of the inner run is not that of the outer one."""
        return None

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return why to stop, or None."""
        if self.time_limit_s is not None and (reason := MaxRuntime(self.seconds)(progress)):
            return reason
        return self.run.should_stop()

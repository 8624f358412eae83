"""A contender of a timing that needs no device."""

from __future__ import annotations

import numpy as np

from placekit.runtime.timing.timed_process import Burst, Mode


class Process:
    """Stands for the process of a contender; every burst takes 2 ms per sample and counts."""

    bursts = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def burst(self, mode: Mode, _duration_s: float) -> Burst:
        """Return three samples."""
        Process.bursts += 1
        return Burst(np.full(3, 2e-3) if mode == "latency" else np.zeros(0), 500.0)

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass

"""Timing of placements: contenders measured in turns, each in a process of its own, under a lock, kept by content.

In every round each contender runs a burst, in changing order, so that what the machine does meanwhile (its
frequency, other load) hits all of them alike; two contenders are compared round by round.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placekit.cost_models.base import Progress, backend_of, report
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.measuring import LoadMeter, lock_path, measuring
from placekit.cost_models.openvino.machine import cpu_name
from placekit.io.models.model import ModelSource
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.runtime.timing.contenders import Contender
from placekit.runtime.timing.measurements import Measurements, Timings
from placekit.runtime.timing.timed_process import Burst, Mode, TimedProcess, tree_cpu_s

_LOGGER = logging.getLogger(__name__)

_SCHEMA = 5
"""Version of what a cache entry means; raised when measuring changes."""


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """Settings of a measurement: durations, rounds and limits.

    Parameters
    ----------
    rounds
        Rounds that other load left alone to aim at.
    max_rounds
        Rounds at most, disturbed ones included.
    warm_up_s, latency_s, throughput_s
        Seconds of a contender's warm-up, and of its bursts in every round; a burst of 0 s is left out. The two
        bursts cannot both be.
    time_limit_s
        No round begins after so many seconds, though there are always three.
    max_foreign_load
        Share of the cores' time, 0 to 1, that other load may take before a round counts as disturbed.
    timeout_s
        Seconds to compile, and that a burst may take beyond its length, before the contender is killed.
    seed
        Seed of the inputs.

    Raises
    ------
    InvalidProblemError
        A number outside its range.
    """

    rounds: int = 9
    max_rounds: int = 15
    warm_up_s: float = 0.3
    latency_s: float = 0.3
    throughput_s: float = 0.6
    time_limit_s: float = 90.0
    max_foreign_load: float = 0.1
    timeout_s: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < _LEAST_ROUNDS:
            raise InvalidProblemError(f"rounds is {self.rounds}; a median needs at least {_LEAST_ROUNDS}")
        if self.max_rounds < self.rounds:
            raise InvalidProblemError(f"max_rounds is {self.max_rounds}; rounds is {self.rounds}, and must not be more")
        for name in ("warm_up_s", "latency_s", "throughput_s", "time_limit_s", "timeout_s"):
            if not getattr(self, name) >= 0:
                raise InvalidProblemError(f"timing: {name} is {getattr(self, name)}; it must be >= 0")
        if not self.latency_s and not self.throughput_s:
            raise InvalidProblemError("timing: latency_s and throughput_s are both 0; there is nothing to measure")
        if not 0 <= self.max_foreign_load <= 1:
            raise InvalidProblemError(f"timing: max_foreign_load is {self.max_foreign_load}; it is a share, 0 to 1")


_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Timing:
    """Measures contenders.

    Parameters
    ----------
    settings
        How long and how carefully.
    cache
        Where measurements are kept; None to measure anew and keep nothing.
    lock
        File of the lock that keeps other measurements away; the user's own if None.
    keeps_noisy
        True to keep and take measurements that other load disturbed, too: for those who would rather have a doubtful
        number than measure again.

    Examples
    --------
    >>> placed = Placed("placement", placement, platform, "threads")  # doctest: +SKIP
    >>> timings = Timing().measure(source, [placed, *singles(source.graph, platform, "threads")])  # doctest: +SKIP
    """

    settings: TimingSettings = TimingSettings()  # frozen, holds no state
    cache: ProfileCache | None = ProfileCache()  # noqa: RUF009  # frozen, holds no state
    lock: Path | None = None
    keeps_noisy: bool = False

    def measure(
        self,
        source: ModelSource,
        contenders: Sequence[Contender],
        *,
        progress: Progress | None = None,
        gives_up: Callable[[], bool] | None = None,
    ) -> Timings:
        """Measure `contenders` against each other on seeded inputs.

        The first one has to run. If another cannot, or ends on the way, its series says why, and the others go on.

        Parameters
        ----------
        source
            The model, with static shapes.
        contenders
            What to measure, under different names.
        progress
            Called with (done, total, label) as work goes on.
        gives_up
            Asked again and again while another measurement runs; True ends the wait.

        Raises
        ------
        ProfileError
            It gave up waiting.
        InvalidProblemError
            No contender, or two of one name.
        InvalidFileError
            A model with inputs of unknown shape.
        PlacekitError
            The first contender's own error.
        """
        names = [each.name for each in contenders]
        if not names or len(set(names)) != len(names):
            raise InvalidProblemError(f"timing: contenders {names} must have names of their own, and be at least one")
        source.require_static()
        key = ProfileCache.key(self._key_parts(source, contenders))
        kept = self._kept(key)
        if kept is not None:
            return kept
        with measuring(f"model {source.name!r}", path=self.lock or lock_path(), gives_up=gives_up):
            timings = self._measure(source, contenders, progress)
        is_believed = self.keeps_noisy or not timings.is_noisy
        if self.cache and is_believed and not any(series.error for series in timings.series):
            self.cache.store(key, *timings.to_arrays())
        return timings

    def _key_parts(self, source: ModelSource, contenders: Sequence[Contender]) -> dict[str, Any]:
        backend = backend_of(source)
        return {
            "schema": _SCHEMA,
            "what": "timing",
            "content_hash": source.content_hash,
            backend.name: backend.version,
            "cpu": cpu_name(),
            "settings": asdict(self.settings),
            "contenders": [[each.name, each.facts()] for each in contenders],
        }

    def _kept(self, key: str) -> Timings | None:
        stored = self.cache.load(key) if self.cache else None
        if stored is None:
            return None
        try:
            kept = Timings.from_arrays(*stored)
        except (KeyError, TypeError, ValueError) as error:
            _LOGGER.warning("cache entry %s does not fit and is measured again: %s", key, error)
            return None
        return kept if self.keeps_noisy or not kept.is_noisy else None

    def _measure(self, source: ModelSource, contenders: Sequence[Contender], progress: Progress | None) -> Timings:
        settings = self.settings
        cores = sorted({core for each in contenders for core in each.cores})
        if not all(each.cores for each in contenders):
            cores = []  # one of them may run anywhere: watch every core
        with ExitStack() as stack:
            field = _Field(source, contenders, settings, stack, progress)
            start = time.perf_counter()
            num_quiet = num_rounds = 0
            while num_rounds < settings.max_rounds and num_quiet < settings.rounds:
                if num_rounds >= _LEAST_ROUNDS and time.perf_counter() - start > settings.time_limit_s:
                    break
                is_quiet = field.run_round(num_rounds, cores)
                num_rounds, num_quiet = num_rounds + 1, num_quiet + is_quiet
                report(progress, num_rounds, max(settings.rounds, num_rounds), "rounds")
            wall_s = time.perf_counter() - start
        return Timings(tuple(field.series), settings.max_foreign_load, wall_s)


class _Field:
    """The contenders that are running, and what was measured of them so far."""

    def __init__(
        self,
        source: ModelSource,
        contenders: Sequence[Contender],
        settings: TimingSettings,
        stack: ExitStack,
        progress: Progress | None,
    ) -> None:
        self._settings = settings
        self._running: dict[int, TimedProcess] = {}
        self.series = [Measurements(each.name) for each in contenders]
        both: dict[Mode, float] = {"latency": settings.latency_s, "throughput": settings.throughput_s}
        self._bursts_s = {mode: duration_s for mode, duration_s in both.items() if duration_s}
        for index, contender in enumerate(contenders):
            report(progress, index, len(contenders), f"starting {contender.name}")
            with self._excused(index):
                process = stack.enter_context(
                    TimedProcess(source, contender, seed=settings.seed, timeout_s=settings.timeout_s)
                )
                self._running[index] = process
                for mode in self._bursts_s:
                    process.burst(mode, settings.warm_up_s)

    def run_round(self, number: int, cores: Sequence[int]) -> bool:
        """Let every contender run its bursts; return whether other load left all of them alone."""
        turn = list(self._running)
        if number % 2:  # first and last change places, so that a drift favours neither
            turn.reverse()
        is_quiet = True
        for index in turn:
            with self._excused(index):
                bursts: dict[str, Burst] = {}
                with LoadMeter(cores, own_cpu_s=lambda: tree_cpu_s(os.getpid())) as meter:
                    for mode, duration_s in self._bursts_s.items():
                        bursts[mode] = self._running[index].burst(mode, duration_s)
                self.series[index] = self.series[index].with_round(number, bursts, meter.foreign_load)
                is_quiet = is_quiet and meter.foreign_load <= self._settings.max_foreign_load
        return is_quiet

    @contextmanager
    def _excused(self, index: int) -> Iterator[None]:
        """Take a contender that fails out of the field; all ends if it is the first."""
        try:
            yield
        except PlacekitError as error:
            if index == 0:
                raise
            _LOGGER.warning("%s is left out: %s", self.series[index].name, error)
            self.series[index] = Measurements(self.series[index].name, error=str(error))
            process = self._running.pop(index, None)
            if process is not None:
                process.close()

"""Rewards from the devices themselves: placements are compiled and timed instead of judged.

Every placement runs in a process of its own that can be killed, and for a short time only; measurements are cached by
content (:mod:`placekit.runtime.timing.timing`). Short measurements are noisy, and the best of many is the luckiest: at
the end the best few are measured once more, longer, in turns with every device alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from placekit.io.models.model import ModelSource
from placekit.learned.rewards import RewardStopped
from placekit.model.errors import ExecutionError, InvalidProblemError, ProfileError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.runtime.timing.contenders import Executor, PlacedContender, singles
from placekit.runtime.timing.measurements import Estimate, Measurements, Quantity
from placekit.runtime.timing.splits import sample_s
from placekit.runtime.timing.timing import Timing, TimingSettings
from placekit.solve.stop import StopReason

_LOGGER = logging.getLogger(__name__)

EXECUTORS: Final[Mapping[str, Executor]] = MappingProxyType({"serial-latency": "serial", "throughput": "threads"})
"""How a placement runs by the objective that it is meant for."""

SMALL_BATCHES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "hsdag": {"steps": 1, "samples": 4, "levels": 3, "swaps": 0, "restart": 0, "anneal_updates": 0},
        "gdp": {"samples": 8},
        "rnn": {"samples": 8},
        "placeto": {"episodes": 1, "max_nodes": 32, "refresh": 1},
        "doppler": {"samples": 8},
    }
)
"""Parameters of the learners for placements that take a second each: few per update, and near a device from the start.

The usual ones draw hundreds of placements per update, which a judge scores in milliseconds.
"""

CANDIDATES = 3
"""Placements that are measured once more at the end."""

_CANNOT_RUN = (ExecutionError, UnsupportedProblemError)  # one placement's fault; any other error is everybody's


def executor_for(problem: Problem) -> Executor:
    """Return how placements of `problem` run; an objective without an executor raises UnsupportedProblemError."""
    name = problem.objective.name
    if name not in EXECUTORS:
        raise UnsupportedProblemError(
            f"problem {problem.name!r}: objective {name!r} cannot be measured; objectives with measured rewards are "
            f"{', '.join(EXECUTORS)}"
        )
    return EXECUTORS[name]


def brief_timing(executor: Executor) -> Timing:
    """Return how one reward is measured, in about a second; disturbed ones count: no machine is ever quite idle."""
    latency_s, throughput_s = (0.1, 0.0) if executor == "serial" else (0.0, 0.2)
    settings = TimingSettings(
        rounds=3, max_rounds=3, warm_up_s=0.1, latency_s=latency_s, throughput_s=throughput_s, timeout_s=60.0
    )
    return Timing(settings, keeps_noisy=True)


def thorough_timing(executor: Executor) -> Timing:
    """Return how the best placements are compared at the end; nothing is kept: a comparison is of its moment."""
    latency_s, throughput_s = (0.3, 0.0) if executor == "serial" else (0.0, 0.6)
    return Timing(TimingSettings(latency_s=latency_s, throughput_s=throughput_s, time_limit_s=60.0), cache=None)


@dataclass(frozen=True, eq=False)
class MeasuredAnswer:
    """The best placement by its measured time."""

    placement: Placement  # the placement
    # seconds per sample: of the comparison at the end if there was one, else as the training measured it
    sample_s: float
    # best_single_device, best_single_s: the device that does best alone, and its seconds per sample; None without a
    # comparison
    best_single_device: str | None = None
    best_single_s: float | None = None
    # how many times the placement is as fast as that device, round by round; None without a comparison
    speedup: Estimate | None = None
    is_noisy: bool | None = None  # whether other load disturbed the comparison; None without one

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the placement as JSON values."""
        told = {name: getattr(self, name) for name in ("sample_s", "best_single_device", "best_single_s", "is_noisy")}
        speedup = self.speedup
        return told | {"speedup": speedup and speedup.median, "speedup_iqr": speedup and speedup.iqr}


class MeasuredReward:
    """Times placements on the devices; a `placekit.learned.rewards.Reward`.

    Parameters
    ----------
    source
        The model.
    problem
        Its problem. The objective says how placements run: ``serial-latency`` stage by stage, ``throughput`` as a
        pipeline of threads.
    timing, final_timing
        How to measure one placement, and the best ones at the end; `brief_timing` and `thorough_timing` if None.
    max_measurements
        Placements that are measured at most, not counting those at the end; None for no limit.
    candidates
        The best so many are measured once more at the end; 0 for no comparison.
    on_measured
        Called after every placement that was measured.

    Attributes
    ----------
    asked, measurements, failures : int
        Placements that were asked for; those that ran now, and those of them that could not. All others were known.
    measuring_s : float
        Seconds that measuring took, without the comparison at the end.
    last_error : str or None
        Why the last placement that could not run could not.
    should_stop : Callable[[], StopReason or None]
        Asked before every measurement.

    Raises
    ------
    UnsupportedProblemError
        An objective that cannot be measured.
    InvalidProblemError
        A problem of another graph, a model with dynamic shapes, or less than one measurement.

    Examples
    --------
    >>> reward = MeasuredReward(source, problem, max_measurements=200)  # doctest: +SKIP
    >>> result = pk.solve(problem, Hsdag(HsdagParams(samples=4), Session(measured=reward)))  # doctest: +SKIP
    >>> result.info["measured"]["speedup"]  # doctest: +SKIP
    """

    def __init__(
        self,
        source: ModelSource,
        problem: Problem,
        *,
        timing: Timing | None = None,
        final_timing: Timing | None = None,
        max_measurements: int | None = None,
        candidates: int = CANDIDATES,
        on_measured: Callable[[MeasuredReward], None] | None = None,
    ) -> None:
        self.executor = executor_for(problem)
        if source.graph.op_names != problem.graph.op_names:
            raise InvalidProblemError(f"model {source.name!r} and problem {problem.name!r} have different ops")
        if max_measurements is not None and max_measurements < 1:
            raise InvalidProblemError(f"measured reward: max_measurements is {max_measurements}; it must be >= 1")
        source.require_static()
        self.source, self.problem = source, problem
        self.timing = timing or brief_timing(self.executor)
        self.final_timing = final_timing or thorough_timing(self.executor)
        self.max_measurements, self.candidates, self.on_measured = max_measurements, candidates, on_measured
        self.should_stop: Callable[[], StopReason | None] = lambda: None
        self.asked = self.measurements = self.failures = 0
        self.measuring_s = 0.0
        self.last_error: str | None = None
        self._known: dict[bytes, float] = {}

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` seconds per sample of placements ``[batch, num_ops]``; infinity for one that does not run.

        Raises `RewardStopped`: `should_stop` said so, or the measurements are spent, before all of the batch was known.
        """
        return np.array([self._seconds(row) for row in placements])

    @property
    def best_s(self) -> float | None:
        """Least seconds per sample so far; None while nothing has run."""
        return next((seconds for seconds, _ in self.best(1)), None)

    def best(self, count: int) -> list[tuple[float, NDArray[np.int64]]]:
        """Return the `count` best placements so far with their seconds, the best first; fewer if fewer have run."""
        ran = sorted((seconds, row) for row, seconds in self._known.items() if seconds < np.inf)
        return [(seconds, np.frombuffer(row, dtype=np.int64)) for seconds, row in ran[:count]]

    def remember(self, placement: NDArray[np.int64], seconds: float) -> None:
        """Take `placement` ``[num_ops]`` for measured, unless it was: for a training that goes on from another one."""
        self._known.setdefault(_key(placement), seconds)

    def answer(self, *, compare: bool = True, gives_up: Callable[[], bool] | None = None) -> MeasuredAnswer | None:
        """Return the best placement; None if nothing has run.

        Parameters
        ----------
        compare
            Whether to measure the best `candidates` once more, in turns with every device alone, and to choose by that.
        gives_up
            Asked while another measurement runs; True ends the wait, and there is no comparison.
        """
        best = self.best(max(self.candidates, 1))
        if not best:
            return None
        found = self._compared([row for _, row in best], gives_up) if compare and self.candidates else None
        return found or MeasuredAnswer(Placement.of(self.problem, best[0][1]), best[0][0])

    def _compared(self, rows: list[NDArray[np.int64]], gives_up: Callable[[], bool] | None) -> MeasuredAnswer | None:
        """Return the best of placements ``[num_ops]`` by a thorough comparison; None if that fails."""
        platform, executor = self.problem.platform, self.executor
        alone = singles(self.source.graph, platform, executor)
        single_named = {_key(each.placement.device_of_op): each for each in alone}
        # what the comparison is about comes first: it has run before, and has to
        chosen = [
            single_named.get(_key(row))
            or PlacedContender(f"placement {rank}", Placement.of(self.problem, row), platform, executor)
            for rank, row in enumerate(rows, 1)
        ]
        others = [each for each in alone if each not in chosen]
        try:
            timings = self.final_timing.measure(self.source, [*chosen, *others], gives_up=gives_up)
        except (*_CANNOT_RUN, ProfileError) as error:
            _LOGGER.warning("the best placements could not be compared: %s", error)
            return None
        # a device alone is an answer, too, where the problem allows it: only then was it measured before
        answers = [*chosen, *(each for each in others if _key(each.placement.device_of_op) in self._known)]
        winner = min(answers, key=lambda each: self._sample_s(timings[each.name]))
        seconds = self._sample_s(timings[winner.name])
        if seconds == np.inf:
            return None
        quantity: Quantity = "latency" if executor == "serial" else "throughput"
        best = timings.best([each.name for each in alone], quantity)
        return MeasuredAnswer(
            placement=winner.placement,
            sample_s=seconds,
            best_single_device=next(
                (name for name, each in zip(platform.device_names, alone, strict=True) if each.name == best), None
            ),
            best_single_s=None if best is None else self._sample_s(timings[best]),
            speedup=None if best is None else timings.ratio(winner.name, best, quantity),
            is_noisy=timings.is_noisy,
        )

    def counts(self) -> dict[str, Any]:
        """Return how much was asked, measured and known, as JSON values."""
        return {
            "executor": self.executor,
            "evaluations": self.asked,
            "measurements": self.measurements,
            "cache_hits": self.asked - self.measurements,
            "failures": self.failures,
            "last_error": self.last_error,
            "measuring_s": self.measuring_s,
            "best_s": self.best_s,
        }

    def _seconds(self, row: NDArray[np.int64]) -> float:
        key, before = _key(row), self.measurements
        if key not in self._known:
            self._known[key] = self._measured(Placement.of(self.problem, row))
        self.asked += 1
        if self.measurements > before and self.on_measured is not None:
            self.on_measured(self)
        return self._known[key]

    def _measured(self, placement: Placement) -> float:
        contender = PlacedContender("placement", placement, self.problem.platform, self.executor)
        reason = self.should_stop()
        if reason is not None:
            raise RewardStopped(reason)
        if self.max_measurements is not None and self.measurements >= self.max_measurements:
            raise RewardStopped(StopReason.ITERATIONS)
        start = perf_counter()
        try:
            timings = self.timing.measure(self.source, [contender], gives_up=self._gives_up)
        except ProfileError:
            reason = self.should_stop()  # it was told to while it waited for another measurement
            if reason is None:
                raise
            raise RewardStopped(reason) from None
        except _CANNOT_RUN as error:  # not kept on disk: the moment may be to blame, its load or its memory
            _LOGGER.info("a placement does not run: %s", error)
            seconds, is_known, self.last_error = np.inf, False, str(error)
            self.failures += 1
        else:
            seconds, is_known = self._sample_s(timings["placement"]), timings.is_cached
        if not is_known:
            self.measurements += 1
            self.measuring_s += perf_counter() - start
        return seconds

    def _gives_up(self) -> bool:
        return self.should_stop() is not None

    def _sample_s(self, series: Measurements) -> float:
        seconds = sample_s(series, self.executor)
        return np.inf if seconds is None else seconds


def _key(row: NDArray[np.int64]) -> bytes:
    return np.ascontiguousarray(row, dtype=np.int64).tobytes()

"""Statistics over cases and seeds: means with intervals, shares, times to a gap.

A *case* is a problem with an objective; a method has one run per seed on each. Runs without a placement have the
objective infinity here. Intervals are percentiles of a bootstrap that is stratified by case (Agarwal et al.).

References
----------
Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021, arXiv 2108.13264, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import relative_gap

Runs = Mapping[str, Sequence[float]]
"""One value per run, by case."""
Trace = Sequence[tuple[float, float | None, float | None]]
"""Seconds, objective and bound of every line of a trace."""

NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with a 95 % confidence interval."""

    value: float  # the estimate
    # low, high: the interval; None where it cannot be known, because no case has more than one run
    low: float | None
    high: float | None


def mean_interval(
    runs: Runs,  # values by case; at least one
) -> Interval:
    """Return the mean of all runs, and its bootstrap interval, stratified by case.

    The interval speaks about other seeds, not about other models.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in runs.values() if len(values)]
    if not groups:
        raise InvalidProblemError("a mean of 0 values; it needs at least 1")
    count, total = sum(map(len, groups)), float(sum(group.sum() for group in groups))
    several = [group for group in groups if len(group) > 1]
    if not several:
        return Interval(total / count, None, None)
    rest = total - sum(float(group.sum()) for group in several)

    def of_resamples(*drawn: NDArray[np.float64], axis: int) -> Any:
        return (sum(group.sum(axis=axis) for group in drawn) + rest) / count

    found = bootstrap(several, of_resamples, n_resamples=NUM_RESAMPLES, method="percentile", rng=0).confidence_interval
    return Interval(total / count, float(found.low), float(found.high))


def shares_within(
    objectives_s: Mapping[str, Runs],  # objectives by method and case, infinity without a placement
    factor: float,  # at least 1
) -> dict[str, float]:
    """Return, per method, the share of cases in which it comes within `factor` of the best objective of the case.

    Several runs on a case share its weight. Cases that a method was not run on do not count for it, and neither do
    those that no method solved; a run without a placement is within no factor.
    """
    best: dict[str, float] = {}
    for runs in objectives_s.values():
        for case, values in runs.items():
            best[case] = min([best.get(case, math.inf), *values])
    shares = {}
    for method, runs in objectives_s.items():
        mine = [
            float(np.mean(np.asarray(values) <= best[case] * factor * (1 + 1e-9)))
            for case, values in runs.items()
            if math.isfinite(best[case]) and len(values)
        ]
        shares[method] = float(np.mean(mine)) if mine else math.nan
    return shares


def time_to_gap_s(
    trace: Trace,  # the lines of the run's trace
    bound_s: float,  # the best proven bound of the case, whoever proved it
    gap: float,  # relative gap, ``(objective - bound) / objective``
) -> float | None:
    """Return when the objective first came within `gap` of `bound_s`, in seconds; None if it never did."""
    for time_s, objective, _ in trace:
        distance = relative_gap(objective, bound_s)
        if distance is not None and distance <= gap:
            return time_s
    return None


def anytime_gap(
    trace: Trace,  # the lines of the run's trace, in rising time
    bound_s: float,  # the best proven bound of the case
    times_s: NDArray[np.float64],  # ``[N]`` seconds
) -> NDArray[np.float64]:
    """``[N]`` relative gap of the best objective at each time; 1 as long as there is no placement."""
    found = [(time, relative_gap(objective, bound_s)) for time, objective, _ in trace if objective is not None]
    if not found:
        return np.ones(len(times_s))
    gaps = np.array([1.0] + [gap for _, gap in found if gap is not None])
    return gaps[np.searchsorted([time for time, _ in found], times_s, side="right")]

r"""Statistics over cases and seeds: scores, intervals, times to a gap.

A *case* is a problem with an objective; a method has one run per seed on each. Runs without a placement have the
objective infinity here. Scores are normalised per case: 0 is the best single device, 1 the best proven bound,

.. math:: score = \frac{single - objective}{single - bound}

so that cases of different sizes can be averaged. A placement that is worse than the single device has a negative
score. Aggregates follow Agarwal et al.: the interquartile mean over all runs, percentile intervals from a bootstrap
that is stratified by case.

References
----------
Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021, arXiv 2108.13264, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap, trim_mean

from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import relative_gap

__all__ = [
    "Interval",
    "anytime_gap",
    "bootstrap_interval",
    "interquartile_mean",
    "normalised_score",
    "ratio_interval",
    "shares_within",
    "time_to_gap_s",
]

Runs = Mapping[str, Sequence[float]]
"""One value per run, by case."""
Trace = Sequence[tuple[float, float | None, float | None]]
"""Seconds, objective and bound of every line of a trace."""
Values = NDArray[np.float64]

NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with a 95 % confidence interval.

    Parameters
    ----------
    value
        The estimate.
    low, high
        The interval; None where it cannot be known, because no case has more than one run.
    """

    value: float
    low: float | None
    high: float | None


def normalised_score(objective_s: float | None, single_s: float | None, bound_s: float | None) -> float | None:
    """Return the score of a run: 0 for the best single device, 1 for the bound; None where there is no scale.

    A run without a placement falls back to the single device: 0. Where the single device attains the bound, every
    objective as good as it has score 1.

    Parameters
    ----------
    objective_s, single_s, bound_s
        Seconds: of the run, of the best feasible single device, and the best proven bound of the case; None for
        unknown.

    Examples
    --------
    >>> normalised_score(6.0, 10.0, 2.0), normalised_score(None, 10.0, 2.0), normalised_score(6.0, None, 2.0)
    (0.5, 0.0, None)
    """
    if single_s is None or bound_s is None:
        return None
    if single_s <= bound_s:
        return 1.0 if objective_s is None or objective_s <= single_s else None
    return 0.0 if objective_s is None else (single_s - objective_s) / (single_s - bound_s)


def interquartile_mean(values: ArrayLike, axis: int = -1) -> Any:
    """Return the mean of the middle half: a quarter of the values, rounded down, is cut off at each end.

    Examples
    --------
    >>> float(interquartile_mean([0, 1, 2, 3, 4, 5, 6, 700]))
    3.5
    """
    return trim_mean(np.asarray(values, dtype=np.float64), 0.25, axis=axis)


def bootstrap_interval(runs: Runs, statistic: Callable[..., Any] = interquartile_mean) -> Interval:
    """Return a statistic of all runs, and its bootstrap interval, stratified by case.

    The interval speaks about other seeds, not about other models.

    Parameters
    ----------
    runs
        Values by case; at least one.
    statistic
        What to estimate from all values together; takes an array and an axis, like ``numpy.mean``.

    Raises
    ------
    InvalidProblemError
        No values.
    """
    return _interval(_groups(runs), lambda parts: statistic(np.concatenate(parts, axis=-1), axis=-1))


def shares_within(objectives_s: Mapping[str, Runs], factor: float) -> dict[str, float]:
    """Return, per method, the share of cases in which it comes within `factor` of the best objective of the case.

    Several runs on a case share its weight. Cases that a method was not run on do not count for it, and neither do
    those that no method solved; a run without a placement is within no factor.

    Parameters
    ----------
    objectives_s
        Objectives by method and case, infinity without a placement.
    factor
        At least 1.
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


def ratio_interval(numerator: Runs, denominator: Runs) -> Interval | None:
    """Return the geometric mean over cases of the ratio of two methods' median values, with a bootstrap interval.

    Parameters
    ----------
    numerator, denominator
        Positive values (times, evaluations) by case; cases that only one has do not count.

    Returns
    -------
    Interval or None
        None if there is no case with positive values of both.
    """
    groups: list[Values] = []
    for case in sorted(numerator.keys() & denominator.keys()):
        pair = [np.asarray(runs[case], dtype=np.float64) for runs in (numerator, denominator)]
        if all(len(each) and each.min() > 0 and math.isfinite(each.max()) for each in pair):
            groups += pair
    if not groups:
        return None

    def mean_ratio(parts: Sequence[Values]) -> Values:
        logs = np.stack([np.log(np.median(each, axis=-1)) for each in parts])
        ratios: Values = np.exp((logs[::2] - logs[1::2]).mean(axis=0))
        return ratios

    return _interval(groups, mean_ratio)


def time_to_gap_s(trace: Trace, bound_s: float, gap: float) -> float | None:
    """Return when the objective first came within `gap` of `bound_s`, in seconds; None if it never did.

    Parameters
    ----------
    trace
        The lines of the run's trace.
    bound_s
        The best proven bound of the case, whoever proved it.
    gap
        Relative gap, ``(objective - bound) / objective``.
    """
    for time_s, objective, _ in trace:
        distance = relative_gap(objective, bound_s)
        if distance is not None and distance <= gap:
            return time_s
    return None


def anytime_gap(trace: Trace, bound_s: float, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N]`` relative gap of the best objective at each time; 1 as long as there is no placement.

    Parameters
    ----------
    trace
        The lines of the run's trace, in rising time.
    bound_s
        The best proven bound of the case.
    times_s
        ``[N]`` seconds.
    """
    found = [(time, relative_gap(objective, bound_s)) for time, objective, _ in trace if objective is not None]
    if not found:
        return np.ones(len(times_s))
    gaps = np.array([1.0] + [gap for _, gap in found if gap is not None])
    return gaps[np.searchsorted([time for time, _ in found], times_s, side="right")]


def _groups(runs: Runs) -> list[Values]:
    groups = [np.asarray(values, dtype=np.float64) for values in runs.values() if len(values)]
    if not groups:
        raise InvalidProblemError("a statistic of 0 values; it needs at least 1")
    return groups


def _interval(groups: Sequence[Values], statistic: Callable[[Sequence[Values]], Any]) -> Interval:
    """Return the statistic of `groups`, and its percentile interval where each group is resampled by itself.

    The statistic takes arrays ``[..., size of the group]`` and reduces their last axis.
    """
    value = float(statistic(groups))
    several = [group for group in groups if len(group) > 1]
    if not several:
        return Interval(value, None, None)

    def of_resamples(*drawn: Values, axis: int) -> Any:  # noqa: ARG001  # scipy resamples along the last axis
        rest = iter(drawn)
        shape = (*drawn[0].shape[:-1], 1)
        return statistic([next(rest) if len(group) > 1 else np.broadcast_to(group, shape) for group in groups])

    found = bootstrap(several, of_resamples, n_resamples=NUM_RESAMPLES, method="percentile", rng=0).confidence_interval
    return Interval(value, float(found.low), float(found.high))

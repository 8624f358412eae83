"""Statistics against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placekit.benchmarks.statistics import (
    anytime_gap,
    mean_interval,
    shares_within,
    time_to_gap_s,
)
from placekit.model.errors import InvalidProblemError


def test_bootstrap_resamples_within_cases() -> None:
    """Two constant cases: every resample is the sample, so the interval is the value itself."""
    interval = mean_interval({"a": [0.0, 0.0, 0.0], "b": [1.0, 1.0, 1.0]})
    assert (interval.value, interval.low, interval.high) == (0.5, 0.5, 0.5)


def test_interval_of_a_mean_is_that_of_theory() -> None:
    """Two values 0 and 1 in one case: the mean of a resample is 0, 1/2 or 1 with 1/4, 1/2, 1/4."""
    interval = mean_interval({"a": [0.0, 1.0]})
    assert (interval.value, interval.low, interval.high) == (0.5, 0.0, 1.0)
    many = mean_interval({"a": list(range(100))})
    half = 1.96 * np.std(range(100)) / 10  # the mean of 100 draws is close to normal
    assert many.high is not None
    assert many.low is not None
    assert many.low == pytest.approx(49.5 - half, abs=0.6)
    assert many.high == pytest.approx(49.5 + half, abs=0.6)


def test_cases_of_one_run_stay_as_they_are() -> None:
    """Beside a case of two runs, 0 and 1, a case of the single run 2: the mean is between 2/3 and 4/3."""
    interval = mean_interval({"a": [0.0, 1.0], "b": [2.0]})
    assert (interval.value, interval.low, interval.high) == pytest.approx((1.0, 2 / 3, 4 / 3))


def test_one_run_per_case_has_no_interval() -> None:
    """Without a second seed nothing is known about the spread; the same seed gives the same interval."""
    single = mean_interval({"a": [1.0], "b": [3.0]})
    assert (single.value, single.low, single.high) == (2.0, None, None)
    runs = {"a": [1.0, 2.0, 5.0]}
    assert mean_interval(runs) == mean_interval(runs)
    with pytest.raises(InvalidProblemError, match="0 values"):
        mean_interval({})


def test_shares_count_cases_within_a_factor_of_the_best() -> None:
    """Case a: best 1 (x), y is twice that; case b: best 3 (y), x has no placement in one of two runs."""
    objectives = {"x": {"a": [1.0], "b": [3.3, math.inf]}, "y": {"a": [2.0], "b": [3.0]}}
    assert [shares_within(objectives, factor)["x"] for factor in (1.0, 1.1, 2.0)] == [0.5, 0.75, 0.75]
    assert [shares_within(objectives, factor)["y"] for factor in (1.0, 1.1, 2.0)] == [0.5, 0.5, 1.0]


def test_shares_ignore_cases_that_nobody_solved_or_that_were_not_run() -> None:
    """A method is judged by the cases that it was run on."""
    shares = shares_within({"x": {"a": [1.0], "b": [math.inf]}, "y": {"b": [math.inf]}}, 1.0)
    assert shares["x"] == 1.0
    assert math.isnan(shares["y"])


def test_time_to_gap_uses_the_best_bound_of_all() -> None:
    """Bound 9: 10 is a gap of 10 %, reached after 2 s; 1 % is never reached."""
    trace = [(0.5, None, 1.0), (1.0, 18.0, 1.0), (2.0, 10.0, 1.0)]
    assert time_to_gap_s(trace, 9.0, 0.1) == 2.0
    assert time_to_gap_s(trace, 9.0, 0.5) == 1.0
    assert time_to_gap_s(trace, 9.0, 0.01) is None


def test_anytime_gap_is_a_step_function() -> None:
    """1 before the first placement, then the gap of the last line so far, at the moment of the line itself too."""
    trace = [(0.5, None, 1.0), (1.0, 18.0, 1.0), (2.0, 10.0, 1.0)]
    assert anytime_gap(trace, 9.0, np.array([0.7, 1.0, 1.5, 2.0, 99.0])).tolist() == [1.0, 0.5, 0.5, 0.1, 0.1]
    assert anytime_gap([], 9.0, np.array([1.0])).tolist() == [1.0]

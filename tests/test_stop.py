"""Stopping criteria."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import (
    AnyOf,
    MaxIterations,
    MaxRuntime,
    NoImprovement,
    Progress,
    StopReason,
    TargetGap,
    in_this_solve,
    is_wanted,
    relative_gap,
    wanted_until,
)


@pytest.mark.parametrize(
    ("criterion", "goes_on", "stops", "reason"),
    [
        (MaxRuntime(2), Progress(1.9, 0), Progress(2.0, 0), StopReason.TIME),
        (MaxIterations(3), Progress(0, 2), Progress(0, 3), StopReason.ITERATIONS),
        (NoImprovement(3), Progress(0, 9, 2), Progress(0, 9, 3), StopReason.ITERATIONS),
        (TargetGap(0.1), Progress(0, 0, 0, 10.0, 8.9), Progress(0, 0, 0, 10.0, 9.0), StopReason.GAP),
    ],
)
def test_each_criterion_stops_at_its_limit(
    criterion: MaxRuntime, goes_on: Progress, stops: Progress, reason: StopReason
) -> None:
    """Just below the limit it goes on, at the limit it stops."""
    assert criterion(goes_on) is None
    assert criterion(stops) is reason


def test_any_of_passes_on_the_tightest_limits() -> None:
    """Native solvers are told the earliest time and the gap that is reached first."""
    stop = MaxRuntime(5) | TargetGap(0.01) | MaxRuntime(3) | TargetGap(0.1)
    assert isinstance(stop, AnyOf)
    assert (stop.time_limit_s, stop.gap) == (3.0, 0.1)
    assert stop(Progress(3.5, 0)) is StopReason.TIME


def test_gap_of_unknown_values_is_unknown() -> None:
    """None means not known; equal values have no gap even at zero."""
    assert relative_gap(None, 1.0) is None
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(10.0, 9.0) == pytest.approx(0.1)


@pytest.mark.parametrize("make", [lambda: MaxRuntime(-1), lambda: MaxIterations(0), lambda: TargetGap(float("nan"))])
def test_limits_out_of_range_are_refused(make: object) -> None:
    """Negative, zero and NaN limits are named errors."""
    with pytest.raises(InvalidProblemError, match="it must be finite and >= "):
        make()  # type: ignore[operator]


def test_other_threads_work_for_a_solve_if_it_says_so() -> None:
    """A solve that is over ends neither the work of another thread, nor another solve there."""
    with ThreadPoolExecutor(1) as pool, wanted_until(lambda: True):
        assert not is_wanted()
        assert pool.submit(is_wanted).result()
        assert not pool.submit(in_this_solve(is_wanted)).result()
        assert pool.submit(is_wanted).result()
    assert is_wanted()

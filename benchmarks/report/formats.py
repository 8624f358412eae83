"""Numbers as the report shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from placekit.benchmarks.statistics import Interval
from placekit.solve.result import SOLVER_TOLERANCE

NOTHING = "-"
"""Stands for what is not known."""


def milliseconds(time_s: float | None, digits: int = 5) -> str:
    """Return a time in milliseconds with `digits` significant digits.

    Examples
    --------
    >>> milliseconds(0.0376642), milliseconds(None)
    ('37.664', '-')
    """
    return NOTHING if time_s is None or not math.isfinite(time_s) else f"{time_s * 1e3:.{digits}g}"


def times(ratio: float | None) -> str:
    """Return a speedup."""
    return NOTHING if ratio is None else f"{ratio:.2f}x"


def seconds(time_s: float | None) -> str:
    """Return a duration.

    Examples
    --------
    >>> seconds(0.00123), seconds(12.345), seconds(None)
    ('1.23 ms', '12.3 s', '-')
    """
    if time_s is None or not math.isfinite(time_s):
        return NOTHING
    return f"{time_s * 1e3:.3g} ms" if time_s < 1 else f"{time_s:.3g} s"


def percent(share: float | None) -> str:
    """Return a ratio in per cent; what is within the tolerance of an optimum is 0.

    Examples
    --------
    >>> percent(0.01234), percent(3e-5), percent(3e-7), percent(None)
    ('1.23 %', '<0.01 %', '0 %', '-')
    """
    if share is None or not math.isfinite(share):
        return NOTHING
    if abs(share) <= SOLVER_TOLERANCE:
        return "0 %"
    return "<0.01 %" if 0 < share < 1e-4 else f"{share * 100:.3g} %"


def interval_percent(value: Interval) -> str:
    """Return a share with its interval, in per cent.

    Examples
    --------
    >>> interval_percent(Interval(0.0123, 0.01, 0.02)), interval_percent(Interval(0.0, 0.0, 0.0))
    ('1.23 % [1.00, 2.00]', '0 %')
    """
    if value.low is None or value.high is None or value.low == value.high:
        return percent(value.value)
    return f"{percent(value.value)} [{value.low * 100:.2f}, {value.high * 100:.2f}]"


def count(value: float | None) -> str:
    """Return a count, with thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", "\u202f")


def spread(values_s: Sequence[float]) -> str:
    """Return the median of some times in milliseconds, with their range if they differ.

    Examples
    --------
    >>> spread([0.002, 0.001, 0.003]), spread([0.002, 0.002])
    ('2 (1 to 3)', '2')
    """
    finite = [value for value in values_s if math.isfinite(value)]
    if not finite:
        return NOTHING
    middle, low, high = (milliseconds(value) for value in (median(finite), min(finite), max(finite)))
    return middle if low == high else f"{middle} ({low} to {high})"

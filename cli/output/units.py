"""Numbers for people: milliseconds, mebibytes, per cent. All other code uses SI units."""

from __future__ import annotations


def format_ms(time_s: float | None, digits: int = 4) -> str:
    """Return a time in milliseconds with `digits` significant digits, without the unit.

    Examples
    --------
    >>> format_ms(0.0279185676799), format_ms(0.0), format_ms(12.5), format_ms(None)
    ('27.92', '0', '12500', '-')
    """
    if time_s is None:
        return "-"
    time_ms = time_s * 1e3
    if abs(time_ms) >= 10 ** (digits - 1) and abs(time_ms) < 1e12:
        return f"{time_ms:.0f}"
    return f"{time_ms:.{digits}g}"


def format_time(time_s: float | None) -> str:
    """Return a duration in the unit that reads best.

    Examples
    --------
    >>> [format_time(t) for t in (2.5e-6, 0.0279185676799, 3.21, 125.0, None)]
    ['2.5 us', '27.9186 ms', '3.21 s', '125 s', 'unknown']
    """
    if time_s is None:
        return "unknown"
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if 0 < abs(time_s) < limit:
            return f"{time_s * scale:.6g} {unit}"
    return f"{time_s:.6g} s"


def format_count(count: int, noun: str, plural: str = "s") -> str:
    """Return a count with its noun, whose plural ends with `plural`.

    Examples
    --------
    >>> format_count(1, "op"), format_count(2000, "op")
    ('1 op', '2000 ops')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{plural}"

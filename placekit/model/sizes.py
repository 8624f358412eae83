"""Sizes and times for people: the unit that reads best; inside everything is bytes and seconds."""

from __future__ import annotations

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(num_bytes: float | None) -> str:
    """Return a size in the binary unit that reads best.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 1023, 98354688, 8 * 2**30, None)]
    ['0 B', '1023 B', '93.8 MiB', '8 GiB', '-']
    """
    if num_bytes is None:
        return "-"
    size, unit = float(num_bytes), 0
    while size >= 1024 and unit < len(_BINARY_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {_BINARY_UNITS[unit]}" if size < 1000 or unit == 0 else f"{size:.0f} {_BINARY_UNITS[unit]}"


def format_bytes_exactly(num_bytes: float) -> str:
    """Return a size in the binary unit that reads best, and the bytes: two limits may differ by little.

    Examples
    --------
    >>> format_bytes_exactly(8 * 2**30), format_bytes_exactly(512)
    ('8 GiB (8589934592 bytes)', '512 bytes')
    """
    if num_bytes < 1024:
        return f"{num_bytes:.0f} bytes"
    return f"{format_bytes(num_bytes)} ({num_bytes:.0f} bytes)"


def format_seconds(*times_s: float) -> str:
    """Return times with three digits in the one unit that reads best, as a change from each to the next.

    Examples
    --------
    >>> format_seconds(2.72e-3, 1.512e-3), format_seconds(61.9), format_seconds(0.0)
    ('2.72 -> 1.51 ms', '61.9 s', '0 s')
    """
    scale, unit = next(
        ((scale, unit) for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")) if 0 < max(times_s) < limit),
        (1.0, "s"),
    )
    return " -> ".join(_three_digits(each * scale) for each in times_s) + f" {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def format_share(share: float | None) -> str:
    """Return a ratio as per cent.

    Examples
    --------
    >>> [format_share(x) for x in (0.01234, 0.0, 4.2e-7, None)]
    ['1.23 %', '0 %', '<0.01 %', 'unknown']
    """
    if share is None:
        return "unknown"
    if share == 0:
        return "0 %"
    return "<0.01 %" if 0 < share < 1e-4 else f"{share * 100:.3g} %"

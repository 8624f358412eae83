"""Lines of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["markdown_line", "seconds"]


def markdown_line(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def seconds(value_s: float) -> str:
    """Return a duration with two digits."""
    return f"{value_s * 1e3:.0f} ms" if value_s < 1 else f"{value_s:.1f} s" if value_s < 10 else f"{value_s:.0f} s"

"""Progress on stderr after two seconds; silent if stderr is no terminal."""

from __future__ import annotations

from time import perf_counter
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from placekit.cli.console import diagnostics
from placekit.cli.output.units import format_time
from placekit.model.sizes import format_share
from placekit.solve.result import Incumbent
from placekit.solve.stop import relative_gap

SHOWN_AFTER_S = 2.0
"""Work that ends sooner shows nothing."""


class _LiveLine:
    """One line that redraws itself four times a second while the ``with`` block runs, and disappears at its end."""

    def __init__(self) -> None:
        console = diagnostics()
        self._start = perf_counter()
        self._live = Live(get_renderable=self._visible, console=console, refresh_per_second=4, transient=True)
        self._is_shown = console.is_terminal

    def __enter__(self) -> Self:
        if self._is_shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._live.stop()

    def _visible(self) -> RenderableType:
        elapsed_s = perf_counter() - self._start
        if elapsed_s < SHOWN_AFTER_S:
            return ""
        shown = self.render(elapsed_s)
        return Text(shown, overflow="ellipsis", no_wrap=True) if isinstance(shown, str) else shown

    def render(self, elapsed_s: float) -> RenderableType:
        """Return the progress to show after `elapsed_s` seconds."""
        raise NotImplementedError


class SolveLine(_LiveLine):
    """The best objective, the bound and the gap of a running solve."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        super().__init__()
        self._time_limit_s = time_limit_s
        self._last: Incumbent | None = None

    def __call__(self, line: Incumbent) -> None:
        """Take the newest line of the trace; `solve` calls this, possibly from another thread."""
        self._last = line

    def render(self, elapsed_s: float) -> RenderableType:
        """Return the line."""
        best, bound = (self._last.objective, self._last.bound) if self._last else (None, None)
        limit = "" if self._time_limit_s is None else f" of {self._time_limit_s:.0f} s"
        return (
            f"solving  best {format_time(best)}  bound {format_time(bound)}  "
            f"gap {format_share(relative_gap(best, bound))}  {elapsed_s:.0f} s{limit}  (Ctrl-C: take the best)"
        )


class StepBar(_LiveLine):
    """Progress bar for work in steps, such as a profile."""

    def __init__(self) -> None:
        super().__init__()
        self._done, self._total, self._label = 0, 0, ""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Take the number of finished steps; cost models call this."""
        self._done, self._total, self._label = done, total, label

    def render(self, elapsed_s: float) -> RenderableType:
        """Return the bar."""
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._total, 1), completed=self._done, width=24)
        text = f"{self._done}/{self._total}  {elapsed_s:.0f} s  {self._label}"
        grid.add_row(bar, Text(text, overflow="ellipsis", no_wrap=True))
        return grid

"""Figures to files, in one step like every other file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.io.atomic import write_bytes
from placekit.model.errors import PlacekitError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURE_FORMATS", "save_figure"]

FIGURE_FORMATS = ("png", "svg", "pdf")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write `figure` to `path`, in the format of its suffix. The write is atomic.

    Raises
    ------
    PlacekitError
        Another suffix than .png, .svg or .pdf, or a file that cannot be written.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FIGURE_FORMATS:
        raise PlacekitError(f"cannot draw {path}: suffix {suffix!r} is none of {', '.join(FIGURE_FORMATS)}")
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix, dpi=150)
    write_bytes(path, stream.getvalue())

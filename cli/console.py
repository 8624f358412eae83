"""Output of commands: tables and JSON to stdout, progress and errors to stderr.

With ``-o -`` stdout is the file's, and tables and JSON go to stderr, too.

Names come from files of strangers. Everything here shows them with `visible`, so that none of them reaches the terminal
as an escape sequence; commands print through this module only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from placekit.io.atomic import STDOUT, is_special
from placekit.io.visible import visible
from placekit.model.errors import PlacekitError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_STDOUT_IS_TAKEN: ContextVar[bool] = ContextVar("stdout is taken", default=False)


def take_stdout(output: Path | None) -> Path | None:
    """Return `output`; if it is `STDOUT`, text for people goes to stderr until the next command."""
    _STDOUT_IS_TAKEN.set(output == STDOUT)
    return output


def _for_people() -> IO[str]:
    return sys.stderr if _STDOUT_IS_TAKEN.get() else sys.stdout


def _width(file: IO[str]) -> int | None:
    """Return the line width: unlimited in a pipe or a file, so that no name is broken; None for the terminal's."""
    return None if file.isatty() or "COLUMNS" in os.environ else 10_000


def _console(to_stderr: bool) -> Console:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class VisibleConsole(Console):
        """Console that escapes control sequences in texts, but not rich's own colours and cursor movements."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text), **options)  # before widths are measured

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    if to_stderr:
        return VisibleConsole(stderr=True, highlight=False, emoji=False, markup=False)
    file = _for_people()
    return VisibleConsole(file=file, width=_width(file), highlight=False, emoji=False, markup=False)


def diagnostics() -> Console:
    """Return the console for progress: stderr."""
    return _console(to_stderr=True)


def show_parts(parts: Iterable[RenderableType]) -> None:
    """Print renderables to stdout, one under the other."""
    console = _console(to_stderr=False)
    for part in parts:
        with console.capture() as captured:
            console.print(part)
        for line in captured.get().splitlines():  # tables are padded to their full width; files need no such spaces
            print(line.rstrip(), file=_for_people())


def print_line(text: object = "", file: IO[str] | None = None) -> None:
    """Print text to stdout, or to `file`, and flush, so that readers of a pipe see each line at once."""
    print(visible(str(text)), file=file or _for_people(), flush=True)


def one_line(text: object) -> str:
    """Return `text` on one line."""
    return " ".join(visible(str(text)).split())


def print_error(error: object) -> None:
    """Print one line about an error to stderr."""
    print_line(f"error: {one_line(error)}", file=sys.stderr)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout."""
    print(json.dumps(value, indent=1, allow_nan=False), file=_for_people())


def tell(as_json: bool, document: Mapping[str, Any], parts: Iterable[RenderableType]) -> None:
    """Print what a command found: `document` as JSON, or `parts`, which are only made then, one under the other."""
    if as_json:
        print_json(document)
    else:
        show_parts(parts)


def check_writable(path: Path) -> Path:
    """Return `path`; refuse an output that could not be written at the end of a long run."""
    try:
        lack = _lack_of(path)
    except (OSError, RuntimeError) as error:  # a name that is too long; a loop of links
        lack = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
    if lack is not None:
        raise PlacekitError(f"cannot write {path}: {lack}")
    return path


def refuse_overwriting(output: Path, *inputs: Path) -> None:
    """Refuse an output that is an input."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise PlacekitError(f"-o {output}: it is an input; it would be overwritten")


def _lack_of(path: Path) -> str | None:
    """Return why a file cannot be written; None if it can."""
    if path.is_dir():  # and that is what the empty path means
        return "it is a folder"
    if is_special(path):
        return None if path == STDOUT or os.access(path, os.W_OK) else "no permission"
    folder = path.resolve().parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK) else f"no permission to write in {folder}"

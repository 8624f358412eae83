"""The files that `solve` writes, and how they are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.cli.console import check_writable
from placekit.errors import InvalidProblemError

if TYPE_CHECKING:
    from placekit.problem import Problem
    from placekit.result import Result

__all__ = ["OutputFiles"]

_STEMS = (".problem", ".workload", ".placement", ".result", ".costs")


@dataclass(frozen=True)
class OutputFiles:
    """Where the placement and the result go.

    The placement goes to ``-o``, by default to ``STEM.placement.json`` in the current directory, STEM being the input
    file's name without its suffixes. The result goes beside it, with ``.result.json`` in the place of
    ``.placement.json`` (or of ``.json``).

    Examples
    --------
    >>> files = OutputFiles.of(Path("models/bert.xml"), None)
    >>> files.placement.name, files.result.name
    ('bert.placement.json', 'bert.result.json')
    >>> OutputFiles.of(Path("bert.xml"), Path("best.json")).result.name
    'best.result.json'
    """

    placement: Path
    result: Path

    @classmethod
    def of(cls, source: Path, out: Path | None) -> OutputFiles:
        """Return the files for the input `source` and the option ``-o``.

        Raises
        ------
        PlacekitError
            A file that would overwrite the input, or that cannot be written.
        """
        placement = out or Path(f"{_stem(source)}.placement.json")
        files = cls(placement, placement.with_name(f"{_stem(placement)}.result.json"))
        for path in (files.placement, files.result):
            if path.exists() and source.exists() and path.samefile(source):
                raise InvalidProblemError(f"-o {out}: {path} is the input; it would be overwritten")
        check_writable(files.placement, files.result)
        return files

    def write(self, result: Result, problem: Problem) -> dict[str, str]:
        """Write the result, and the placement if there is one; return the names of the files by kind.

        Raises
        ------
        PlacekitError
            A file that cannot be written.
        """
        from placekit.io.placement_json import write_placement
        from placekit.io.result_json import write_result

        written = {"result": str(self.result)}
        write_result(result, self.result)
        if result.placement is not None:
            write_placement(result.placement, self.placement, problem=problem)
            written = {"placement": str(self.placement)} | written
        return written


def _stem(path: Path) -> str:
    stem = path.stem
    for suffix in _STEMS:
        stem = stem.removesuffix(suffix)
    return stem

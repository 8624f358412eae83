"""The command of a benchmark that measures cases in parts: what has a row is left out, rows are appended one by one."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from placekit.benchmarks.circumstances import circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row, read_cases
from placekit.cost_models.cache import cache_directory
from placekit.errors import PlacekitError

__all__ = ["PartBenchmark", "Row"]

Row = dict[str, Any]


class _RunCase(Protocol):
    def __call__(self, case: Any, folder: Path, *, is_quick: bool = False) -> Row: ...


@dataclass(frozen=True)
class PartBenchmark:
    """A benchmark of cases that belong to parts.

    Parameters
    ----------
    name
        Its name in rows.
    description
        One line for ``--help``.
    rows
        The file that rows are appended to.
    case
        Class of the cases, a dataclass of values with ``part`` and ``model``.
    heads
        Head of the table of every part, by name; the first `num_text` columns are text.
    cases
        Returns the cases of parts, of all models (None) or of some.
    run_case
        Measures one, and returns what its row says; raises `PlacekitError` or whatever keeps it from running.
    describe
        Returns one line about a row, after its case.
    summary
        Returns what rows of one part say together.
    cells
        Returns the line of a row in the table of its part, without the note about noise.
    num_text
        Columns of text.
    """

    name: str
    description: str
    rows: Path
    case: Callable[..., Any]
    heads: dict[str, tuple[str, ...]]
    cases: Callable[[Sequence[str], Sequence[str] | None], Sequence[Any]]
    run_case: _RunCase
    describe: Callable[[Row], str]
    summary: Callable[[Sequence[Row]], list[str]]
    cells: Callable[[Row], list[str]]
    num_text: int = 1

    def known(self, path: Path) -> dict[Any, Row]:
        """Return the rows of what was measured without an error, by case."""
        return {case: row for case, row in read_cases(path, self.name, self.case).items() if row["error"] is None}

    def tables(self, rows: Sequence[Row]) -> str:
        """Return Markdown tables of the rows, one per part, and below each what its rows say together."""
        lines = []
        for part, heads in self.heads.items():
            mine = [row for row in rows if row["part"] == part and row["error"] is None]
            if mine:
                columns = [*heads, ""]
                marks = [":--" if at < self.num_text else "--:" for at in range(len(columns))]
                lines += [f"**{part}**", "", markdown_line(columns), markdown_line(marks)]
                lines += [markdown_line([*self.cells(row), "noisy" if row["noisy"] else ""]) for row in mine]
                lines += ["", *self.summary(mine), ""]
        return "\n".join(lines)

    def main(self) -> None:
        """Measure what has no row yet, append the rows, print what they say."""
        parts = tuple(self.heads)
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--parts", nargs="+", choices=parts, default=parts, metavar="PART")
        parser.add_argument("--models", nargs="+", metavar="MODEL", help="only these models")
        parser.add_argument("--quick", action="store_true", help="a smoke run: short bursts")
        parser.add_argument("--table", action="store_true", help="measure nothing: print the tables of the rows")
        parser.add_argument("--rows", type=Path, default=self.rows, help="file that rows are appended to")
        parser.add_argument("--folder", type=Path, default=cache_directory() / "models", help="where models are kept")
        options = parser.parse_args()
        cases, known = self.cases(options.parts, options.models), self.known(options.rows)
        if options.table:
            print(self.tables([known[case] for case in cases if case in known]))
            return
        if not cases:
            sys.exit(f"no cases of {', '.join(options.parts)} for models {', '.join(options.models)}")
        options.rows.parent.mkdir(parents=True, exist_ok=True)
        todo = [case for case in cases if case not in known]
        print(f"{len(cases)} cases, {len(todo)} to measure", flush=True)
        num_failed = 0
        for number, case in enumerate(todo, 1):
            row = self._row(case, options.folder, is_quick=options.quick)
            append_row(options.rows, row)
            print(f"[{number}/{len(todo)}] {self._line(case, row)}", flush=True)
            if row["error"] is None:
                known[case] = row
            else:
                num_failed += 1
        for part in parts:
            mine = [known[case] for case in cases if case in known and case.part == part]
            print("\n".join(self.summary(mine) if mine else []))
        print(f"rows in {options.rows}")
        if num_failed:
            sys.exit(f"{num_failed} of {len(todo)} cases failed; run again to repeat them")

    def _row(self, case: Any, folder: Path, *, is_quick: bool) -> Row:
        start = time.perf_counter()
        row: Row = {"benchmark": self.name, **asdict(case), "error": None}
        try:
            row |= self.run_case(case, folder, is_quick=is_quick)
        except (PlacekitError, RuntimeError, MemoryError, OSError, ImportError) as error:
            row["error"] = f"{type(error).__name__}: {error}"
        return row | {"case_s": time.perf_counter() - start} | circumstances()

    def _line(self, case: Any, row: Row) -> str:
        text = " ".join(f"{value:14}" for value in asdict(case).values()) + f" {row['case_s']:4.0f} s  "
        if row["error"] is not None:
            return text + f"FAILED: {row['error']}"
        return text + self.describe(row) + (" NOISY" if row["noisy"] else "")

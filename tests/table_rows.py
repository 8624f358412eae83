"""Rows of the tables of inputs, runtimes and exports on the pages; each row is walked in tests/cli/test_journeys.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADERS = (
    ("`--for`", "devices"), ("`--to`", "what is written"), ("`--to`", "of"),
    ("model", "what is read"), ("file", "read"),
)  # fmt: skip
"""First two columns of the tables whose rows are walked."""
RESULTS = (("model", "parameters"), ("model", "placement"))
"""First two columns of tables of results, whose first column is called like that of a table of inputs."""
SUBJECTS = frozenset(("--for", "--to", "export", "file", "format", "input", "model", "runtime"))
"""First columns of tables that need a walk for every row."""
Row = tuple[str, str]
"""Page and name of a row."""


def pages() -> dict[str, str]:
    """Return the text of the readme and of every page, by its path."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def rows_of(page: str, text: str) -> tuple[list[Row], list[str]]:
    """Return all rows of a page that have to be walked, and what no name can be read from."""
    rows: list[Row] = []
    faults: list[str] = []
    header: tuple[str, ...] = ()
    for line in map(str.strip, text.splitlines()):
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))[:2] if line.startswith("|") else ()
        if not cells or not header:
            header = cells
            is_subject = bool(header) and header[0].strip("`").lower().removesuffix("s") in SUBJECTS
            if is_subject and header not in (*HEADERS, *RESULTS):
                faults.append(f"{page}: a table of {' and '.join(header)}: add it to HEADERS, and walks for its rows")
        elif header in HEADERS and not set(line) <= set("|-: "):
            names = names_of(header[0], cells[0])
            rows += [(page, name) for name in names]
            faults += [] if names else [f"{page}: no names like `name`, `name` in the row {line!r}"]
    return rows, faults


def names_of(column: str, cell: str) -> list[str]:
    """Return the names that the first cell of a row has: every name of an option, and every kind of input."""
    if column.startswith("`--"):
        is_list = re.fullmatch(r"`[^`]+`(, `[^`]+`)*", cell)
        return [f"{column.strip('`')} {name}" for name in re.findall(r"`([^`]+)`", cell)] if is_list else []
    parts = re.split(r", (?:or )?|: ", cell) if column == "model" else [cell]
    return [part for part in parts if part not in ("", "...", "a name")]


def walked_rows(texts: dict[str, str]) -> list[Row]:
    """Return all rows of these pages that have to be walked."""
    return [row for page, text in texts.items() for row in rows_of(page, text)[0]]


def faults_of(texts: dict[str, str], walked: set[Row]) -> list[str]:
    """Return what is wrong with the tables of these pages: rows that nothing walks, or that cannot be read."""
    faults = [fault for page, text in texts.items() for fault in rows_of(page, text)[1]]
    missing = [row for row in walked_rows(texts) if row not in walked]
    return faults + [f"{page} has a row {name!r} that no test walks: add one with @walks" for page, name in missing]

"""Fills the tables of the pages: ``make tables``. Every table is what the command above it prints from committed rows.

A page has a console block with one ``placekit report ... --table NAME``, the table, and a line that ends it.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import typer.main

from placekit.cli.main import app

ROOT = Path(__file__).parents[1]
_TABLE = re.compile(
    r"(```console\n\$ placekit (?P<command>report [^\n]*--table[^\n]*)\n```\n).*?(<!-- end of the table -->\n)",
    re.DOTALL,
)


def updated(page: str) -> str:
    """Return the text of a page with all of its tables printed anew."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{_printed(found['command'])}\n{found[3]}", page)


def _printed(command: str) -> str:
    words = shlex.split(command)
    if not all((ROOT / word).is_file() for word in words if word.endswith(".jsonl")):
        return "Not measured for this version.\n"
    printed = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        typer.main.get_command(app).main(words, standalone_mode=False)
    return printed.getvalue()


def main() -> None:
    """Rewrite the pages that have tables."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(updated(text), encoding="utf-8")


if __name__ == "__main__":
    main()

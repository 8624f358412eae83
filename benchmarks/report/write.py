"""Rows to files: ``report.html``, one page that needs nothing else, and ``report.md``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from placekit.benchmarks.report.content import Section, sections
from placekit.benchmarks.report.groups import Group, read_groups
from placekit.benchmarks.report.tables import Table
from placekit.benchmarks.store import Store
from placekit.io.atomic import write_text

__all__ = ["render_html", "render_markdown", "write_report"]


def write_report(results: Path, output: Path | None = None) -> tuple[Path, Path]:
    """Write the report of a folder of results, and return its two files.

    Parameters
    ----------
    results
        The folder with ``rows.jsonl`` and ``problems/``.
    output
        The HTML file; the Markdown file goes beside it. ``report.html`` in the folder of results by default.

    Raises
    ------
    InvalidFileError
        There are no rows, or they are broken.
    PlacekitError
        A file cannot be written.
    """
    groups = read_groups(results)
    parts = sections(groups, Store(results).measured(), results)
    page = output or results / "report.html"
    title, subtitle = _title(groups)
    write_text(page, render_html(title, subtitle, parts))
    write_text(page.with_suffix(".md"), render_markdown(title, subtitle, parts))
    return page, page.with_suffix(".md")


def render_html(title: str, subtitle: str, parts: Sequence[Section]) -> str:
    """Return the page: styles and figures inside, no script, nothing from the network."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("report.html.j2").render(title=title, subtitle=subtitle, sections=parts)
    return page.rstrip() + "\n"


def render_markdown(title: str, subtitle: str, parts: Sequence[Section]) -> str:
    """Return the same without figures."""
    blocks = [f"# {title}", subtitle]
    for part in parts:
        blocks.append(f"{'#' * part.level} {part.title}")
        blocks += part.text
        blocks += [_markdown(table) for table in part.tables]
    return "\n\n".join(blocks) + "\n"


def _markdown(table: Table) -> str:
    lines = [_line(table.columns), _line([":--" if at < table.num_text else "--:" for at in range(len(table.columns))])]
    for at, row in enumerate(table.rows):
        lines.append(_line([f"**{cell}**" if at in table.best and cell else cell for cell in row]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _title(groups: Sequence[Group]) -> tuple[str, str]:
    rows = [row for group in groups for row in group.all_rows]
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    days = sorted({str(row["date"])[:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    made = datetime.now(UTC).isoformat(timespec="minutes").replace("+00:00", " UTC")
    subtitle = f"{len(rows)} runs on {len(groups)} problems, made {span}; report made {made}"
    return f"placekit: {', '.join(suites)}", subtitle

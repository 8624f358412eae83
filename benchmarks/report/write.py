"""Rows to files: ``report.html``, one page that needs nothing else, and ``report.md``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placekit.benchmarks.report.content import Section, sections
from placekit.benchmarks.report.groups import Group, read_groups
from placekit.benchmarks.report.tables import Table
from placekit.benchmarks.store import Store
from placekit.io.atomic import write_together
from placekit.io.visible import visible, visible_markdown


def write_report(
    *results: Path,  # folders with ``rows.jsonl``
    # the HTML file; the Markdown file goes beside it. By default ``report.html``, in the folder of results if it is one
    output: Path | None = None,
) -> tuple[Path, Path]:
    """Write the report of folders of results, and return its two files."""
    groups = read_groups(*results)
    measured = {case: row for folder in results for case, row in Store(folder).measured().items()}
    parts = sections(groups, measured)
    page = output or (results[0] if len(results) == 1 else Path()) / "report.html"
    title, subtitle = _title(groups)
    beside = page.with_suffix(".md")
    contents = ((page, render_html(title, subtitle, parts)), (beside, render_markdown(title, subtitle, parts)))
    write_together([(path, text.encode(errors="replace")) for path, text in contents])
    return page, beside


def render_html(title: str, subtitle: str, parts: Sequence[Section]) -> str:
    """Return the page: styles, figures and a script for its tables inside, nothing from the network."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    page = environment.get_template("report.html.j2").render(title=title, subtitle=subtitle, sections=parts)
    return page.rstrip() + "\n"


def _shown(value: Any) -> Any:
    """Return text with its control characters spelled out; jinja then escapes what is HTML in it."""
    return visible(value) if type(value) is str else value


def render_markdown(title: str, subtitle: str, parts: Sequence[Section]) -> str:
    """Return the same without figures."""
    blocks = [f"# {visible_markdown(title)}", visible_markdown(subtitle)]
    for part in parts:
        blocks.append(f"{'#' * part.level} {visible_markdown(part.title)}")
        blocks += [visible_markdown(paragraph) for paragraph in part.text]
        blocks += [markdown_table(table) for table in part.tables]
    return "\n\n".join(blocks) + "\n"


def markdown_table(table: Table) -> str:
    """Return a table in Markdown; what stands in its cells, models, methods and errors among it, comes from files."""
    lines = [
        _line([visible_markdown(column) for column in table.columns]),
        _line([":--" if at < table.num_text else "--:" for at in range(len(table.columns))]),
    ]
    for at, row in enumerate(table.rows):
        cells = [visible_markdown(cell) for cell in row]
        lines.append(_line([f"**{cell}**" if at in table.best and cell else cell for cell in cells]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _title(groups: Sequence[Group]) -> tuple[str, str]:
    rows = [row for group in groups for row in group.all_rows]
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    days = sorted({str(row["date"])[:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    made = datetime.now(UTC).isoformat(timespec="minutes").replace("+00:00", " UTC")
    subtitle = f"{len(rows)} runs on {len(groups)} problems, made {span}; report made {made}"
    return f"placekit: {', '.join(suites)}", subtitle

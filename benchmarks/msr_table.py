"""The rows of :mod:`placekit.benchmarks.msr` as a table: one line per workload, one column per method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placekit.benchmarks.msr import MsrCase, Row

__all__ = ["markdown_line", "markdown_tables"]

PROVEN = 1e-6


def markdown_tables(rows: Mapping[MsrCase, Row]) -> str:
    """Return a Markdown table per objective and contiguity.

    A cell says the objective in milliseconds, then "=" where it is proven optimal or the proven gap if there is one,
    then the seconds.
    """
    parts = []
    for objective, contiguity in dict.fromkeys((case.objective, case.contiguity) for case in rows):
        chosen = {c: row for c, row in rows.items() if (c.objective, c.contiguity) == (objective, contiguity)}
        columns = dict.fromkeys((c.method, c.time_limit_s) for c in sorted(chosen, key=lambda c: c.time_limit_s))
        several = {m for m, _ in columns if sum(m == other for other, _ in columns) > 1}
        heads = [f"{m} {limit:.0f} s" if m in several else m for m, limit in columns]
        lines = [f"**{objective}, contiguity {contiguity}** (objective in ms, proof or proven gap, seconds)", ""]
        lines += [markdown_line(["workload", *heads]), markdown_line(["---"] * (len(heads) + 1))]
        for workload in dict.fromkeys(c.workload for c in chosen):
            cells = {(c.method, c.time_limit_s): row for c, row in chosen.items() if c.workload == workload}
            name = workload.rpartition("/")[2].removesuffix(".json")
            lines.append(markdown_line([name, *(_cell(cells.get(column)) for column in columns)]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def markdown_line(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row["objective_s"] is None:
        return f"none; {seconds(row['runtime_s'])}"
    gap = row["proven_gap"]
    proof = "" if gap is None else " =" if gap <= PROVEN else f" ({gap:.1%})"
    return f"{row['objective_s'] * 1e3:.4f}{proof}; {seconds(row['runtime_s'])}"


def seconds(value_s: float) -> str:
    """Return a duration with two digits."""
    return f"{value_s * 1e3:.0f} ms" if value_s < 1 else f"{value_s:.1f} s" if value_s < 10 else f"{value_s:.0f} s"

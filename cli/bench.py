"""``placekit bench``: run a table of solves, one row each, resumable."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Suite", "bench"]


class Suite(StrEnum):
    """The tables that can be run."""

    MSR = "msr"


def bench(
    suite: Annotated[Suite, typer.Argument(help="msr: the public workloads of Tarnawski et al. 2020.")],
    folder: Annotated[Path, typer.Argument(help="Folder with the workloads.", exists=True, file_okay=False)],
    rows: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Rows are appended here.")] = Path(
        "msr.jsonl"
    ),
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only this method; repeatable.")] = None,
    workload: Annotated[str | None, typer.Option(metavar="TEXT", help="Only workloads whose path has this.")] = None,
    contiguity: Annotated[str | None, typer.Option(metavar="RULE", help="Only this contiguity.")] = None,
    most_s: Annotated[
        float | None, typer.Option("--most", metavar="SECONDS", help="Only cases with at most this time limit.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run cases that already have a row, too.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Only print the table of the rows that are there.")] = False,
) -> None:
    """Run a benchmark table; a row is written when its solve ends, and rows that exist are not made again."""
    from placekit.benchmarks.msr import msr_cases, read_rows, run_cases
    from placekit.benchmarks.msr_table import markdown_tables
    from placekit.benchmarks.rows import append_row
    from placekit.cli.console import check_writable
    from placekit.cli.progress import SolveLine

    check_writable(rows)
    known = read_rows(rows)
    cases = [
        case
        for case in msr_cases(folder)
        if (not method or case.method in method)
        and (workload is None or workload in case.workload)
        and (contiguity is None or case.contiguity == contiguity)
        and (most_s is None or case.time_limit_s <= most_s)
    ]
    wanted = [] if table else [case for case in cases if again or case not in known]
    if not table:
        at_most_s = sum(case.time_limit_s for case in wanted)
        print(f"{suite}: {len(cases)} cases, {len(cases) - len(wanted)} already in {rows}, at most {at_most_s:.0f} s")
    for number, case in enumerate(wanted, 1):
        with SolveLine(case.time_limit_s) as line:
            for row in run_cases(folder, [case], line):
                append_row(rows, row)
                known[case] = row
                print(_told(number, len(wanted), row), flush=True)
    print()
    print(markdown_tables({case: known[case] for case in cases if case in known}), end="")


def _told(number: int, of: int, row: dict[str, object]) -> str:
    from placekit.cli.units import format_share, format_time

    objective, bound, gap, runtime = (row[name] for name in ("objective_s", "bound_s", "proven_gap", "runtime_s"))
    told = f"{row['workload']} {row['contiguity']} {row['method']}"
    return (
        f"[{number}/{of}] {told}: {format_time(objective)}, bound {format_time(bound)}, "  # type: ignore[arg-type]  # rows are JSON
        f"gap {format_share(gap)}, {row['status']}, {format_time(runtime)}"  # type: ignore[arg-type]  # rows are JSON
    )

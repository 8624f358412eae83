"""``placekit bench msr``: the table of the public workloads, one row per solve, resumable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from placekit.cli.console import print_line

__all__ = ["MsrChoice", "bench_msr"]


@dataclass(frozen=True)
class MsrChoice:
    """Which cases of the table, and where the rows go.

    Parameters
    ----------
    rows
        Rows are appended here.
    methods
        Only these; None for all.
    workload, contiguity, most_s
        Only workloads whose path has this text, this contiguity, cases with at most this time limit.
    again
        Run cases that already have a row, too.
    table
        Only print the table.
    """

    rows: Path
    methods: list[str] | None = None
    workload: str | None = None
    contiguity: str | None = None
    most_s: float | None = None
    again: bool = False
    table: bool = False


def bench_msr(folder: Path, choice: MsrChoice) -> None:
    """Run the cases of `choice` on the workloads in `folder`, and print the table."""
    from placekit.benchmarks.msr import msr_cases, read_rows, run_cases
    from placekit.benchmarks.msr_table import markdown_tables
    from placekit.benchmarks.rows import append_row
    from placekit.cli.console import check_writable
    from placekit.cli.progress import SolveLine

    check_writable(choice.rows)
    known = read_rows(choice.rows)
    cases = [
        case
        for case in msr_cases(folder)
        if (not choice.methods or case.method in choice.methods)
        and (choice.workload is None or choice.workload in case.workload)
        and (choice.contiguity is None or case.contiguity == choice.contiguity)
        and (choice.most_s is None or case.time_limit_s <= choice.most_s)
    ]
    wanted = [] if choice.table else [case for case in cases if choice.again or case not in known]
    if not choice.table:
        at_most_s = sum(case.time_limit_s for case in wanted)
        known_already = len(cases) - len(wanted)
        print_line(f"msr: {len(cases)} cases, {known_already} already in {choice.rows}, at most {at_most_s:.0f} s")
    for number, case in enumerate(wanted, 1):
        with SolveLine(case.time_limit_s) as line:
            for row in run_cases(folder, [case], line):
                append_row(choice.rows, row)
                known[case] = row
                print_line(_told(number, len(wanted), row))
    print_line()
    print_line(markdown_tables({case: known[case] for case in cases if case in known}).removesuffix("\n"))


def _told(number: int, of: int, row: dict[str, object]) -> str:
    from placekit.cli.units import format_share, format_time

    objective, bound, gap, runtime = (row[name] for name in ("objective_s", "bound_s", "proven_gap", "runtime_s"))
    told = f"{row['workload']} {row['contiguity']} {row['method']}"
    return (
        f"[{number}/{of}] {told}: {format_time(objective)}, bound {format_time(bound)}, "  # type: ignore[arg-type]  # rows are JSON
        f"gap {format_share(gap)}, {row['status']}, {format_time(runtime)}"  # type: ignore[arg-type]  # rows are JSON
    )

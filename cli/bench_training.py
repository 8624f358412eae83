"""``placekit bench training``: training plans, one row per solve, resumable, and the table of all methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from placekit.cli.console import print_line

__all__ = ["TrainingChoice", "bench_training"]


@dataclass(frozen=True)
class TrainingChoice:
    """Which cases, and where the rows go.

    Parameters
    ----------
    rows
        Rows are appended here.
    methods, instance
        Only these methods; only instances whose name has this text.
    again, table
        Run cases that already have a row, too; run none, only print the table.
    time_limit_s
        No case takes longer.
    """

    rows: Path
    methods: list[str] | None = None
    instance: str | None = None
    again: bool = False
    table: bool = False
    time_limit_s: float | None = None


def bench_training(folder: Path | None, choice: TrainingChoice) -> None:
    """Run the cases of `choice`, with Piper's files from `folder` if it has them, and print the table."""
    from dataclasses import replace

    from placekit.benchmarks.rows import append_row
    from placekit.benchmarks.training_plans import markdown_table, read_training_rows, run_case, training_cases
    from placekit.cli.console import check_writable
    from placekit.cli.progress import SolveLine
    from placekit.cli.units import format_share, format_time
    from placekit.io.atomic import write_text

    if not choice.table:
        choice.rows.parent.mkdir(parents=True, exist_ok=True)
        check_writable(choice.rows)
    known = read_training_rows(choice.rows)
    cases = [
        case if choice.time_limit_s is None else replace(case, time_limit_s=min(case.time_limit_s, choice.time_limit_s))
        for case in training_cases(folder)
        if (not choice.methods or case.method in choice.methods)
        and (choice.instance is None or choice.instance in case.instance)
    ]
    wanted = [] if choice.table else [case for case in cases if choice.again or case not in known]
    if not choice.table:
        print_line(f"training: {len(cases)} cases, {len(cases) - len(wanted)} already in {choice.rows}")
    for number, case in enumerate(wanted, 1):
        with SolveLine(case.time_limit_s) as line:
            row = run_case(case, folder, line)
        append_row(choice.rows, row)
        known[case] = row
        print_line(
            f"[{number}/{len(wanted)}] {case.instance} {case.devices} x {case.memory_gib:g} GiB {case.method}: "
            f"{format_time(row['objective_s'])}, gap {format_share(row['proven_gap'])}, {row['status']}, "
            f"{format_time(round(row['runtime_s'], 3))}"
        )
    table = markdown_table({case: known[case] for case in cases if case in known})
    if not choice.table:
        write_text(choice.rows.with_suffix(".md"), table)
        print_line(f"wrote rows   {choice.rows}")
        print_line(f"wrote table  {choice.rows.with_suffix('.md')}")
    print_line()
    print_line(table.removesuffix("\n"))

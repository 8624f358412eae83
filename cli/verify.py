"""``placekit verify``: check a result without trusting the method that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.answers import answered_problem, result_file
from placekit.cli.choices import with_choices
from placekit.cli.options import JsonOption
from placekit.cli.task import TaskOptions

__all__ = ["EXIT_NOT_VERIFIED", "verify"]

EXIT_NOT_VERIFIED = 5
"""A check failed: the result is wrong."""


@with_choices
def verify(
    file: Annotated[Path, typer.Argument(help="Result file, as `solve` wrote it.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Argument(help="The model, problem or workload that it is of; needed only where it was not solved here."),
    ] = None,
    *,
    asked: TaskOptions,
    steps: Annotated[
        int, typer.Option(metavar="N", min=0, help="Steps of enumeration at most, where there is no certificate.")
    ] = 1_000_000,
    as_json: JsonOption = False,
) -> None:
    """Check a result: its placement by a second judge, its bound by its certificate. Exit code 5 if a check fails.

    The problem of a result that was solved here is kept. For another one give the model, and the options of `solve`
    that shaped the problem. A model or options of another problem are bad input: exit code 2, and what differs.
    """
    from placekit.cli.console import print_json, print_line
    from placekit.io.result_json import read_result
    from placekit.verification.verify import verify as verify_result

    file = result_file(file)
    result = read_result(file)
    problem = answered_problem(file, result, model, asked)
    found = verify_result(result, problem, max_steps=steps)
    if as_json:
        print_json(found.to_dict())
    else:
        for line in str(found).splitlines():
            print_line(line)
    raise typer.Exit(0 if found.is_consistent else EXIT_NOT_VERIFIED)

"""``placekit verify``: check a result without trusting the method that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.console import print_json, print_line
from placekit.cli.inputs.answers import answered_problem, result_file
from placekit.cli.inputs.task import TaskOptions
from placekit.cli.options import JsonOption, QuestionArgument
from placekit.cli.parameters import SEARCH, option
from placekit.io.files.result_json import read_result
from placekit.io.reading import read_json
from placekit.verification.verify import verify as verify_result

EXIT_NOT_VERIFIED = 5
"""A check failed: the result is wrong."""


def verify(
    file: Annotated[Path, typer.Argument(help="Result or placement file of `placekit solve`.", show_default=False)],
    model: QuestionArgument = None,
    *,
    asked: TaskOptions,
    steps: int = option(
        1_000_000, "Largest number of enumeration steps, if there is no certificate.", "N", panel=SEARCH, min=0
    ),
    as_json: JsonOption = False,
) -> None:
    """Check a result: its placement by a second judge, its bound by its certificate. Exit code 5 if a check fails.

    placekit keeps the problem of every result that was solved on this machine. For other results give the model, and
    the options of `placekit solve` that shaped the problem. A model or options of another problem are bad input: exit
    code 2, and what differs.
    """
    file = result_file(file)
    result = read_result(file)
    problem = answered_problem(file, result, model, asked)
    found = verify_result(result, problem, max_steps=steps, document=read_json(file))
    if as_json:
        print_json(found.to_dict())
    else:
        for line in str(found).splitlines():
            print_line(line)
    raise typer.Exit(0 if found.is_consistent else EXIT_NOT_VERIFIED)

"""The entry point ``placekit``: the table of commands, and what an error looks like.

Heavy packages are imported inside the commands, so that ``placekit --help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from placekit.cli.bench import bench
from placekit.cli.calibrate import calibrate
from placekit.cli.devices import devices
from placekit.cli.explain import explain
from placekit.cli.export import export
from placekit.cli.learn import learn
from placekit.cli.profile import profile
from placekit.cli.report import report
from placekit.cli.show import show
from placekit.cli.solve import solve
from placekit.cli.time import time
from placekit.cli.zoo import zoo
from placekit.errors import JudgeDisagreementError, PlacekitError

__all__ = ["EXIT_INTERRUPTED", "EXIT_USAGE", "app", "main"]

EXIT_USAGE = 2
"""Bad arguments or bad input."""
EXIT_INTERRUPTED = 130
"""Ctrl-C where there is no answer to return: the shell's convention, 128 + SIGINT."""

app = typer.Typer(
    name="placekit",
    help="Decide on which device every operator of a neural network runs, and prove how good the decision is.",
    epilog="Exit codes: 0 ok, 2 usage or bad input, 3 infeasible, 4 stopped without a feasible answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (devices, profile, calibrate, solve, learn, time, export, show, zoo, bench, report, explain):
    app.command()(command)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from placekit import __version__

        print(f"placekit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[  # acts in its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {_one_line(record.getMessage())}"


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def main() -> None:
    """Run the command line; every `PlacekitError` becomes one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Unicode shows "?" instead of failing
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.getLogger("placekit").handlers[:] = [handler]
    try:
        app()
    except JudgeDisagreementError:  # a bug of ours, not of the input: show where
        raise
    except PlacekitError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has left (`placekit ... | head`): nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
